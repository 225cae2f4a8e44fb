"""Suspects and poison, by digest, for a time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bakemesh.workerpool.strikes import MOST, Strikes


def test_poison_is_refused_for_a_quarter_of_an_hour_and_then_forgotten():
    strikes = Strikes()
    strikes.note("a", 10.0, poison=True)
    assert strikes.poison_for("a", 11.0) == 899.0
    assert strikes.poison_for("b", 11.0) is None
    assert strikes.poison_for("a", 910.0) is None
    strikes.forget(910.0)
    assert not strikes


def test_a_suspect_is_not_refused_and_is_cleared_by_a_good_run():
    strikes = Strikes()
    strikes.note("a", 0.0, poison=False)
    assert strikes.suspect("a", 1.0)
    assert strikes.poison_for("a", 1.0) is None
    strikes.clear("a")
    assert not strikes.suspect("a", 1.0)


def test_poison_stays_poison_when_it_is_suspected_again():
    strikes = Strikes()
    strikes.note("a", 0.0, poison=True)
    strikes.note("a", 5.0, poison=False)
    assert strikes.poison_for("a", 6.0) == 899.0


@given(st.integers(1, 50))
def test_memory_is_bounded_and_the_oldest_goes_first(more):
    strikes = Strikes()
    for number in range(MOST + more):
        strikes.note(str(number), float(number) / MOST, poison=True)
    assert len(strikes._noted) == MOST
    assert not strikes.suspect(str(more - 1), 1.0)
    assert strikes.suspect(str(more), 1.0)
