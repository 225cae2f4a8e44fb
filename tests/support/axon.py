"""A gateway in this process, on a port of its own, and requests that are signed by hand.

async with gateway(Axon().attach(echo)) as at:
    status, headers, body = await at.post(Echo(text="a"))          # signed by BOB
    raw = await at.raw(request_bytes)                               # bytes out, bytes in

async with served_by_process(folder, "routes.py") as running: ...    # the same in a process of its own

`at.state` is what the gateway holds, `at.url`, `at.host`, `at.port` where it is. The keys are the well-known
development ones: //Alice is the axon, //Bob the dendrite.
"""

from __future__ import annotations

import asyncio
import sys
import time
import uuid as uuids
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from starlette.routing import BaseRoute

from bakemesh.axon import app
from bakemesh.axon.gateway import GatewayState
from bakemesh.axon.serving import serving
from bakemesh.axon.settings import GatewaySettings, Limits
from bakemesh.edge import Axon
from bakemesh.hotkeys import create_hotkey
from bakemesh.protocol.axon import Hotkey, Profile, Synapse, keys, sha3_256_hex, signing
from bakemesh.protocol.axon.synapse import shape
from support.recorded import ALICE, BOB
from support.startup import RunningStartup


@dataclass
class Signed:
    """A request as it goes out: change what you like before it does."""

    path: str
    headers: dict[str, str]
    body: bytes
    method: str = "POST"

    def raw(self, *more: tuple[str, str], close: bool = True) -> bytes:
        """Its bytes; `more`: headers behind the others."""
        lines = [f"{self.method} {self.path} HTTP/1.1", "host: gateway"]
        lines += [f"{key}: {value}" for key, value in (*self.headers.items(), *more)]
        lines += [f"content-length: {len(self.body)}", *(["connection: close"] if close else [])]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + self.body


def signed(
    synapse: Synapse,
    *,
    profile: Profile = Profile.SYNAPSE,
    by: Hotkey = BOB,
    to: str = ALICE.address,
    nonce: int | None = None,
    uuid: str | None = None,
    timeout: float | None = None,
    body: bytes | None = None,
    claims: Hotkey | None = None,
) -> Signed:
    """A request as its profile has it. `claims`: whose hotkey it names, where that is not who signs."""
    body = synapse.body() if body is None else body
    nonce = time.time_ns() if nonce is None else nonce
    uuid = str(uuids.uuid4()) if uuid is None else uuid
    name, hotkey = type(synapse).route(), (claims or by).address
    path = f"/{name}"
    if profile is Profile.BTAUTH:
        message = signing.btauth_payload("POST", path, body, nonce, hotkey, to)
        headers = {
            keys.BTAUTH_VERSION: "1",
            keys.BTAUTH_HOTKEY: hotkey,
            keys.BTAUTH_NONCE: str(nonce),
            keys.BTAUTH_SIGNATURE: by.sign(message),
            keys.BTAUTH_RECEIVER: to,
        }
        return Signed(path, headers | ({} if timeout is None else {keys.TIMEOUT: str(timeout)}), body)
    digest = synapse.declared_hash() if profile is Profile.SDK else sha3_256_hex(body)
    headers = {
        keys.NAME: name,
        keys.TIMEOUT: str(synapse.timeout if timeout is None else timeout),
        keys.AXON_PREFIX + "hotkey": to,
        keys.DENDRITE_PREFIX + "nonce": str(nonce),
        keys.DENDRITE_PREFIX + "uuid": uuid,
        keys.DENDRITE_PREFIX + "hotkey": hotkey,
        keys.DENDRITE_PREFIX + "signature": by.sign(signing.signing_message(nonce, hotkey, to, uuid, digest)),
    }
    if profile is Profile.SDK:
        headers |= shape(type(synapse)).dummies
    headers[keys.COMPUTED_BODY_HASH] = digest
    headers["content-type"] = "application/json"
    return Signed(path, headers, body)


@dataclass
class Answered:
    """An answer, as the client sees it."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def message(self) -> str:
        """The reason of an error."""
        import json

        return str(json.loads(self.body)["message"])


@dataclass
class Gateway:
    """One that runs."""

    host: str
    port: int
    state: GatewayState
    session: aiohttp.ClientSession
    scheme: str = "http"

    @property
    def url(self) -> str:
        """Without a path."""
        return f"{self.scheme}://{self.host}:{self.port}"

    async def send(self, request: Signed) -> Answered:
        """Sends it over a pooled connection."""
        async with self.session.request(
            request.method, self.url + request.path, headers=request.headers, data=request.body
        ) as answer:
            return Answered(answer.status, answer.headers, await answer.read())

    async def post(self, synapse: Synapse, **how: Any) -> Answered:
        """Signs it and sends it."""
        return await self.send(signed(synapse, **how))

    async def get(self, path: str) -> Answered:
        """An unsigned GET."""
        async with self.session.get(self.url + path) as answer:
            return Answered(answer.status, answer.headers, await answer.read())

    async def raw(self, *parts: bytes, within: float = 20.0) -> bytes:
        """Everything that comes back until the gateway closes."""
        async with asyncio.timeout(within):
            reader, writer = await asyncio.open_connection(self.host, self.port)
            try:
                for part in parts:
                    writer.write(part)
                    await writer.drain()
                return await reader.read()
            finally:
                writer.close()

    def connections(self) -> int:
        """How many are open, this one's own too."""
        return int(self.state.metrics.registry.get_sample_value("bakemesh_axon_connections") or 0)

    def counted(self, **labels: str) -> float:
        """How many requests ended so: `counted(verdict="ok")`."""
        total = 0.0
        for metric in self.state.metrics.registry.collect():
            for sample in metric.samples:
                if sample.name == "bakemesh_axon_requests_total" and labels.items() <= sample.labels.items():
                    total += sample.value
        return total


@dataclass
class Process:
    """A gateway in a process of its own, run by hand; `start` again keeps its state folder."""

    running: RunningStartup
    session: aiohttp.ClientSession

    @property
    def told(self) -> dict[str, Any]:
        """What its last `ready` line said: url, hotkey, routes, pid, …"""
        return self.running.of("ready")[-1]

    @property
    def url(self) -> str:
        """Without a path."""
        return str(self.told["url"])

    @property
    def hotkey(self) -> str:
        """Its own."""
        return str(self.told["hotkey"])

    async def send(self, request: Signed) -> Answered:
        """Sends it; it must be signed for `hotkey`."""
        async with self.session.request(
            request.method, self.url + request.path, headers=request.headers, data=request.body
        ) as answer:
            return Answered(answer.status, answer.headers, await answer.read())

    async def start(self) -> None:
        """Waits until it is ready."""
        await self.running.start()

    async def kill9(self) -> None:
        """As a crash."""
        await self.running.kill9()

    async def stop(self) -> int:
        """TERM, and its exit code."""
        return await self.running.stop()


@asynccontextmanager
async def served_by_process(folder: Path, *words: str, **environ: str) -> AsyncIterator[Process]:
    """`python -m bakemesh.axon WORDS…` on a free port, with a hotkey and a state folder in `folder`."""
    hotkey, log = folder / "hotkey.json", folder / "gateway.log"
    if not hotkey.exists():
        create_hotkey(hotkey)
    command = [sys.executable, "-m", "bakemesh.axon", *words, f"--hotkey={hotkey}", "--bind=127.0.0.1:0"]
    command += [f"--state={folder / 'state'}", "--node=alpha"]
    running = RunningStartup(command, log, environ=environ)
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        try:
            await running.start()
            yield Process(running, session)
        finally:
            if running.process is not None and running.process.returncode is None:
                await running.kill9()


@asynccontextmanager
async def gateway(
    axon: Axon,
    *,
    extra: Sequence[BaseRoute] = (),
    limits: Limits | None = None,
    now_ns: Callable[[], int] = time.time_ns,
    hotkey: Hotkey = ALICE,
    **settings: Any,
) -> AsyncIterator[Gateway]:
    """Runs until the block is left. `settings`: of GatewaySettings."""
    made = GatewaySettings(port=0, limits=limits or Limits(), **settings)
    state = GatewayState(made, hotkey, now_ns=now_ns)
    state.open()
    try:
        async with (
            serving(app.build(axon, state, extra), state) as (host, port),
            aiohttp.ClientSession(auto_decompress=False) as session,
        ):
            yield Gateway(host, port, state, session)
    finally:
        state.close()
