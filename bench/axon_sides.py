"""What the axon benches share: our gateway as it is shipped, the real axon, and a client that costs little.

The client is the same for both: requests that are signed beforehand, on connections that are kept, one at a
time on each, with nonces that rise on each. It reads what it needs of an answer and nothing more.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
from peers import real_sdk

from bakemesh.dendrite.building import build
from bakemesh.dendrite.target import Target
from bakemesh.hotkeys.document import written
from bakemesh.protocol.axon import Hotkey, Profile, Synapse

# The mini secrets of //Alice and //Bob, which every Substrate chain knows: the axon's and the dendrite's.
ALICE_SEED = bytes.fromhex("e5be9a5092b81bca64be81d212e7f2f9eba183bb7a90954f7b76361f6edb5c0a")
ALICE = Hotkey.from_seed(ALICE_SEED)
BOB = Hotkey.from_seed(bytes.fromhex("398f0c28f98885e046333d4a41c19cee4c37368a9832c6502f6cfd182e2aef89"))
ROUTES = Path(__file__).parent / "peers" / "echo_routes.py"
TIMEOUT_S = 600.0  # what a request says; the real axon's window for nonces grows with it


@dataclass(frozen=True)
class Side:
    """A server."""

    pid: int
    target: Target


@asynccontextmanager
async def gateway(where: Path, *words: str, **environ: str) -> AsyncIterator[Side]:
    """`python -m bakemesh.axon` with these words: as shipped, but for its limits of one hotkey."""
    key = where / "alice.json"
    if not key.exists():
        key.touch(0o600)
        key.write_text(written(ALICE, ALICE_SEED))
    with (where / "gateway.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bakemesh.axon", *words, "--bind", "127.0.0.1:0", "--hotkey", str(key)),
            *("--hotkey-rate", "0", "--hotkey-requests", "512", "--state", str(where / "gateway")),
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env={**os.environ, "BAKEMESH_LOG_LEVEL": "warning", **environ},
        )
    role = common.Role(process, "gateway")
    try:
        assert process.stdout is not None
        async with asyncio.timeout(common.READY_S):
            line = await process.stdout.readline()
        if not line.startswith(b"ready "):
            raise RuntimeError((where / "gateway.log").read_text()[-2000:])
        said = json.loads(line.removeprefix(b"ready "))
        yield Side(process.pid, Target.of_url(said["url"], ALICE.address))
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
        await role.end()


@asynccontextmanager
async def real_axon(where: Path, **environ: str) -> AsyncIterator[Side]:
    """The peer."""
    with socket.socket() as free:  # it takes no port 0
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with real_sdk.child(where, "real_axon.py", port, **environ) as role:
        await role.ready()
        said = await role.said()
        assert said["hotkey"] == ALICE.address
        yield Side(role.pid, Target("127.0.0.1", port, ALICE.address))


def requests(
    make: Callable[[], Synapse], target: Target, profile: Profile, lanes: int, each: int
) -> list[list[bytes]]:
    """Signed requests as bytes, so many for each lane: a uuid, and nonces that rise."""
    synapse = make()
    path = target.url(type(synapse).route()).raw_path
    found: list[list[bytes]] = [[] for _ in range(lanes)]
    run = os.urandom(4).hex()
    first = time.time_ns()
    for number in range(each):
        for lane, signed in enumerate(found):
            request = build(
                synapse,
                target,
                BOB,
                profile,
                timeout=TIMEOUT_S,
                nonce=first + number * lanes + lane,
                uuid=f"{run}-{lane}" if profile is Profile.SDK else f"{run}-{lane}-{number}",
            )
            lines = [f"POST {path} HTTP/1.1", f"Host: {target.place}"]
            lines += [f"{key}: {value}" for key, value in request.headers.items()]
            lines += [f"Content-Length: {len(request.body)}", "Content-Type: application/json"]
            signed.append("\r\n".join(lines).encode() + b"\r\n\r\n" + request.body)
    return found


class _Lane(asyncio.Protocol):
    """One connection: sends a request when the answer to the last one is whole."""

    def __init__(self, waiting: list[bytes], until: float, took: list[float]) -> None:
        self._waiting, self._until, self._took = waiting[::-1], until, took
        self._got = bytearray()
        self._wants = 0
        self._sent_at = 0.0
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport  # uvloop's is no asyncio.Transport
        self._next()

    def _next(self) -> None:
        now = time.perf_counter()
        if not self._waiting or now > self._until:
            self._transport.close()
            if not self.done.done():
                self.done.set_result(None)
            return
        self._sent_at = now
        self._transport.write(self._waiting.pop())

    def data_received(self, data: bytes) -> None:
        self._got += data
        if not self._wants:
            end = self._got.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._got[:end]).lower()
            if b" 200 " not in head.split(b"\r\n", 1)[0]:
                self._fail(f"{bytes(self._got[:2000])!r}")
                return
            length = head.split(b"\r\ncontent-length: ", 1)[1].split(b"\r\n", 1)[0]
            self._wants = end + 4 + int(length)
        if len(self._got) >= self._wants:
            self._took.append(time.perf_counter() - self._sent_at)
            del self._got[: self._wants]
            self._wants = 0
            self._next()

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(f"the server closed the connection: {error}")

    def _fail(self, why: str) -> None:
        if not self.done.done():
            self.done.set_exception(RuntimeError(why))
        self._transport.close()


@dataclass(frozen=True)
class Load:
    """What a server did: requests a second, p50 and p99 in ms, its CPU in µs a request."""

    a_second: float
    p50_ms: float
    p99_ms: float
    cpu_us: float


async def load(side: Side, waiting: list[list[bytes]], seconds: float) -> Load:
    """As many as it can do in that time, or all of them."""
    loop = asyncio.get_running_loop()
    took: list[float] = []
    cpu, began = common.cpu_s(side.pid), time.perf_counter()
    made = [
        await loop.create_connection(
            lambda lane=lane: _Lane(lane, began + seconds, took), side.target.host, side.target.port
        )
        for lane in waiting
    ]
    await asyncio.gather(*(protocol.done for _, protocol in made))
    elapsed, cpu = time.perf_counter() - began, common.cpu_s(side.pid) - cpu
    count = len(took)
    return Load(
        count / elapsed,
        common.percentile(took, 0.5) * 1e3,
        common.percentile(took, 0.99) * 1e3,
        cpu / count * 1e6,
    )
