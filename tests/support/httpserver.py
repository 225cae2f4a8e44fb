"""An ASGI application on a real socket, in the loop of the test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn

from support.waiting import eventually


class _Server(uvicorn.Server):
    """uvicorn that leaves the test's signals alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(
    app: Any, *, certificate: Path | None = None, key: Path | None = None
) -> AsyncIterator[int]:
    """The port of the application, which runs until the end of the block."""
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        log_level="error",
        lifespan="off",
        timeout_graceful_shutdown=1,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve())
    try:
        await eventually(lambda: server.started or task.done(), what="the server's start")
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task
