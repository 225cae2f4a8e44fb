"""The output of a component, read while its shim turns the log over."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from bakemesh.builder.components.output import LogReader, Mark, end_of
from bakemesh.processes import Keeper, ProcessSpec, ShimSpec
from support.processes import PATH, new_marker

WRITER = """
import os, sys
for n in range(int(sys.argv[1])):
    os.write(1, b"%09d\\n" % n)
"""


async def test_every_byte_once_and_in_order_while_a_real_shim_turns_the_log_over(tmp_path: Path) -> None:
    lines = 150_000
    wanted = b"".join(b"%09d\n" % n for n in range(lines))
    async with await Keeper.start(new_marker()) as keeper:
        (tmp_path / "out.log").write_bytes(b"of an instance before\n")
        reader = LogReader(tmp_path, end_of(tmp_path))
        shimmed = await keeper.launch(
            ShimSpec(
                process=ProcessSpec([sys.executable, "-I", "-S", "-c", WRITER, str(lines)], PATH),
                folder=tmp_path,
                instance=new_marker(),
                log_bytes=100_000,
                log_files=1000,
            )
        )
        ending = asyncio.create_task(shimmed.ended())
        got = bytearray()
        while not ending.done():
            for block in reader.read():
                got += block
            await asyncio.sleep(0)
        assert ending.result().code == 0
        for block in reader.read():
            got += block
    assert list(tmp_path.glob("out.log.[0-9]*")), "it was turned over"
    assert reader.lost == 0
    assert bytes(got) == wanted


class Shim:
    """Writes and turns over as the shim does, a stage at a time: copied, cut, renamed."""

    def __init__(self, folder: Path, files: int) -> None:
        self.folder, self.files, self.stage = folder, files, 0
        self.log, self.new = folder / "out.log", folder / "out.log.new"
        self.log.touch()
        self.count, self.length, self.turned = 0, 0, 0

    def write(self, size: int) -> bytes:
        text = bytes((self.count + n) % 251 for n in range(size))
        self.count += size
        with self.log.open("ab") as file:
            file.write(text)
        return text

    def turn(self) -> None:
        """The next stage of turning the front over."""
        if self.stage == 0:
            self.length = self.log.stat().st_size // 2
            if not self.length:
                return
            self.new.write_bytes(self.log.read_bytes()[: self.length])
            # No two copies are of one time, as on a real clock.
            self.turned += 1
            os.utime(self.new, ns=(self.turned, self.turned))
        elif self.stage == 1:
            rest = self.log.read_bytes()[self.length :]
            with self.log.open("r+b") as file:  # the same inode
                file.write(rest)
                file.truncate()
        else:
            for number in range(self.files, 0, -1):
                newer = self.folder / f"out.log.{number - 1}" if number > 1 else self.new
                if newer.exists():
                    newer.replace(self.folder / f"out.log.{number}")
        self.stage = (self.stage + 1) % 3


@given(
    st.lists(st.one_of(st.integers(1, 60), st.just("turn"), st.just("read")), max_size=60), st.integers(0, 40)
)
@settings(max_examples=150, deadline=None)
def test_wherever_it_is_read_between_the_stages_nothing_is_lost_or_repeated(
    moves: list[int | str], before: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shim = Shim(folder, files=100)
        shim.write(before)
        reader = LogReader(folder, end_of(folder))
        wanted, got = b"", b""
        for move in moves:
            if isinstance(move, int):
                wanted += shim.write(move)
            elif move == "turn":
                shim.turn()
            else:
                got += b"".join(reader.read())
                assert wanted.startswith(got)
        while shim.stage:
            shim.turn()
        got += b"".join(reader.read())
        assert got == wanted
        assert reader.lost == 0


def test_a_reader_that_was_outrun_goes_on_with_what_is_there_and_counts(tmp_path: Path) -> None:
    shim = Shim(tmp_path, files=1)
    shim.write(100)
    reader = LogReader(tmp_path, Mark())
    assert len(b"".join(reader.read())) == 100
    with (tmp_path / "out.log").open("r+b") as file:
        file.truncate(0)  # there was no room for a copy
    assert b"".join(reader.read()) == b""
    assert reader.lost == 100
    text = shim.write(10)
    assert b"".join(reader.read()) == text


def test_no_log_is_no_output(tmp_path: Path) -> None:
    reader = LogReader(tmp_path / "nobody", end_of(tmp_path / "nobody"))
    assert list(reader.read()) == []
