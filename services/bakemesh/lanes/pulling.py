"""Artifacts that this host lacks, from the module that has them: piece by piece, verified before any worker
sees them.

Guarantees: one pull of an artifact at a time, whoever waits for it; it goes on where nobody does any more,
for the next who asks; every wait has an end. Left out: what is pulled when, and letting go of it.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from bakemesh.artifacts import ArtifactBroken, Cache, Receiver
from bakemesh.bus import Bus
from bakemesh.bus.errors import BusError
from bakemesh.protocol import subjects
from bakemesh.protocol.errors import NameRefused
from bakemesh.protocol.inference.answers import Chunk, Error
from bakemesh.protocol.inference.errors import Code, ErrorObject, error_of
from bakemesh.protocol.inference.requests import Artifact

log = logging.getLogger(__name__)
AT_ONCE: Final = 4  # pieces on their way
PIECE_S: Final = 10.0
TRIES: Final = 4
PAUSES_S: Final = (0.2, 1.0, 2.0)


class PullFailed(Exception):
    """Raised when an artifact cannot be had; `error` is what the asker is told."""

    def __init__(self, error: ErrorObject) -> None:
        super().__init__(error.message)
        self.error = error


class Puller:
    """Of one lane host."""

    def __init__(self, bus: Bus, cache: Cache) -> None:
        self._bus, self._cache = bus, cache
        self._pulls: dict[str, asyncio.Task[Path]] = {}

    def pull(self, digest: str, size: int | None, node_id: str) -> asyncio.Task[Path]:
        """The pull of this artifact, which is under way already, or begins. Its result is the path; it raises
        PullFailed. To be waited for with `asyncio.wait`: others wait for it too."""
        task = self._pulls.get(digest)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._pull(digest, size, node_id))
            self._pulls[digest] = task
            task.add_done_callback(lambda ended: self._over(digest, ended))
        return task

    async def close(self) -> None:
        """Gives up what is under way."""
        tasks = list(self._pulls.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _over(self, digest: str, task: asyncio.Task[Path]) -> None:
        del self._pulls[digest]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("%s was not pulled: %s", digest, error)

    async def _pull(self, digest: str, size: int | None, node_id: str) -> Path:
        try:
            subject = subjects.build(
                self._bus.mesh, node_id, self._bus.settings.party, subjects.NO_KEY, Artifact.TYPE
            )
        except NameRefused as error:
            raise PullFailed(error_of(Code.BAD_REQUEST, f"artifactnode: {error}")) from error
        try:
            return await self._fetch(subject, digest, size)
        except ArtifactBroken as error:
            raise PullFailed(error_of(Code.ARTIFACT_INVALID, f"from node {node_id}: {error}")) from error
        except BusError as error:
            said = f"artifact {digest} did not come from node {node_id}: {error}"
            raise PullFailed(error_of(Code.MODEL_LOADING, said)) from error
        except OSError as error:
            said = f"artifact {digest} cannot be kept in {self._cache.folder}: {error.strerror}"
            raise PullFailed(error_of(Code.MODEL_LOADING, said)) from error

    async def _fetch(self, subject: str, digest: str, size: int | None) -> Path:
        piece = self._bus.max_payload // 2
        first = await self._piece(subject, digest, 0, piece)
        total = first.total
        if size is not None and total != size:
            raise ArtifactBroken(f"{digest}: it has {total} bytes there, {size} were told")
        receiver = await asyncio.to_thread(self._cache.receive, digest, total)
        try:
            await asyncio.to_thread(receiver.write, 0, first.data)
            offsets = iter(range(len(first.data), total, piece))

            async def fill() -> None:
                for offset in offsets:
                    await self._fill(subject, receiver, offset, min(offset + piece, total), total)

            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(fill())
            return await asyncio.to_thread(receiver.finish)
        except BaseExceptionGroup as group_error:
            raise _first(group_error) from None
        finally:
            receiver.abandon()

    async def _fill(self, subject: str, receiver: Receiver, begin: int, end: int, total: int) -> None:
        while begin < end:
            chunk = await self._piece(subject, receiver.digest, begin, end - begin)
            if not chunk.data or chunk.total != total:
                raise ArtifactBroken(f"{receiver.digest}: it changed while it was pulled")
            await asyncio.to_thread(receiver.write, begin, chunk.data)
            begin += len(chunk.data)

    async def _piece(self, subject: str, digest: str, offset: int, length: int) -> Chunk:
        """One piece, asked for again where the bus loses it. Raises PullFailed, ArtifactBroken, BusError."""
        wanted = Artifact(digest=digest, offset=offset, length=length)
        for last, pause in zip((False,) * (TRIES - 1) + (True,), (*PAUSES_S, 0.0), strict=True):
            try:
                found = (await self._bus.request(subject, wanted, PIECE_S)).message
                break
            except BusError as error:
                if last:
                    raise
                log.info("%s at %d: %s; once more", digest, offset, error)
                await asyncio.sleep(pause)
        if isinstance(found, Error):
            raise PullFailed(found.value())
        if not isinstance(found, Chunk) or found.offset != offset or len(found.data) > length:
            raise ArtifactBroken(f"{digest}: the answer at {offset} is not the piece that was asked for")
        return found


def _first(error: BaseException) -> BaseException:
    """What a piece failed with, out of the groups around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
