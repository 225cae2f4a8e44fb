"""The model that a request names, ready for its lane to load: known to the pool, its file in the cache.

Guarantees: a lane that has the model loaded is asked at once, without a look at any file. Left out: loading,
which a worker does when it needs to, and which models are where: whoever asks decides that.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from bakemesh.artifacts import Cache, hex_of
from bakemesh.lanes.pulling import Puller, PullFailed
from bakemesh.protocol.inference.errors import Code, error_of
from bakemesh.protocol.inference.lanes import OfModel
from bakemesh.workerpool import Artifact, BadRequest, Call, Cancelled, ModelKey, Pool
from bakemesh.workerpool.lane import Lane

_REMEMBERED = 4096  # a key costs a hash; a lane is asked about the same few again and again


class Models:
    """Of one lane host."""

    def __init__(self, pool: Pool, cache: Cache, puller: Puller) -> None:
        self._pool, self._cache, self._puller = pool, cache, puller
        self._keys: dict[tuple[str, str, tuple[tuple[str, str], ...]], ModelKey] = {}
        self._loop = asyncio.get_running_loop()

    def key_of(self, request: OfModel) -> ModelKey:
        """The (model, config) that is meant. Raises BadRequest."""
        named = (request.digest, request.format, tuple(sorted(request.config.items())))
        try:
            found = self._keys.get(named)
        except TypeError:
            found = None  # a value that is no text: told below
        if found is None:
            if not all(isinstance(value, str) for value in request.config.values()):
                raise BadRequest("config holds a value that is no text; it is text to text")
            try:
                digest = hex_of(request.digest)
            except ValueError as error:
                raise BadRequest(f"digest: {error}") from error
            if len(self._keys) >= _REMEMBERED:
                self._keys.clear()
            found = self._keys[named] = ModelKey(digest, named[1], named[2])
        return found

    async def ready(self, lane: Lane, request: OfModel, call: Call) -> ModelKey:
        """The key, once the lane can load it. Raises BadRequest, PullFailed, Cancelled."""
        key = self.key_of(request)
        if key in lane.refs and self._pool.artifact(key) is not None:
            return key
        path = self._cache.path(request.digest)
        if path is None:
            path = await self._pulled(request, call)
        self._pool.know(Artifact(path=path, digest=request.digest, format=request.format), request.config)
        return key

    async def _pulled(self, request: OfModel, call: Call) -> Path:
        if request.artifactnode is None:
            said = f"artifact {request.digest} is not here, and no artifactnode was named that has it"
            raise PullFailed(error_of(Code.MODEL_UNKNOWN, said))
        pull = self._puller.pull(request.digest, request.size, request.artifactnode)
        cancelled: asyncio.Future[None] = self._loop.create_future()

        def cancel() -> None:
            if not cancelled.done():
                cancelled.set_result(None)

        now = self._loop.time()
        until = call.until(now, self._pool.settings.within_s)
        call.bind(cancel)
        waits: set[asyncio.Future[Any]] = {pull, cancelled}
        try:
            await asyncio.wait(waits, timeout=until - now, return_when=asyncio.FIRST_COMPLETED)
        finally:
            call.unbind(cancel)
        if pull.done() and not pull.cancelled():
            return pull.result()
        if cancelled.done():
            raise Cancelled("the request was cancelled while its artifact was pulled")
        if pull.done():
            raise PullFailed(error_of(Code.MODULE_RESTARTED, "the lane host is ending"))
        said = f"artifact {request.digest} is on its way here, and did not arrive in time"
        raise PullFailed(error_of(Code.MODEL_LOADING, said))
