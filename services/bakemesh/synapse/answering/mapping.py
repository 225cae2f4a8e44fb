"""What went wrong into what the caller is told: the one place where exceptions become error objects."""

from __future__ import annotations

import logging

from bakemesh.bus.errors import BusError
from bakemesh.protocol.errors import MessageError
from bakemesh.protocol.inference.errors import Code, ErrorObject, error_of
from bakemesh.synapse.lanes.base import LaneFailed
from bakemesh.synapse.models.errors import ModelError
from bakemesh.synapse.scheduling.asks import Failed

log = logging.getLogger(__name__)

NO_RESULT = error_of(Code.INFERENCE_FAILED, "the module gave no result; its log says more")


def error_from(error: Exception) -> ErrorObject:
    """What the caller is told. What nobody expected is logged whole, and told by its name alone: its text may
    hold what the caller is not to see.
    """
    match error:
        case Failed() | LaneFailed() | ModelError():
            return error.error
        case MessageError():
            return error_of(Code.BAD_REQUEST, str(error))
        case BusError():
            return error_of(Code.MODULE_RESTARTED, f"the module lost its bus: {error}")
        case _:
            log.error("a request failed", exc_info=error)
            name = type(error).__name__
            return error_of(Code.INFERENCE_FAILED, f"the module failed ({name}); its log says more")
