"""Whose turn it is: control first, bulk never starves, three to one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bakemesh.synapse.scheduling.asks import BULK, CLASSES, CONTROL, INTERACTIVE
from bakemesh.synapse.scheduling.turns import Turns, after, order

RULES = {"waits_s": 0.25, "most": 3}


def served(waiting_at: list[set[str]], quantum_s: float = 0.01) -> list[str | None]:
    """One lane, a quantum after the other: the classes that got it. Nothing of bulk runs while another
    does."""
    turns, bulk_since, now, found = Turns(), None, 0.0, []
    for waiting in waiting_at:
        bulk_since = (now if bulk_since is None else bulk_since) if BULK in waiting else None
        waited = 0.0 if bulk_since is None else now - bulk_since
        name = next((each for each in order(turns, waited, **RULES) if each in waiting), None)
        now += quantum_s
        if name is not None:
            turns = after(turns, name, bulk_waits=BULK in waiting)
        if name == BULK:
            bulk_since = now
        found.append(name)
    return found


WAITING = st.lists(st.sets(st.sampled_from(CLASSES)), max_size=60)


@given(WAITING)
def test_control_goes_before_everything(waiting):
    for wanted, got in zip(waiting, served(waiting), strict=True):
        assert (got == CONTROL) == (CONTROL in wanted)


@given(WAITING)
def test_a_lane_is_never_left_idle_while_something_waits(waiting):
    for wanted, got in zip(waiting, served(waiting), strict=True):
        assert (got is None) == (not wanted)


@given(st.integers(1, 200))
def test_of_four_quanta_bulk_gets_one_and_interactive_three(count):
    got = served([{BULK, INTERACTIVE}] * count)
    for at in range(count - 3):
        window = got[at : at + 4]
        assert window.count(BULK) == 1


def test_where_quanta_are_long_bulk_that_waited_goes_next_whatever_its_turns():
    got = served([{BULK, INTERACTIVE}] * 12, quantum_s=0.2)
    assert got == [INTERACTIVE, INTERACTIVE, BULK] * 4


def test_after_a_quantum_of_bulk_interactive_is_next_however_long_that_took():
    got = served([{BULK}, {BULK}, {BULK, INTERACTIVE}, {BULK}], quantum_s=60)
    assert got == [BULK, BULK, INTERACTIVE, BULK]


def test_interactive_quanta_count_only_while_bulk_waits():
    assert served([{INTERACTIVE}] * 10 + [{BULK, INTERACTIVE}]) == [INTERACTIVE] * 11
