"""A bake's state in `bakes`, out of its last message of each type."""

from typing import Any

import pytest

from bakemesh.cli.listing import state_of
from bakemesh.protocol.builder.messages import (
    BakeCancelled,
    BakeFailed,
    BakePaused,
    BakeRestarted,
    BakeStatus,
    BakeSuccess,
)


def said(cls: type[BakeStatus], serial: int, **more: Any) -> BakeStatus:
    kind = "interim" if cls is BakeStatus else "outcome"
    fields = {"kind": kind, "serial": serial, "pct": -1, "summary": "", **more}
    return cls(supervisor="s", recipe="r", recipe_id="s-r-1", node="n", node_id="n", **fields)


BEAT = said(BakeStatus, 9)


@pytest.mark.parametrize(
    ("last", "state"),
    [
        ([BEAT], "running"),
        ([said(BakeStatus, 1, summary="queued: as many bakes as may run are running")], "queued"),
        ([said(BakePaused, 4), BEAT], "paused"),
        ([said(BakePaused, 4, code="held"), BEAT], "held"),
        ([said(BakeRestarted, 5), said(BakePaused, 4, code="held"), BEAT], "running"),
        ([said(BakeRestarted, 5), said(BakePaused, 6), BEAT], "paused"),
        ([said(BakeSuccess, 10)], "succeeded"),
        ([said(BakeFailed, 10, code="step_failed"), said(BakePaused, 4)], "failed"),
        ([said(BakeCancelled, 10), BEAT], "cancelled"),
    ],
)
def test_a_rest_lasts_until_it_is_ended(last, state):
    assert state_of(last) == state
