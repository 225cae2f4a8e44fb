"""One start of a worker: socket, process, HELLO, HELLO_ACK, within a deadline.

    bound ──spawn──→ waiting ──HELLO with our nonce──→ the worker
                        │ another's HELLO, or nonsense: that connection is closed, the wait goes on;
                        │   but kill and fail where it came from the process that was started (by its pid)
                        └ exit of the process, another version, the deadline: kill, StartFailed

Guarantees: a connection that says nothing holds nobody up: each is read by itself; whatever comes of it, no
socket file and no second connection are left, and after StartFailed no process.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass

from bakemesh.protocol.worker import headers as h
from bakemesh.protocol.worker.ends import HostEnd
from bakemesh.protocol.worker.errors import NonceRefused, PeerError, VersionRefused
from bakemesh.protocol.worker.packets import Packet
from bakemesh.workerpool.errors import RuntimeDirRefused
from bakemesh.workerpool.output import Ring
from bakemesh.workerpool.places import Place
from bakemesh.workerpool.settings import Settings
from bakemesh.workerpool.spawning import DIES_S, Child, Exit, spawn
from bakemesh.workerpool.wire import Wire

_MOST_STRANGERS = 16  # open connections that have not said anything yet


@dataclass(frozen=True, slots=True)
class Started:
    """A worker that said HELLO and was told HELLO_ACK."""

    child: Child
    wire: Wire
    hello: h.Hello


class StartFailed(Exception):
    """Raised when a worker did not come up. `mismatch`: it speaks another version, which no restart mends."""

    def __init__(self, reason: str, exit_: Exit | None, output: str, *, mismatch: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.exit, self.output, self.mismatch = reason, exit_, output, mismatch


async def start(settings: Settings, place: Place, worker_id: str) -> Started:
    """Starts one. Raises StartFailed."""
    loop = asyncio.get_running_loop()
    nonce = secrets.token_hex(16)
    ring = Ring(settings.output_bytes)
    came: asyncio.Future[Wire] = loop.create_future()
    open_: list[Wire] = []
    lost: list[Exception | None] = []  # the one that won, lost again before anybody had it
    child: Child | None = None

    def fail(reason: Exception) -> None:
        if not came.done():
            came.set_exception(reason)

    def on_wire(wire: Wire) -> None:
        if came.done() or len(open_) >= _MOST_STRANGERS:
            wire.close()
            return
        open_.append(wire)
        wire.on_packet = lambda packet: on_packet(wire, packet)
        wire.on_lost = lambda error: on_lost(wire, error)

    def on_packet(wire: Wire, packet: Packet) -> None:
        # The end let it through, so it is HELLO, with our nonce and version and a max_frame that is one.
        if not came.done():
            open_.remove(wire)
            wire.on_lost = lost.append
            wire.send(wire.end.ack())
            came.set_result(wire)

    def on_lost(wire: Wire, error: Exception | None) -> None:
        open_.remove(wire)
        if isinstance(error, VersionRefused):
            fail(error)  # it has our nonce
        elif isinstance(error, PeerError) and child is not None and pids.get(wire) == child.pid:
            fail(error)

    pids: dict[Wire, int | None] = {}

    def seen(wire: Wire) -> None:
        pids[wire] = wire.peer_pid  # a closed socket does not tell any more
        on_wire(wire)

    try:
        listener = await place.listen(worker_id, lambda: HostEnd(nonce, settings.max_frame), seen)
    except (OSError, ValueError, RuntimeDirRefused) as error:
        raise StartFailed(f"no socket for worker {worker_id}: {error}", None, "") from error
    try:
        command = [*settings.command, "--socket", listener.address, "--nonce", nonce]
        env = {**settings.env, "SYNAPSE_WORKER_ID": worker_id, "GGML_NO_BACKTRACE": "1"}
        try:
            child = spawn(loop, command, env, ring)
        except (OSError, ValueError) as error:
            raise StartFailed(f"worker {worker_id} cannot be started: {error}", None, "") from error
        child.on_exit(lambda how: fail(_Ended(how)))
        async with asyncio.timeout(settings.handshake_s):  # wait_for can lose a cancel to a result
            wire = await came
        if lost:
            raise lost[0] or _Ended(child.exit or Exit())
    except asyncio.CancelledError:
        if came.done() and not came.cancelled() and came.exception() is None:
            came.result().close()
        if child is not None:
            await _end(child, settings)
        raise
    except (TimeoutError, PeerError, OSError, _Ended) as error:
        assert child is not None
        exit_, output = await _end(child, settings)
        reason = _reason(error, worker_id, settings.handshake_s)
        raise StartFailed(reason, exit_, output, mismatch=isinstance(error, VersionRefused)) from error
    finally:
        listener.close()
        for each in open_:
            each.close()
    hello = wire.end.hello
    assert hello is not None
    return Started(child, wire, hello)


class _Ended(Exception):
    def __init__(self, how: Exit) -> None:
        super().__init__(str(how))


async def _end(child: Child, settings: Settings) -> tuple[Exit | None, str]:
    child.kill()
    exit_ = await child.exited(DIES_S)
    return exit_, await child.said(settings.crash_output_bytes)


def _reason(error: Exception, worker_id: str, within_s: float) -> str:
    if isinstance(error, _Ended):
        return f"worker {worker_id} ended before it said HELLO: {error}"
    if isinstance(error, NonceRefused):
        return f"worker {worker_id} said HELLO with another nonce than it was given: killed"
    if isinstance(error, TimeoutError):
        return f"worker {worker_id} did not say HELLO within {within_s:g} s: killed"
    return f"worker {worker_id} broke the protocol at its HELLO: {error}: killed"
