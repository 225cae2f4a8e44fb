"""Replays the output of a bake from its stream, byte for byte and integrity checked: all of it where the
bake has ended, what is stored so far where it runs; --follow goes on to the end."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from bakemesh.cli import link
from bakemesh.cli.call import Call
from bakemesh.cli.exits import Exit, usage
from bakemesh.cli.output import Writer
from bakemesh.cli.progress import Lines
from bakemesh.cli.verbs.control import add_bake
from bakemesh.protocol.numerals import whole

if TYPE_CHECKING:
    from bakemesh.protocol.builder.messages import BakeData
    from bakemesh.supervisor import Bake, Supervisor

EXAMPLE = "  bakemesh logs nightly-index-7 --step fetch --stream stderr"
NAMES_S = 5.0


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("--follow", action="store_true", help="go on until the bake ends")
    parser.add_argument("--step", metavar="NAME", help="of this step alone, by name or index (from 0)")
    parser.add_argument("--stream", choices=("stdout", "stderr"), help="of this stream alone")
    add_bake(parser)


def run(call: Call) -> int:
    """Prints it."""
    return link.run(_logs(call))


async def _logs(call: Call) -> int:
    async with link.attached(call, call.args.recipe_id) as (supervisor, bake):
        steps = _Steps(bake, call.args.step)
        writer = Writer(call.screen, Lines(call.screen), call.args.stream)
        whole = call.args.follow or bake.terminal is not None
        async for chunk in bake.data() if whole else _stored(supervisor, bake):
            if await steps.wanted(chunk.stepindex):
                await writer.write(chunk)
        await steps.check()
    return Exit.DONE


async def _stored(supervisor: Supervisor, bake: Bake) -> AsyncIterator[BakeData]:
    """What the stream holds now. Raises IntegrityError."""
    from bakemesh.bus.errors import NotFound
    from bakemesh.protocol.builder.streams import DataGuard, Verdict

    guard = DataGuard()
    try:
        async for chunk, _ in supervisor.streams.data(bake.identity, 1, "last"):
            if chunk is not None and guard.accept(chunk.seq) is Verdict.NEW:
                yield chunk
    except NotFound:
        return  # a node that has not stored anything yet


class _Steps:
    """Which steps are wanted. A step's name stands in its Status, which is read as far as it is needed."""

    def __init__(self, bake: Bake, wanted: str | None) -> None:
        self._wanted = wanted
        self._index = None if wanted is None else whole(wanted)
        self._status = bake.status()
        self._names: dict[int, str] = {}
        self._found = False

    async def wanted(self, index: int) -> bool:
        """Whether output of this step is."""
        if self._wanted is None:
            return True
        if self._index is not None:
            found = index == self._index
        else:
            await self._read_to(index)
            found = self._names.get(index) == self._wanted
        self._found |= found
        return found

    async def _read_to(self, index: int) -> None:
        try:
            async with asyncio.timeout(NAMES_S):
                while index not in self._names:
                    status = await anext(self._status)
                    if status.stepindex is not None and status.step:
                        self._names[status.stepindex] = status.step
        except (TimeoutError, StopAsyncIteration):
            return

    async def check(self) -> None:
        """Raises Stopped where a step was asked for that the bake has not."""
        if self._wanted is None or self._found or self._index is not None:
            return
        if self._wanted not in self._names.values():
            known = ", ".join(self._names.values()) or "none that wrote anything"
            raise usage(f"no output of a step {self._wanted!r}; steps with output: {known}")
