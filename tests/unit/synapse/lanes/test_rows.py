"""An answer of vectors is cut into those of each caller, or refused whole."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.protocol.inference.errors import Code
from bakemesh.protocol.inference.lanes import LaneVectors
from bakemesh.synapse.lanes.base import LaneFailed
from bakemesh.synapse.lanes.rows import per_share
from bakemesh.workerpool import Vectors

DIMS = 2


def error(share: object) -> dict[str, object]:
    return {
        "share": share,
        "code": "engine_crashed",
        "class": "permanent",
        "safe_to_retry_same_request": 0,
        "message": "it died",
    }


def answer(rows: list[int], failed: list[dict[str, object]] | None = None, **more: object) -> LaneVectors:
    data = array("f", [float(row) for row in rows for _ in range(DIMS)]).tobytes()
    given_: dict[str, object] = {"n": len(rows), "dims": DIMS, "data": data, **more}
    return LaneVectors(request=bytes(16), failed=failed, **given_)  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=6))
def test_each_caller_gets_its_own_rows_or_its_own_error(shares: list[tuple[int, bool]]) -> None:
    numbered = [(index, count, broken) for index, (count, broken) in enumerate(shares)]
    rows = [index * 10 + at for index, count, broken in numbered if not broken for at in range(count)]
    errors = [error(index) for index, _, broken in numbered if broken]
    found = per_share(answer(rows, errors or None), [count for count, _ in shares], "g/l")
    for index, count, broken in numbered:
        each = found[index]
        if broken:
            assert isinstance(each, LaneFailed)
            assert each.error.code == Code.ENGINE_CRASHED
            assert not each.crashed
        else:
            assert isinstance(each, Vectors)
            assert each.n == count
            values = array("f", bytes(each.data)).tolist()
            assert values == [float(index * 10 + at) for at in range(count) for _ in range(DIMS)]


@pytest.mark.parametrize(
    ("rows", "failed", "more"),
    [
        ([1], None, {}),  # one row for two items
        ([1, 2], None, {"n": 3}),
        ([1, 2], None, {"dims": 3}),
        ([1, 2], [error(0)], {}),  # a row of a share that failed
        ([1], [error(2)], {}),
        ([1], [error("0")], {}),
        ([], [error(0), error(0)], {}),
        ([1], [{"share": 0}], {}),
    ],
)
def test_what_contradicts_itself_is_given_to_nobody(rows, failed, more) -> None:
    with pytest.raises(LaneFailed) as refused:
        per_share(answer(rows, failed, **more), [1, 1], "g/l")
    assert refused.value.error.code == Code.INFERENCE_FAILED
    assert "g/l" in refused.value.error.message
