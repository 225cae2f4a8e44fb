"""What is written down can be read after any end, also one in the middle of a record."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from bakemesh.axon.journal import RECORD, Journal
from bakemesh.axon.replay import Replay
from bakemesh.axon.seen import Entry, Novelty, entry_of
from bakemesh.protocol.axon.freshness import Window

WINDOW = Window()
NOW = 1_796_076_058_520_235_656
SECOND = 1_000_000_000


def entries(number: int) -> list[Entry]:
    return [entry_of(f"hotkey {n}", "u", NOW) for n in range(number)]


def begun(folder: Path) -> Journal:
    journal = Journal(folder, WINDOW).open()
    journal.begin([], NOW)
    return journal


@pytest.mark.parametrize("cut", range(1, RECORD))
def test_a_record_that_is_half_there_is_passed_over(tmp_path: Path, cut: int) -> None:
    journal = begun(tmp_path)
    for entry in entries(3):
        journal.write(entry)
    journal.close()
    os.truncate(tmp_path / "seen-0", 3 * RECORD - cut)
    again = Journal(tmp_path, WINDOW).open()
    assert list(again.read()) == entries(2)
    again.close()


def test_both_files_are_read(tmp_path: Path) -> None:
    journal = begun(tmp_path)
    first, second = entries(2)
    journal.write(first)
    assert not journal.due(NOW + 12 * SECOND)
    assert journal.due(NOW + 14 * SECOND)
    journal.turn([], NOW + 14 * SECOND)
    journal.write(second)
    journal.close()
    again = Journal(tmp_path, WINDOW).open()
    assert list(again.read()) == [first, second]
    again.close()


def test_after_a_crash_at_any_moment_of_the_beginning_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = begun(tmp_path)
    journal.write(entries(1)[0])
    journal.close()
    for broken in ("replace", "write"):
        replay = Replay(WINDOW, 100, 100, tmp_path)
        with monkeypatch.context() as failing:
            failing.setattr(os, broken, _fails)
            with pytest.raises(OSError, match="crash"):
                replay.open(NOW)
    replay = Replay(WINDOW, 100, 100, tmp_path)
    replay.open(NOW)
    assert replay.record(entries(1)[0], NOW) is Novelty.SEEN
    replay.close()


def _fails(*_: object) -> int:
    raise OSError("crash")


def test_a_full_disk_leaves_no_half_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = begun(tmp_path)
    first, second, third = entries(3)
    journal.write(first)
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda file, data: write(file, bytes(data)[:5]))
        with pytest.raises(OSError, match="no room"):
            journal.write(second)
    journal.write(third)
    journal.close()
    again = Journal(tmp_path, WINDOW).open()
    assert list(again.read()) == [first, third]
    again.close()


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("ahead_s", [13, 60, 3600, 10**8])
def test_a_clock_that_was_ahead_and_is_set_back_lets_nothing_in_twice(
    tmp_path: Path, ahead_s: int, restarted: bool
) -> None:
    replay = Replay(WINDOW, 100, 100, tmp_path)
    replay.open(NOW)
    before, within = entry_of("a", "u", NOW), entry_of("b", "u", NOW + ahead_s * SECOND)
    assert replay.record(before, NOW) is Novelty.NEW
    for passed in range(0, 60, 5):  # the clock is ahead for a minute: all is forgotten, files take turns
        now = NOW + (ahead_s + passed) * SECOND
        assert replay.record(entry_of("b", "u", now), now) is Novelty.NEW
    for now in (NOW + SECOND, NOW + 30 * SECOND, NOW + 60 * SECOND, NOW + ahead_s * SECOND):
        if restarted:
            replay.close()
            replay = Replay(WINDOW, 100, 100, tmp_path)
            replay.open(now)
        replay.record(entry_of("c", str(now), now), now)
        assert replay.record(before, now) is not Novelty.NEW
        assert replay.record(within, now) is not Novelty.NEW
    now = NOW + (ahead_s + 60) * SECOND  # it was there before: from here on all is as it was
    assert replay.record(entry_of("d", "u", now), now) is Novelty.NEW
    replay.close()


def test_what_was_seen_while_the_clock_was_ahead_stays_on_the_disk_however_files_take_turns(
    tmp_path: Path,
) -> None:
    replay = Replay(WINDOW, 1000, 1000, tmp_path)
    replay.open(NOW)
    ahead = entry_of("a", "u", NOW + 120 * SECOND)
    assert replay.record(ahead, NOW + 120 * SECOND) is Novelty.NEW
    for passed in range(0, 115, 5):
        replay.record(entry_of("b", str(passed), NOW + passed * SECOND), NOW + passed * SECOND)
    replay.close()
    again = Replay(WINDOW, 1000, 1000, tmp_path)
    again.open(NOW + 115 * SECOND)
    assert again.record(ahead, NOW + 119 * SECOND) is Novelty.SEEN
    again.close()


def test_lower_limits_forget_nothing_that_was_written(tmp_path: Path) -> None:
    replay = Replay(WINDOW, 100, 100, tmp_path)
    replay.open(NOW)
    seen = [entry_of("a", str(number), NOW) for number in range(50)]
    assert all(replay.record(each, NOW) is Novelty.NEW for each in seen)
    replay.close()
    again = Replay(WINDOW, 10, 5, tmp_path)
    again.open(NOW)
    assert all(again.record(each, NOW) is Novelty.SEEN for each in seen)
    again.close()


def test_garbage_is_told_and_lets_nothing_in(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "seen-0").write_bytes(random.Random(1).randbytes(300 * RECORD))
    replay = Replay(WINDOW, 100, 100, tmp_path)
    replay.open(NOW)
    assert "more than a day ahead" in caplog.text
    assert str(tmp_path) in caplog.text
    assert replay.record(entry_of("a", "u", NOW), NOW) is Novelty.FULL  # kept, whatever it may be
    replay.close()
