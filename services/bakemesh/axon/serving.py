"""The application on a socket: uvicorn with httptools, our own connection, TLS, and an end in good order.

    async with serving(app, state) as (host, port): ...

Guarantees: who leaves the block has answered what ran, for `drain_s` at most; nothing new is accepted from
the moment the block is left. Signals are left to whoever runs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from bakemesh.axon.connection import Receiving, limited
from bakemesh.axon.gateway import GatewayState
from bakemesh.axon.settings import GatewaySettings, Tls


class CannotServe(OSError):
    """Raised when the address cannot be bound, or the TLS files not be used: says which, and why."""


class _Server(uvicorn.Server):
    """`up`: it accepts connections."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are not ours."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, and says so. A TLS handshake has the time of a header block, not a minute."""
        await super().startup([])
        config, loop = self.config, asyncio.get_running_loop()
        made: Any = config.http_protocol_class
        for bound in sockets or []:
            server = await loop.create_server(
                lambda: made(config=config, server_state=self.server_state, app_state=self.lifespan.state),
                sock=bound,
                ssl=config.ssl,
                backlog=config.backlog,
                ssl_handshake_timeout=made.limits.header_s if config.ssl is not None else None,
            )
            self.servers.append(server)
        self.up.set()


@asynccontextmanager
async def serving(app: Any, state: GatewayState) -> AsyncIterator[tuple[str, int]]:
    """Gives the address that it is bound to. Raises CannotServe."""
    settings = state.settings
    bound = bind(settings.host, settings.port)
    try:
        server = _Server(_config(app, settings))
    except BaseException:
        bound.close()
        raise
    connections = server.server_state.connections
    state.metrics.watch("connections", "Connections that are open.", lambda: len(connections))
    running = asyncio.create_task(server.serve(sockets=[bound]))
    up = asyncio.create_task(server.up.wait())
    try:
        await asyncio.wait({running, up}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running
            raise CannotServe("the server ended before it began")
        host, port = bound.getsockname()[:2]
        yield host, port
    finally:
        up.cancel()
        state.draining = True
        server.should_exit = True
        await _ended(running, server)


async def _ended(running: asyncio.Task[None], server: _Server) -> None:
    await asyncio.wait({running})
    tasks = list(server.server_state.tasks)  # those whose time was over: they were cancelled
    if tasks:
        await asyncio.wait(tasks, timeout=1.0)
    for connection in list(server.server_state.connections):
        connection.transport.abort()
    await asyncio.sleep(0)
    if not running.cancelled():
        running.result()


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises CannotServe."""
    try:
        family, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise CannotServe(f"cannot listen on {host}:{port}: {error}") from error


def _config(app: Any, settings: GatewaySettings) -> uvicorn.Config:
    limits = settings.limits
    receiving = Receiving(
        header_bytes=limits.header_bytes,
        headers=limits.headers,
        header_s=limits.header_s,
        body_s=limits.body_s,
        connections=limits.connections,
    )
    tls: dict[str, Any] = {}
    if settings.tls is not None:
        check(settings.tls)
        tls = {"ssl_certfile": settings.tls.cert, "ssl_keyfile": settings.tls.key}
    return uvicorn.Config(
        app,
        http=limited(receiving),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        log_level="error",  # what clients do wrong is counted, not logged
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=limits.keep_alive_s,  # type: ignore[arg-type]
        timeout_graceful_shutdown=settings.drain_s,  # type: ignore[arg-type]
        **tls,
    )


def check(tls: Tls) -> None:
    """Raises CannotServe where the files are not a certificate and its key."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.cert, tls.key)
    except OSError as error:
        raise CannotServe(f"TLS: {tls.cert} and {tls.key} cannot be used: {error}") from error
