"""Ingest: a file of the node's own disk into the cache, under an alias. An operator's, by the rights of the
server.

One at a time: it reads whole files. Progress goes out at most `A_SECOND` times a second. Left out: the
reading (`models`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from bakemesh.bus.errors import BusError
from bakemesh.protocol.inference.answers import Ingested, Progress
from bakemesh.protocol.inference.errors import Code, error_of
from bakemesh.protocol.inference.requests import Ingest
from bakemesh.synapse.answering.request import Request
from bakemesh.synapse.answering.shelf import Known, Shelf
from bakemesh.synapse.parameters import is_alias
from bakemesh.synapse.scheduling.asks import TAKEN_BACK, Failed

VERB = "Ingest"
A_SECOND: Final = 4

Told = Callable[[str, int, int], None]  # stage, done, total


class Ingesting:
    """Takes files in, for callers and for the module's own parameters."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._one = asyncio.Lock()

    async def ingest(self, request: Request, message: Ingest) -> None:
        """Answers one request; one that is taken back is answered at once, and read to its end all the same.
        Raises what `error_from` knows.
        """
        if not is_alias(request.alias):
            raise Failed(error_of(Code.BAD_REQUEST, f"{request.alias!r} is no alias: it stands for none"))
        request.on_cancel(lambda: request.fail(TAKEN_BACK))
        loop = asyncio.get_running_loop()

        def tell(stage: str, done: int, total: int) -> None:
            loop.call_soon_threadsafe(_part, request, stage, done, total)

        config = {str(name): str(value) for name, value in (message.config or {}).items()}
        known = await self.take(
            Path(message.path), request.alias, weights=message.weights, config=config, tell=tell
        )
        manifest = known.model.manifest
        request.end(
            Ingested(request=request.id, digest=manifest.digest, alias=known.alias, manifest=manifest.told())
        )

    async def take(
        self, path: Path, alias: str, *, weights: str, config: Mapping[str, str], tell: Told
    ) -> Known:
        """The model, once it is in the cache. Raises ModelRefused, OSError."""
        library = self._shelf.library
        if self._shelf.get(alias) is None:
            self._shelf.coming.add(alias)
        try:
            async with self._one:
                await asyncio.to_thread(
                    library.ingest, path, alias, weights=weights, config=config, progress=Sparing(tell)
                )
        finally:
            self._shelf.coming.discard(alias)
        model = library.get(alias)
        assert model is not None  # it was taken in just now
        return self._shelf.put(model)


class Sparing:
    """Passes on the begin and the end of each stage, and what comes between at most so often."""

    def __init__(self, tell: Told, clock: Callable[[], float] = time.monotonic) -> None:
        self._tell, self._clock = tell, clock
        self._stage, self._next = "", 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        """It goes on."""
        now = self._clock()
        if stage == self._stage and done < total and now < self._next:
            return
        self._stage, self._next = stage, now + 1 / A_SECOND
        self._tell(stage, done, total)


def _part(request: Request, stage: str, done: int, total: int) -> None:
    with contextlib.suppress(BusError):  # the next one, or the end, says it
        request.part(Progress(request=request.id, stage=stage, done=done, total=total))
