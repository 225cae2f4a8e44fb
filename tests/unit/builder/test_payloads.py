"""Large payloads in files: there before their row, told from what a power cut left, gone with it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from bakemesh.builder.journal import payloads
from bakemesh.builder.journal.payloads import Payloads, Place

IDS = [os.urandom(16).hex() for _ in range(40)]


def envelope(number: int, size: int = 1000) -> bytes:
    """Bytes that hold their id near their begin, as an envelope does."""
    return (b"begin" + bytes.fromhex(IDS[number])).ljust(size, bytes([number]))


def files(folder: Path) -> list[str]:
    return sorted(os.listdir(folder)) if folder.exists() else []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal.payloads"


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "FILE_BYTES", 4000)
    monkeypatch.setattr(payloads, "KEPT_BYTES", 500)


def test_what_is_kept_is_there_for_another_process(folder: Path) -> None:
    kept = Payloads(folder)
    places = [kept.keep(envelope(n, 100 + n), IDS[n]) for n in range(20)]
    again = Payloads(folder)
    assert [again.load(place, IDS[n]) for n, place in enumerate(places)] == [
        envelope(n, 100 + n) for n in range(20)
    ]


@pytest.mark.usefixtures("small_files")
def test_a_new_life_never_writes_on_an_old_file(folder: Path) -> None:
    first = Payloads(folder).keep(envelope(0), IDS[0])
    second = Payloads(folder).keep(envelope(1), IDS[1])
    assert second.file > first.file
    assert Payloads(folder).load(first, IDS[0]) == envelope(0)


@pytest.mark.usefixtures("small_files")
def test_files_go_with_their_last_row_and_not_before(folder: Path) -> None:
    kept = Payloads(folder)
    places = [kept.keep(envelope(n), IDS[n]) for n in range(10)]
    numbers = sorted({place.file for place in places})
    assert len(numbers) == 4
    kept.tidy(places[0].file)
    assert len(files(folder)) == 4
    kept.tidy(places[5].file)
    assert [int(name) for name in files(folder)] == [number for number in numbers if number >= places[5].file]
    assert kept.load(places[5], IDS[5]) == envelope(5)
    kept.tidy(None)
    assert files(folder) == []
    later = kept.keep(envelope(11), IDS[11])
    assert kept.load(later, IDS[11]) == envelope(11)


def test_a_file_of_little_is_written_on(folder: Path) -> None:
    kept = Payloads(folder)
    first = kept.keep(envelope(0), IDS[0])
    kept.tidy(None)
    second = kept.keep(envelope(1), IDS[1])
    assert second.file == first.file
    assert kept.load(second, IDS[1]) == envelope(1)


@pytest.mark.usefixtures("small_files")
def test_a_start_without_rows_removes_all(folder: Path) -> None:
    kept = Payloads(folder)
    for n in range(10):
        kept.keep(envelope(n), IDS[n])
    kept.close()
    Payloads(folder).tidy(None)
    assert files(folder) == []


def test_what_is_not_whole_is_told(folder: Path) -> None:
    kept = Payloads(folder)
    places = [kept.keep(envelope(n), IDS[n]) for n in range(3)]
    path = folder / files(folder)[0]
    whole = path.read_bytes()
    assert kept.load(places[1], IDS[2]) is None  # another's
    assert kept.load(Place(places[0].file, places[0].offset, 999), IDS[0]) is None
    assert kept.load(Place(99, 0, 1000), IDS[0]) is None
    path.write_bytes(whole[:-1])
    assert kept.load(places[1], IDS[1]) == envelope(1)
    assert kept.load(places[2], IDS[2]) is None
    path.write_bytes(bytes(len(whole)))  # long enough, nothing of it written
    assert kept.load(places[0], IDS[0]) is None


def test_a_disk_without_room_keeps_nothing_and_is_tried_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Payloads(folder)
    first = kept.keep(envelope(0), IDS[0])
    real, room = os.pwritev, [300, 0]

    def little_room(fd: int, pieces: list[bytes], offset: int) -> int:
        size = room.pop(0)
        return real(fd, [b"".join(pieces)[:size]], offset) if size else 0

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwritev", little_room)
        with pytest.raises(OSError, match="No space") as caught:
            kept.keep(envelope(1), IDS[1])
    assert caught.value.errno == errno.ENOSPC
    second = kept.keep(envelope(2), IDS[2])
    assert kept.load(first, IDS[0]) == envelope(0)
    assert kept.load(second, IDS[2]) == envelope(2)


def test_short_writes_are_gone_on_with(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev

    def short(fd: int, pieces: list[bytes], offset: int) -> int:
        return real(fd, [b"".join(pieces)[:333]], offset)

    monkeypatch.setattr(os, "pwritev", short)
    kept = Payloads(folder)
    places = [kept.keep(envelope(n), IDS[n]) for n in range(3)]
    assert [kept.load(place, IDS[n]) for n, place in enumerate(places)] == [envelope(n) for n in range(3)]


@pytest.mark.usefixtures("small_files")
def test_durable_ones_are_synced_when_they_are_left_and_when_asked(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    kept = Payloads(folder, durable=True)
    for n in range(4):
        kept.keep(envelope(n), IDS[n])
    assert len(synced) == 1  # the first file, before the second was begun
    kept.sync()
    kept.sync()
    assert len(synced) == 2
