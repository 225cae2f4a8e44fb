"""A request that was taken and has not ended: who asked, until when, and its answers.

Guarantees: exactly one last answer, whoever ends it first; nothing after it; what is told of one that has
ended is dropped. Left out: what the answer is (the verbs), and who keeps the requests (`desk`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from bakemesh.bus.errors import BusError, MessageTooLarge
from bakemesh.protocol.inference.answers import Answer, Error
from bakemesh.protocol.inference.errors import Code, ErrorObject, error_of
from bakemesh.telemetry import Span

if TYPE_CHECKING:
    from bakemesh.synapse.answering.desk import Desk
    from bakemesh.synapse.answering.endpoint import Endpoint

log = logging.getLogger(__name__)


class Request:
    """See the module. `id`: of its envelope; `began`, `deadline`: monotonic; `size`: its bytes on the bus."""

    __slots__ = (
        "_cancels",
        "_desk",
        "alias",
        "began",
        "cancelled",
        "deadline",
        "ended",
        "endpoint",
        "id",
        "party",
        "reply",
        "size",
        "span",
    )

    def __init__(
        self,
        desk: Desk,
        endpoint: Endpoint,
        party: str,
        alias: str,
        id: bytes,  # noqa: A002
        reply: str,
        size: int,
        began: float,
    ) -> None:
        self._desk, self.endpoint = desk, endpoint
        self.party, self.alias, self.id, self.reply, self.size = party, alias, id, reply, size
        self.began = began
        self.deadline = float("inf")
        self.cancelled = False
        self.ended = False
        self.span: Span | None = None
        self._cancels: list[Callable[[], None]] = []

    # -- its answers

    def part(self, answer: Answer, probe: str = "") -> None:
        """An answer with more to come. `probe`: where the server tells that nobody listens any more.

        Raises BusError.
        """
        if not self.ended:
            self._desk.send(self.reply, answer, probe)

    def end(self, answer: Answer) -> None:
        """The last answer. Raises nothing: one that the bus does not take is an Error, or is lost with the
        link.
        """
        if self.ended:
            return
        try:
            self._desk.send(self.reply, answer)
        except MessageTooLarge as error:
            self.fail(error_of(Code.BAD_REQUEST, f"the answer is too large: {error}"))
            return
        except BusError as error:
            log.warning("the answer to %s is lost: %s", self.party, error)
        self._over(None)

    def fail(self, error: ErrorObject) -> None:
        """Ends it with an Error."""
        if self.ended:
            return
        try:
            self._desk.send(self.reply, Error.of(self.id, error))
        except BusError as lost:
            log.warning("the error answer to %s is lost: %s", self.party, lost)
        self._over(error)

    def _over(self, error: ErrorObject | None) -> None:
        self.ended = True
        self._cancels.clear()
        self._desk.over(self, error)

    # -- taking it back

    def on_cancel(self, cancel: Callable[[], None]) -> None:
        """What `cancel` does from now on, beside what it does already; at once where it was cancelled."""
        if self.cancelled:
            cancel()
        elif not self.ended:
            self._cancels.append(cancel)

    def cancel(self) -> None:
        """Nobody wants it any more; who works on it ends it with what there is. Idempotent."""
        if self.cancelled or self.ended:
            return
        self.cancelled = True
        cancels, self._cancels = self._cancels, []
        for cancel in cancels:
            cancel()
