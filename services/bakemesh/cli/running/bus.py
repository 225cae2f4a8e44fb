"""The bus as a component of `up`: an embedded nats-server that keeps its ports, over restarts of `up` too."""

from __future__ import annotations

from bakemesh.bus.server import EmbeddedServer
from bakemesh.cli.running.component import Ready
from bakemesh.cli.running.guarded import Guard
from bakemesh.cli.running.ports import Ports, keep_ports

FOLDER = "bus"  # in the state folder


class BusComponent:
    """See Component. The server dies with `up` by itself; the guard is the second net."""

    name = "bus"

    def __init__(self, server: EmbeddedServer, guard: Guard) -> None:
        self._server, self._guard = server, guard

    async def start(self) -> Ready:
        """See Component. Raises ServerFailed where it cannot start."""
        await self._server.start()
        config = self._server.config
        self._guard.watch(self._server.pid)
        keep_ports(config.folder, Ports(config.port, config.leaf_port or 0))
        leaf = self._server.leaf_url if self._server.config.join is None else None
        joined = self._server.config.join.url if self._server.config.join else None
        text = self._server.url
        if leaf:
            text += f", leaves join at {leaf}"
        if joined:
            text += f", a leaf of {joined}"
        facts = {"nats": self._server.url, "leaf": leaf, "join": joined, "pid": self._server.pid}
        return Ready(text, {key: value for key, value in facts.items() if value is not None})

    async def ended(self) -> int:
        """See Component."""
        code = await self._server.wait()
        self._guard.forget(self._server.pid)
        return code

    async def stop(self) -> bool:
        """See Component."""
        if not self._server.running:
            return False
        await self._server.stop()
        self._guard.forget(self._server.pid)
        return True

    async def kill(self) -> None:
        """See Component."""
        await self._server.kill()
