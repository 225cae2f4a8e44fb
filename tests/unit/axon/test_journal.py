"""What is written down can be read after any end, also one in the middle of a record."""

from __future__ import annotations

import os
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
        journal.write(entry, NOW)
    journal.close()
    os.truncate(tmp_path / "seen-0", 3 * RECORD - cut)
    again = Journal(tmp_path, WINDOW).open()
    assert list(again.read()) == entries(2)
    again.close()


def test_both_files_are_read(tmp_path: Path) -> None:
    journal = begun(tmp_path)
    first, second = entries(2)
    journal.write(first, NOW)
    journal.write(second, NOW + 14 * SECOND)
    journal.close()
    again = Journal(tmp_path, WINDOW).open()
    assert list(again.read()) == [first, second]
    again.close()


def test_after_a_crash_at_any_moment_of_the_beginning_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = begun(tmp_path)
    journal.write(entries(1)[0], NOW)
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
    journal.write(first, NOW)
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda file, data: write(file, bytes(data)[:5]))
        with pytest.raises(OSError, match="no room"):
            journal.write(second, NOW)
    journal.write(third, NOW)
    journal.close()
    again = Journal(tmp_path, WINDOW).open()
    assert list(again.read()) == [first, third]
    again.close()
