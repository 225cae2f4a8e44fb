"""Nonces: milliseconds and nanoseconds told apart by magnitude, and the one window of all profiles."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.protocol.axon.freshness import AHEAD_MS, BACK_MS, Window, in_ns

START = int(datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC).timestamp())
END = int(datetime.datetime(2500, 1, 1, tzinfo=datetime.UTC).timestamp())
SECONDS = st.integers(START, END)
WINDOW = Window()


@given(SECONDS, st.integers(0, 999_999_999))
def test_both_units_are_told_apart_for_five_centuries(second: int, rest: int) -> None:
    ns = second * 10**9 + rest
    assert in_ns(ns) == ns
    assert in_ns(ns // 1_000_000) == ns - ns % 1_000_000


@given(SECONDS, st.integers(-60_000, 60_000), st.booleans())
def test_the_window_in_either_unit(second: int, age_ms: int, ms: bool) -> None:
    now = second * 10**9
    nonce = (now - age_ms * 10**6) // (10**6 if ms else 1)
    fresh = -AHEAD_MS <= age_ms <= BACK_MS
    assert (WINDOW.problem(nonce, now) is None) is fresh


@given(SECONDS)
def test_seconds_and_microseconds_are_never_fresh(second: int) -> None:
    for nonce in (second, second * 10**6):
        assert WINDOW.problem(nonce, second * 10**9) is not None


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_any_nonce_has_an_answer_of_bounded_length(nonce: int, now: int) -> None:
    assert len(WINDOW.problem(nonce, now) or "") < 100


def test_the_words_say_how_old_and_what_is_allowed() -> None:
    now = START * 10**9
    assert WINDOW.problem(now - 12_500_000_000, now) == "Nonce is too old: 12.50 s, 10 s are allowed"
    assert WINDOW.problem(now + 3_000_000_000, now) == "Nonce is 3.00 s ahead, 2 s are allowed"


@given(st.integers(0, 60_000), st.integers(0, 60_000), st.integers(0, 10**11), st.integers(0, 10**11))
def test_what_was_forgotten_is_no_longer_fresh(back: int, ahead: int, seen: int, later: int) -> None:
    """`life_ns` after it was first taken, a nonce is outside the window, wherever in it it had been."""
    window = Window(back, ahead)
    nonce = 2 * 10**18
    first = nonce - ahead * 10**6 + seen
    if window.problem(nonce, first) is not None:
        return
    again = first + window.life_ns + 1 + later
    assert window.problem(nonce, again) is not None


def test_a_window_of_ones_own() -> None:
    window = Window(back_ms=0, ahead_ms=0)
    assert window.problem(10**18, 10**18) is None
    assert window.problem(10**18, 10**18 + 1_000_000) is not None
    assert window.problem(10**18, 10**18 - 1_000_000) is not None


@pytest.mark.parametrize("nonce", [0, 1, 10**15 - 1])
def test_below_the_border_it_is_milliseconds(nonce: int) -> None:
    assert in_ns(nonce) == nonce * 10**6
    assert in_ns(10**15) == 10**15
