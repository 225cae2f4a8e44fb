"""Three nats-servers that are one: started, killed and started again by name, each on its ports and store."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bakemesh.bus import Bus
from bakemesh.bus.errors import BusError
from bakemesh.bus.server import find_server


def free_port() -> int:
    """One that nobody has now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


class Cluster:
    """Three servers by name."""

    def __init__(self, folder: Path, max_file: str) -> None:
        self.folder, self.max_file = folder, max_file
        self.names = ("n0", "n1", "n2")
        self.ports = {name: free_port() for name in self.names}
        self.routes = {name: free_port() for name in self.names}
        self.running: dict[str, asyncio.subprocess.Process] = {}

    @property
    def urls(self) -> tuple[str, ...]:
        """Of all three."""
        return tuple(f"nats://127.0.0.1:{port}" for port in self.ports.values())

    async def start(self, name: str) -> None:
        """Starts one, without waiting for it."""
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self.routes.values())
        config = self.folder / f"{name}.conf"
        config.write_text(
            f'server_name: {name}\nlisten: "127.0.0.1:{self.ports[name]}"\n'
            f'jetstream {{ store_dir: "{self.folder / name}", max_file: {self.max_file} }}\n'
            f'cluster {{ name: c, listen: "127.0.0.1:{self.routes[name]}", routes: [{routes}] }}\n'
        )
        log = str(self.folder / f"{name}.log")
        self.running[name] = await asyncio.create_subprocess_exec(
            str(find_server()), "-c", str(config), "-l", log
        )

    async def kill(self, name: str) -> None:
        """KILL."""
        process = self.running.pop(name)
        process.kill()
        await process.wait()


@asynccontextmanager
async def cluster(folder: Path, *, max_file: str = "2G") -> AsyncIterator[Cluster]:
    """All three started, each with that much store; killed at the end."""
    made = Cluster(folder, max_file)
    try:
        for name in made.names:
            await made.start(name)
        yield made
    finally:
        for name in list(made.running):
            await made.kill(name)


async def leader(bus: Bus, stream: str) -> str | None:
    """The server that leads a stream; None where that is not known now."""
    try:
        info = await bus.api.stream_info(stream)
    except BusError:
        return None
    found: str | None = info["cluster"].get("leader")
    return found
