"""A component's output, turned over while it writes: nothing is lost where the front can be cut off."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

import pytest

from bakemesh.keeper import kernel
from bakemesh.processes import Keeper
from support.disks import small_disk
from support.processes import Components, new_marker
from support.waiting import eventually

WRITER = """
import os, sys
for n in range(int(sys.argv[1])):
    os.write(1 + n % 2, b"%09d\\n" % n)
"""
PYTHON = [sys.executable, "-I", "-S", "-c", WRITER]


def cuts_fronts(folder: Path) -> bool:
    """Whether the file system can take the front off a file."""
    fd = os.open(folder / "probe", os.O_RDWR | os.O_CREAT)
    try:
        block = os.fstatvfs(fd).f_bsize
        os.write(fd, b"x" * (2 * block))
        kernel.cut_front(fd, block)
    except OSError:
        return False
    finally:
        os.close(fd)
        (folder / "probe").unlink()
    return True


def joined(folder: Path) -> bytes:
    """All that is kept, oldest first."""
    older = sorted(folder.glob("out.log.[0-9]*"), key=lambda path: -int(path.suffix[1:]))
    return b"".join(path.read_bytes() for path in [*older, folder / "out.log"])


async def test_output_that_is_turned_over_under_load_is_whole_and_in_order(tmp_path: Path) -> None:
    if not cuts_fronts(tmp_path):
        pytest.skip("this file system cannot take the front off a file")
    lines = 200_000
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        spec = components.spec([*PYTHON, str(lines)], log_bytes=100_000, log_files=1000)
        shimmed = await keeper.launch(spec)
        assert (await shimmed.ended()).code == 0
        assert joined(spec.folder) == b"".join(b"%09d\n" % n for n in range(lines))
        older = list(spec.folder.glob("out.log.[0-9]*"))
        assert older
        assert {path.stat().st_size % 4096 for path in older} == {0}


async def test_where_fronts_cannot_be_cut_lines_are_lost_but_never_doubled_or_out_of_order(
    tmp_path: Path,
) -> None:
    lines = 200_000
    with small_disk(tmp_path / "disk", "64M") as disk:
        if cuts_fronts(disk):
            pytest.skip("this tmpfs can take the front off a file")
        async with Components(disk) as components, await Keeper.start(new_marker()) as keeper:
            spec = components.spec([*PYTHON, str(lines)], log_bytes=100_000, log_files=1000)
            shimmed = await keeper.launch(spec)
            assert (await shimmed.ended()).code == 0
            text = joined(spec.folder)
            files = len(list(spec.folder.glob("out.log.[0-9]*")))
    assert files > 0
    # A write that comes between the last read and the emptying is lost, whole: writes are atomic to both.
    found = [int(line) for line in text.split()]
    assert all(before < after for before, after in itertools.pairwise(found))
    assert len(found) > lines // 2


async def test_no_more_files_are_kept_than_wanted_and_the_newest_lines_are_there(tmp_path: Path) -> None:
    lines = 100_000
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        spec = components.spec([*PYTHON, str(lines)], log_bytes=50_000, log_files=2)
        shimmed = await keeper.launch(spec)
        await shimmed.ended()
        assert {path.name for path in spec.folder.glob("out.log*")} == {"out.log", "out.log.1", "out.log.2"}
        text = joined(spec.folder)
        expected = b"".join(b"%09d\n" % n for n in range(lines))
        assert expected.endswith(text) or not cuts_fronts(tmp_path)
        none = components.spec([*PYTHON, str(lines)], "none", log_bytes=50_000, log_files=0)
        await (await keeper.launch(none)).ended()
        assert [path.name for path in none.folder.glob("out.log*")] == ["out.log"]
        assert (none.folder / "out.log").stat().st_size < lines * 10


async def test_output_goes_on_where_it_was_across_instances(tmp_path: Path) -> None:
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        for word in ("one", "two"):
            await (await keeper.launch(components.spec(["echo", word]))).ended()
        assert components.text() == "one\ntwo\n"


async def test_a_quiet_log_is_turned_over_too_when_it_grows(tmp_path: Path) -> None:
    script = "until [ -e go ]; do sleep 0.02; done; seq 1 30000; until [ -e end ]; do sleep 0.02; done"
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        spec = components.spec(["sh", "-c", script], log_bytes=20_000)
        shimmed = await keeper.launch(spec)
        (spec.folder / "go").touch()
        await eventually(lambda: (spec.folder / "out.log.3").exists() or (spec.folder / "out.log.1").exists())
        await eventually(lambda: (spec.folder / "out.log").stat().st_size <= 20_000)
        (spec.folder / "end").touch()
        assert (await shimmed.ended()).code == 0


async def test_what_cannot_be_copied_is_not_cut_off_and_harms_nobody(tmp_path: Path) -> None:
    """A folder in the place of the copy."""
    script = "seq 1 30000; until [ -e end ]; do sleep 0.02; done; exit 7"
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        spec = components.spec(["sh", "-c", script], log_bytes=20_000)
        blocking = spec.folder / "out.log.new"
        blocking.mkdir()
        (blocking / "full").touch()
        shimmed = await keeper.launch(spec)
        expected = "".join(f"{n}\n" for n in range(1, 30_001))
        await eventually(lambda: components.text() == expected)
        (blocking / "full").unlink()
        blocking.rmdir()
        await eventually(lambda: (spec.folder / "out.log.1").exists())
        # Until the copied part is cut off it is there twice.
        await eventually(lambda: expected.encode().endswith(joined(spec.folder)))
        (spec.folder / "end").touch()
        assert (await shimmed.ended()).code == 7
