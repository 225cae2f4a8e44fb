"""StatusLog: order, no repeats, no gaps, bounded memory, whatever the order of arrival."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bakemesh.supervisor.statuslog import StatusLog
from support.bakes import status, success


def serials(log: StatusLog) -> list[int]:
    found = [log.entry(serial) for serial in range(log.base, log.top + 1)]
    return [one.serial for one in found if one is not None]


@given(st.integers(1, 60), st.randoms())
def test_any_order_with_repeats_ends_complete_and_in_order(count: int, random) -> None:
    arriving = [status(serial) for serial in range(1, count)] + [success(count)]
    arriving += random.choices(arriving, k=count)
    random.shuffle(arriving)
    log = StatusLog()
    new = sum(log.offer(one) for one in arriving)
    assert new == count
    assert serials(log) == list(range(1, count + 1))
    assert log.ended
    assert not log.gap


def test_a_missing_serial_is_a_gap_until_it_comes() -> None:
    log = StatusLog()
    log.offer(status(1))
    log.offer(status(3))
    assert log.gap
    assert log.entry(3) is None, "3 must not be shown before 2"
    log.offer(status(2))
    assert not log.gap
    assert serials(log) == [1, 2, 3]


def test_the_latest_is_the_highest_serial_and_history_does_not_replace_it() -> None:
    log = StatusLog()
    log.offer(status(5))
    log.offer(status(2))
    assert log.latest is not None
    assert log.latest.serial == 5


def test_the_terminal_is_known_before_what_is_missing() -> None:
    log = StatusLog()
    log.offer(success(4, lastseq=7))
    assert log.terminal is not None
    assert log.terminal.lastseq == 7
    assert not log.ended
    for serial in (1, 2, 3):
        log.offer(status(serial))
    assert log.ended


def test_nothing_is_taken_behind_the_terminal() -> None:
    log = StatusLog()
    log.offer(status(1))
    log.offer(success(2))
    assert not log.offer(status(3))
    assert log.top == 2
    assert not log.gap


def test_a_success_that_is_not_final_ends_nothing() -> None:
    log = StatusLog()
    log.offer(success(1).model_copy(update={"final": False}))
    assert log.terminal is None


def test_memory_is_bounded_by_the_window() -> None:
    log = StatusLog(window=10)
    for serial in range(1, 101):
        log.offer(status(serial))
    assert (log.base, log.top) == (91, 100)
    assert log.entry(90) is None


def test_memory_is_bounded_ahead_of_a_gap_and_the_gap_is_still_seen() -> None:
    log = StatusLog(ahead=5)
    for serial in range(2, 100):
        log.offer(status(serial))
    log.offer(status(1))
    assert log.top == 6
    assert log.gap, "7 to 99 were seen and are not here"
    for serial in range(1, 100):
        log.offer(status(serial))
    assert log.top == 99
    assert not log.gap


def test_serials_that_the_stream_no_longer_has_are_skipped() -> None:
    log = StatusLog()
    log.offer(status(1))
    log.offer(status(6))
    log.skip_to(5)
    log.offer(status(5))
    assert (log.base, log.top) == (5, 6)
    log.skip_to(3)
    assert log.base == 5, "going back is no skip"
