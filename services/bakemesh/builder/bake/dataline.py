"""A bake's Data: each chunk gets its seq, is committed, and only then goes out.

Guarantees: seq has no gap and no repeat, over crashes too; waiting in `take` holds the child's pipe (that is
the backpressure); once a chunk was let go, because the bake is cancelled or the Builder stops while there is
no room, every later one is let go too, so that what is stored has no hole. Left out: cutting (see `output`),
the bus.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bakemesh.builder.bake.state import RunStep
from bakemesh.builder.bake.voice import Voice
from bakemesh.builder.journal import Journal
from bakemesh.builder.journal.records import Db, OutRow, save_seq
from bakemesh.builder.outbox import Outbox
from bakemesh.builder.output.cutter import Chunk
from bakemesh.builder.output.step_output import PassedChunk
from bakemesh.protocol.builder.streams import DataGuard
from bakemesh.protocol.errors import IntegrityError
from bakemesh.protocol.identity import Identity

DRAIN_S = 2.0  # a cancelled bake's last output has so long to be stored


class DataLine:
    """The Data of one bake. `broken` hears of a seq that does not follow: the bake must fail."""

    def __init__(
        self,
        journal: Journal,
        outbox: Outbox,
        voice: Voice,
        bake: int,
        identity: Identity,
        *,
        seq: int,
        open_streams: list[str],
        broken: Callable[[IntegrityError], None],
    ) -> None:
        self._journal, self._outbox, self._voice = journal, outbox, voice
        self._bake, self._identity, self._broken = bake, identity, broken
        self._guard = DataGuard(seq)
        self._open = open_streams  # `<stream>` or `<stream> <path>`: wrote, and had no last chunk
        self._taken: Chunk | PassedChunk | None = None
        self._giving_up = False  # do not wait for room any more
        self._shut = False  # a chunk was let go: all later ones are

    @property
    def seq(self) -> int:
        """The last seq that was given."""
        return self._guard.last

    @property
    def held_up(self) -> bool:
        """Whether output waits for room in the node's stream."""
        return self._outbox.writer.full and self._outbox.waiting(self._bake) > 0

    def give_up(self) -> None:
        """What cannot be stored holds nothing up any more: the bake is cancelled, or the Builder stops."""
        self._giving_up = True
        self._outbox.wake()

    async def take(self, run: RunStep, chunk: Chunk | PassedChunk) -> None:
        """The step output's sink. A chunk that was given its seq is never taken twice, cancelled or not."""
        if chunk is self._taken or not await self._room():
            return
        self._taken = chunk
        passed = chunk if isinstance(chunk, PassedChunk) else None
        await self._commit(
            run,
            chunk.stream,
            chunk.data,
            final=chunk.finalchunk,
            partial=chunk.partial,
            aborted=passed is not None and passed.aborted,
            path=passed.path if passed is not None else None,
        )

    async def close_cut(self, run: RunStep) -> None:
        """An empty last chunk, `aborted`, for every stream of the attempt that wrote and has none."""
        for key in self._open:
            if not await self._room():
                return
            stream, _, path = key.partition(" ")
            await self._commit(run, stream, b"", final=True, aborted=True, path=path or None)

    async def _room(self) -> bool:
        if not self._shut and not await self._outbox.room(self._bake, give_up=lambda: self._giving_up):
            self._shut = True
        return not self._shut

    async def _commit(
        self,
        run: RunStep,
        stream: str,
        data: bytes,
        *,
        final: bool,
        partial: bool = False,
        aborted: bool = False,
        path: str | None = None,
    ) -> None:
        # No await between the seq and the commit: the journal keeps the order of the calls.
        seq = self._guard.last + 1
        try:
            self._guard.accept(seq)
        except IntegrityError as error:
            self._broken(error)
            return
        sealed = self._voice.data(
            self._identity,
            seq=seq,
            stepindex=run.index,
            attempt=run.attempt,
            stream=stream,
            data=data,
            finalchunk=final,
            partial=partial,
            aborted=aborted,
            path=path,
        )
        key = stream if path is None else f"{stream} {path}"
        if final:
            self._open = [each for each in self._open if each != key]
        elif key not in self._open:
            self._open = [*self._open, key]
        streams = self._open

        def work(db: Db) -> OutRow:
            save_seq(db, self._bake, seq, streams)
            return self._outbox.insert(db, self._bake, seq, *sealed)

        await self._journal.commit(work, self._outbox.journaled)

    async def settle(self, cancelled: Callable[[], bool]) -> tuple[int, tuple[int, ...]]:
        """Returns when every Data that will be stored is: the last seq, and the outbox rows taken back.

        A bake that is, or meanwhile gets, cancelled takes back what finds no room.
        """
        if not await self._outbox.drained(self._bake, give_up=cancelled):
            if not self._outbox.writer.full:
                await self._drained_soon()
            taken = await self._outbox.discard(self._bake, self._voice.data_subject(self._identity))
            if taken:
                return taken[0].number - 1, tuple(row.n for row in taken)
        return self.seq, ()

    async def _drained_soon(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + DRAIN_S
        late = loop.call_later(DRAIN_S, self._outbox.wake)
        try:
            await self._outbox.drained(
                self._bake, give_up=lambda: self._outbox.writer.full or loop.time() >= deadline
            )
        finally:
            late.cancel()
