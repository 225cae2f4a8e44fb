"""The memory of what was seen: nothing that could be repeated is forgotten, and it does not grow."""

from __future__ import annotations

import psutil
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.axon.seen import Entry, Novelty, Seen, entry_of
from bakemesh.protocol.axon.freshness import Window

WINDOW = Window()
NOW = 1_796_076_058_520_235_656
SECOND = 1_000_000_000


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),  # seconds that pass
            st.sampled_from(["alice", "bob"]),
            st.sampled_from(["u", "v"]),
            st.integers(-2_000, 10_000),  # age of the nonce, ms
        ),
        max_size=60,
    )
)
def test_a_fresh_nonce_is_new_once(steps: list[tuple[int, str, str, int]]) -> None:
    seen, now, had = Seen(WINDOW, 10_000, 10_000), NOW, set[tuple[str, str, int]]()
    for passed, hotkey, uuid, age_ms in steps:
        now += passed * SECOND
        nonce = (now // SECOND) * SECOND - age_ms * 1_000_000
        if WINDOW.problem(nonce, now) is not None:
            continue
        key = (hotkey, uuid, nonce)
        expected = Novelty.SEEN if key in had else Novelty.NEW
        assert seen.record(entry_of(*key), now) is expected
        assert seen.known(entry_of(*key))
        had.add(key)


def test_the_three_parts_cannot_be_moved_from_one_into_another() -> None:
    assert entry_of("ab", "c", 1).key != entry_of("a", "bc", 1).key
    assert entry_of("a", "1\0", 2).key != entry_of("a", "", 2).key
    assert entry_of("a", "b", NOW) == entry_of("a", "b", NOW)


def test_milliseconds_and_nanoseconds_are_remembered_for_as_long() -> None:
    seen = Seen(WINDOW, 100, 100)
    milliseconds = entry_of("a", "u", NOW // 1_000_000)
    assert seen.record(milliseconds, NOW) is Novelty.NEW
    assert seen.record(milliseconds, NOW + 9 * SECOND) is Novelty.SEEN


def test_what_is_stale_is_forgotten_and_its_client_too() -> None:
    seen = Seen(WINDOW, 100, 2)
    for number in range(2):
        assert seen.record(entry_of("a", str(number), NOW), NOW) is Novelty.NEW
    assert seen.record(entry_of("a", "2", NOW), NOW) is Novelty.CLIENT_FULL
    later = NOW + 20 * SECOND
    for number in range(2):
        assert seen.record(entry_of("a", str(number), later), later) is Novelty.NEW
    assert len(seen) == 2


def test_what_does_not_fit_is_not_let_in_and_nothing_is_forgotten_for_it() -> None:
    seen = Seen(WINDOW, 2, 2)
    first = entry_of("a", "u", NOW)
    assert seen.record(first, NOW) is Novelty.NEW
    assert seen.record(entry_of("b", "u", NOW), NOW) is Novelty.NEW
    assert seen.record(entry_of("c", "u", NOW), NOW) is Novelty.FULL
    assert seen.record(first, NOW) is Novelty.SEEN
    assert seen.record(entry_of("c", "u", NOW), NOW) is Novelty.FULL


def test_a_million_hotkeys_take_no_more_memory_than_the_limit() -> None:
    seen = Seen(WINDOW, 5_000, 100)
    begun = 0
    for number in range(1_000_000):
        now = NOW + number * 10_000_000  # a hundred a second
        key = number.to_bytes(16, "big")
        assert seen.record(Entry(key[8:], key, now), now) is Novelty.NEW
        if number == 10_000:
            begun = psutil.Process().memory_info().rss
    assert len(seen) <= 1_200
    assert psutil.Process().memory_info().rss - begun < 8 << 20


def test_entries_give_back_what_was_recorded() -> None:
    seen, again = Seen(WINDOW, 100, 100), Seen(WINDOW, 100, 100)
    recorded = [
        entry_of(hotkey, uuid, NOW - age * SECOND) for hotkey in "ab" for uuid in "uv" for age in (0, 3)
    ]
    for entry in recorded:
        seen.record(entry, NOW)
    for entry in seen.entries():
        again.restore(entry, NOW)
    assert len(again) == len(seen) == len(recorded)
    assert all(again.record(entry, NOW) is Novelty.SEEN for entry in recorded)
