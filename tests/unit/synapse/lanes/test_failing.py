"""What an error tells of a lane's request: was it begun, may it be run once more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.protocol.inference.errors import PERMANENT, TRANSIENT, Code, ErrorObject, error_of
from bakemesh.synapse.lanes.failing import died, failed, of_pool
from bakemesh.workerpool import (
    BadRequest,
    EngineCrashed,
    LaneBusy,
    ModelQuarantined,
    PoolClosed,
    RequestPoisoned,
    WorkerUnavailable,
)

errors = st.builds(
    ErrorObject,
    code=st.sampled_from([*map(str, Code), "new_code"]),
    message=st.text(max_size=5),
    kind=st.sampled_from([TRANSIENT, PERMANENT]),
    safe_to_retry=st.booleans(),
    details=st.fixed_dictionaries({}, optional={"stage": st.sampled_from(["embed", "timeout", "cancel"])}),
)


@given(errors, st.booleans())
def test_it_may_be_run_once_more_only_where_a_worker_or_its_host_was_lost(
    error: ErrorObject, seen: bool
) -> None:
    failure = failed(error, seen=seen)
    if failure.crashed:
        assert error.code in (Code.ENGINE_CRASHED, Code.MODULE_RESTARTED)
        assert failure.begun
        if error.code == Code.ENGINE_CRASHED:
            assert error.kind == TRANSIENT
            assert error.details.get("stage") not in ("timeout", "cancel")
    if seen:
        assert not failure.error.safe_to_retry


@pytest.mark.parametrize(
    ("error", "crashed", "begun"),
    [
        (EngineCrashed("x", stage="embed", signal=9), True, True),
        (EngineCrashed("x", stage="timeout", during="embed"), False, True),
        (RequestPoisoned("x", stage="embed", safe_to_retry=False), False, True),
        (PoolClosed("x"), True, True),
        (LaneBusy("x"), False, False),
        (WorkerUnavailable("x"), False, False),
        (ModelQuarantined("x", retry_after_s=1.2), False, False),
        (BadRequest("x"), False, True),
    ],
)
def test_a_pools_error_says_the_same_here_as_over_the_bus(error, crashed, begun) -> None:
    failure = of_pool(error)
    assert (failure.crashed, failure.begun) == (crashed, begun)
    assert failure.error.code == error.code
    assert failure.error.kind == error.kind


def test_a_crash_is_told_with_what_is_known_of_it() -> None:
    told = of_pool(EngineCrashed("it died", stage="embed", exit_code=3, output="[stderr] oh", worker="w0"))
    assert told.error.details == {"stage": "embed", "exit_code": 3, "output": "[stderr] oh", "worker": "w0"}
    assert told.error.safe_to_retry
    poison = of_pool(RequestPoisoned("it died again", stage="embed", safe_to_retry=False))
    assert not poison.error.safe_to_retry
    assert of_pool(ModelQuarantined("x", retry_after_s=1.2)).error.retry_after_ms == 1200
    assert failed(error_of(Code.LANE_BUSY, "x")).error.safe_to_retry


@pytest.mark.parametrize(
    ("error", "ended"),
    [
        (EngineCrashed("x", stage="embed", signal=9), True),
        (EngineCrashed("x", stage="embed"), True),
        (EngineCrashed("x", stage="timeout", during="embed", signal=9), True),
        (RequestPoisoned("x", stage="embed", exit_code=0, safe_to_retry=False), True),
        (RequestPoisoned("x", stage="embed", safe_to_retry=False), False),
        (LaneBusy("x"), False),
        (BadRequest("x"), False),
    ],
)
def test_a_worker_died_also_where_nothing_is_run_again_and_not_where_nothing_was_run(error, ended) -> None:
    assert died(of_pool(error)) is ended
