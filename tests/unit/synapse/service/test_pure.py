"""What the bus side decides without any I/O: cuts, ids of callers, states, times, errors."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.bus.errors import NotConnected
from bakemesh.protocol.errors import MessageError
from bakemesh.protocol.inference.errors import Code, error_of
from bakemesh.protocol.inference.requests import Generate
from bakemesh.synapse import standing
from bakemesh.synapse.answering.cutting import F32, FRAME_BYTES, parts, rows_a_message
from bakemesh.synapse.answering.generate import sampling_of
from bakemesh.synapse.answering.given import given_items, given_prompt
from bakemesh.synapse.answering.ingest import Sparing
from bakemesh.synapse.answering.mapping import error_from
from bakemesh.synapse.answering.streaming import ASK_EVERY_S, LOOK_EVERY_S, due
from bakemesh.synapse.lanes.base import LaneFailed, LaneView
from bakemesh.synapse.models.errors import TooManyTokens
from bakemesh.synapse.publishing import APART_S, EVERY_S, rest_s
from bakemesh.synapse.scheduling.asks import Failed
from bakemesh.workerpool.models import ModelKey

# -- rows into messages


@given(st.integers(0, 5000), st.integers(0, 5000), st.integers(1, 700))
def test_parts_are_all_rows_once_in_order_and_none_is_too_large(first: int, n: int, rows: int) -> None:
    found = list(parts(first, n, rows))
    assert [at for begin, count in found for at in range(begin, begin + count)] == list(
        range(first, first + n)
    )
    assert all(0 < count <= rows for _, count in found)


@given(st.integers(1, 20_000), st.integers(FRAME_BYTES, 1 << 24))
def test_what_goes_into_a_message_fits_and_nothing_more_would(dims: int, most: int) -> None:
    rows = rows_a_message(dims, most)
    assert rows * dims * F32 + FRAME_BYTES <= most
    assert (rows + 1) * dims * F32 + FRAME_BYTES > most


# -- ids of callers


def ids(*tokens: int) -> bytes:
    return array("i", tokens).tobytes()


@given(
    st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=9), min_size=1, max_size=9), st.integers(1, 9)
)
def test_given_items_are_kept_or_cut_at_their_end(items: list[list[int]], most: int) -> None:
    data, counts = ids(*(token for item in items for token in item)), [len(item) for item in items]
    cut, left = given_items(data, counts, most, truncate=True)
    assert left == [min(len(item), most) for item in items]
    assert cut == ids(*(token for item in items for token in item[:most]))
    if max(counts) > most:
        with pytest.raises(TooManyTokens) as caught:
            given_items(data, counts, most, truncate=False)
        assert (caught.value.have, caught.value.item) == (max(counts), counts.index(max(counts)))
    else:
        assert given_items(data, counts, most, truncate=False) == (data, counts)


@pytest.mark.parametrize("data", [b"", b"123", b"12345"])
def test_a_prompt_of_ids_has_whole_ids(data: bytes) -> None:
    with pytest.raises(Failed) as caught:
        given_prompt(data)
    assert caught.value.error.code == Code.BAD_REQUEST


# -- sampling


def test_greedy_and_free_is_nothing_that_a_lane_must_be_able_to_do() -> None:
    assert sampling_of(Generate(prompt="x")) is None
    assert sampling_of(Generate(prompt="x", temperature=0.0, topk=5, seed=3)) is None


def test_what_is_drawn_or_bound_is_asked_of_the_worker() -> None:
    drawn = sampling_of(Generate(prompt="x", temperature=0.5, topk=5, topp=0.9, minp=0.1, seed=3))
    assert drawn is not None
    assert (drawn.temperature, drawn.top_k, drawn.top_p, drawn.min_p, drawn.seed) == (0.5, 5, 0.9, 0.1, 3)
    bound = sampling_of(Generate(prompt="x", jsonschema="{}", stop=["a", "b"], seed=3))
    assert bound is not None
    assert (bound.json_schema, bound.stop, bound.seed, bound.temperature) == ("{}", ("a", "b"), None, None)


# -- the node's state


KEY, OTHER = ModelKey("a", "fake"), ModelKey("b", "fake")


def view(**facts: Any) -> LaneView:
    return LaneView(**{"name": "n/w0", "node_id": "n", "local": True, "up": True, "idle": True, **facts})


@pytest.mark.parametrize(
    ("views", "how", "state"),
    [
        ([], {}, "down"),
        ([view(up=False, problem="it said no")], {}, "down"),
        ([view()], {}, "ok"),
        ([view(), view(up=False)], {}, "degraded"),
        ([view(degraded=True)], {}, "degraded"),
        ([view()], {"refused": True}, "degraded"),
        ([view()], {"draining": True}, "draining"),
        ([], {"draining": True}, "draining"),
    ],
)
def test_the_state_follows_from_lanes_and_models(
    views: list[LaneView], how: dict[str, bool], state: str
) -> None:
    found, problem = standing.state_of(
        views, draining=how.get("draining", False), refused=how.get("refused", False)
    )
    assert found == state
    assert (problem is None) == (state == "ok")
    if views and views[0].problem:
        assert "it said no" in str(problem)


def test_a_model_is_quarantined_where_no_lane_takes_it() -> None:
    refuses, takes, down = view(refused=frozenset({KEY})), view(), view(up=False)
    assert standing.quarantined(KEY, [refuses])
    assert standing.quarantined(KEY, [refuses, down])
    assert not standing.quarantined(KEY, [refuses, takes])
    assert not standing.quarantined(OTHER, [refuses])
    assert not standing.quarantined(KEY, [down])


# -- times


@given(st.floats(0, 1e6), st.floats(0, 10))
def test_a_status_waits_for_its_time_and_no_longer(last: float, later: float) -> None:
    now = last + later
    assert rest_s(now, last, news=True) <= APART_S
    assert rest_s(now, last, news=False) <= EVERY_S
    assert rest_s(now, last, news=True) <= rest_s(now, last, news=False)
    assert now + rest_s(now, last, news=False) >= last + EVERY_S - 1e-6
    assert rest_s(now, float("-inf"), news=True) == 0


def test_a_stream_asks_at_least_once_a_second() -> None:
    assert not due(10.0, 10.0)
    assert due(10.001 + ASK_EVERY_S, 10.0)
    assert ASK_EVERY_S + LOOK_EVERY_S < 1.0


def test_progress_is_told_sparingly_but_begin_and_end_always() -> None:
    told: list[tuple[str, int, int]] = []
    now = 0.0
    spare = Sparing(lambda *what: told.append(what), lambda: now)
    for done in range(101):
        spare("hash", done, 100)
    spare("copy", 0, 100)
    now = 10.0
    spare("copy", 50, 100)
    spare("copy", 51, 100)
    spare("copy", 100, 100)
    assert told == [
        ("hash", 0, 100), ("hash", 100, 100), ("copy", 0, 100), ("copy", 50, 100), ("copy", 100, 100),
    ]  # fmt: skip


# -- what went wrong


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Failed(error_of(Code.QUEUE_FULL, "x")), "queue_full"),
        (LaneFailed(error_of(Code.OOM, "x")), "oom"),
        (TooManyTokens(9, 3, 1), "too_many_tokens"),
        (MessageError("x"), "bad_request"),
        (NotConnected("x"), "module_restarted"),
        (ZeroDivisionError("a secret"), "inference_failed"),
    ],
)
def test_every_exception_is_one_code_and_tells_no_secret(error: Exception, code: str) -> None:
    found = error_from(error)
    assert found.code == code
    assert "secret" not in found.message
