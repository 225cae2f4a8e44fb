"""What waits for a crank: order, bounds, what may be dropped; against a model, the clock turned by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from bakemesh.crank.backlog import Backlog, Item
from bakemesh.crank.messages import CrankMessage, Entries


def item(n: int, *, kept: bool = False, size: int = 1) -> Item:
    return Item(CrankMessage("T", "t", Entries({}), "s", "n", 0, str(n)), size=size, kept=kept)


def number(found: Item | None) -> int | None:
    return None if found is None else int(found.message.id)


def test_what_is_kept_is_never_dropped_and_the_oldest_of_the_rest_goes_first():
    backlog = Backlog(most=2)
    for n in range(6):
        backlog.put(item(n, kept=n % 3 == 0), now=0.0)
    assert [number(backlog.take(0.0)) for _ in range(5)] == [0, 3, 4, 5, None]
    assert backlog.dropped == 2


def test_bytes_are_a_bound_too_and_the_last_one_stays_however_large():
    backlog = Backlog(most_bytes=10)
    assert backlog.put(item(1, size=4), 0.0) == 0
    assert backlog.put(item(2, size=4), 0.0) == 0
    assert backlog.put(item(3, size=100), 0.0) == 2
    assert number(backlog.take(0.0)) == 3
    assert backlog.bytes == 0


def test_a_delayed_item_comes_at_its_time_among_those_that_came_then():
    backlog = Backlog()
    backlog.put(item(1), now=0.0, after_s=1.0)
    backlog.put(item(2), now=0.5)
    assert backlog.due() == 1.0
    backlog.put(item(3), now=1.5)
    assert [number(backlog.take(1.5)) for _ in range(3)] == [2, 1, 3]
    assert backlog.due() is None


def test_delayed_items_are_bounded_as_well():
    backlog = Backlog(most=3)
    for n in range(10):
        backlog.put(item(n), now=0.0, after_s=10.0 + n)
    assert len(backlog) == 3
    assert [number(backlog.take(99.0)) for _ in range(3)] == [7, 8, 9]


@dataclass
class Model:
    """As slow as can be: one list, in the order of when each may be taken, then of arrival."""

    rows: list[tuple[float, int, Item]] = field(default_factory=list)

    def take(self, now: float) -> Item | None:
        due = sorted((row for row in self.rows if row[0] <= now), key=lambda row: row[:2])
        if not due:
            return None
        self.rows.remove(due[0])
        return due[0][2]


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.booleans(), st.sampled_from([0.0, 0.0, 1.0, 2.5])),
        st.tuples(st.just("take"), st.just(False), st.just(0.0)),
        st.tuples(st.just("pass"), st.just(False), st.sampled_from([0.5, 3.0])),
    ),
    max_size=60,
)


@given(MOVES)
def test_without_a_bound_in_reach_nothing_is_lost_and_the_order_is_by_when_each_may_be_taken(moves):
    backlog, model, now, count = Backlog(), Model(), 0.0, 0
    for move, kept, seconds in moves:
        if move == "pass":
            now += seconds
        elif move == "put":
            count += 1
            backlog.put(item(count, kept=kept), now, seconds)
            model.rows.append((now + seconds, count, item(count, kept=kept)))
        else:
            assert number(backlog.take(now)) == number(model.take(now))
        assert len(backlog) == len(model.rows)
        assert backlog.kept == sum(row[2].kept for row in model.rows)
    assert backlog.dropped == 0


@given(MOVES, st.integers(1, 5))
def test_the_bound_holds_and_all_is_accounted_for(moves, most):
    backlog, now, put, taken = Backlog(most=most), 0.0, 0, 0
    for move, kept, seconds in moves:
        if move == "pass":
            now += seconds
        elif move == "put":
            put += 1
            backlog.put(item(put, kept=kept), now, seconds)
        else:
            taken += backlog.take(now) is not None
        assert len(backlog) - backlog.kept <= most
        assert put == taken + backlog.dropped + len(backlog)
        assert backlog.bytes == len(backlog) - backlog.kept
