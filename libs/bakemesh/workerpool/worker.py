"""A worker that is up: one process, one connection, one request at a time.

Guarantees: a request has one outcome, the answer or a Crash, at its deadline at the latest (and the moment
that a killed process takes to end); after a Crash the process is dead. An answer that came whole before the
worker died is an answer. Left out: what is asked, and what a crash means (`lane`, `charging`).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bakemesh.protocol.worker import headers as h
from bakemesh.protocol.worker.errors import LocalError
from bakemesh.protocol.worker.packets import Packet
from bakemesh.workerpool.charging import Cause
from bakemesh.workerpool.settings import Settings
from bakemesh.workerpool.spawning import DIES_S, Exit
from bakemesh.workerpool.starting import Started


@dataclass(frozen=True, slots=True)
class Crash:
    """How a worker ended. `doing`: the stage it was in, `idle` for none."""

    cause: Cause
    doing: str
    reason: str
    exit: Exit | None
    output: str


Outcome = Packet | Crash
Done = Callable[[Outcome], None]
Part = Callable[[h.Token], None]


@dataclass(slots=True)
class _Asked:
    stage: str
    req_id: str
    done: Done
    part: Part | None
    timer: asyncio.TimerHandle
    within_s: float
    cancel_id: str | None = None
    cancel_timer: asyncio.TimerHandle | None = None

    def over(self) -> None:
        self.timer.cancel()
        if self.cancel_timer is not None:
            self.cancel_timer.cancel()


class Worker:
    """Made of what `starting.start` gives. `over`: done when it is dead, with the Crash."""

    def __init__(self, started: Started, settings: Settings) -> None:
        self._loop = asyncio.get_running_loop()
        self._settings, self._child, self._wire = settings, started.child, started.wire
        self.hello, self.pid = started.hello, started.child.pid
        self.over: asyncio.Future[Crash] = self._loop.create_future()
        self._asked: _Asked | None = None
        self._failing: asyncio.Task[None] | None = None
        self._ids = itertools.count(1)
        self._closing = False
        self._wire.on_packet, self._wire.on_lost = self._on_packet, self._on_lost
        self._child.on_exit(self._on_exit)

    @property
    def can(self) -> frozenset[str]:
        """The added types that it knows."""
        return self._wire.end.can

    @property
    def up(self) -> bool:
        """Whether it can be asked."""
        return self._failing is None

    @property
    def output(self) -> str:
        """The last it wrote."""
        return self._child.ring.tail(self._settings.output_bytes)

    def next_id(self) -> str:
        """A req_id that this connection has not seen."""
        return str(next(self._ids))

    def ask(
        self,
        stage: str,
        header: Any,
        data: bytes | memoryview | None,
        within_s: float,
        done: Done,
        part: Part | None = None,
    ) -> None:
        """Sends a request; `done` is called once, never from in here. Raises LocalError: nothing was sent."""
        pieces = self._wire.end.send(header, data)
        timer = self._loop.call_later(within_s, self._expired)
        self._asked = _Asked(stage, header.req_id, done, part, timer, within_s)
        self._wire.send(pieces)

    def cancel(self) -> bool:
        """Asks it to end what is in flight; whether it can. Not doing so in time is its end."""
        asked = self._asked
        if asked is None or not self.up or h.Cancel.TYPE not in self.can:
            return False
        if asked.cancel_id is None:
            asked.cancel_id = self.next_id()
            self._wire.send(self._wire.end.send(h.Cancel(req_id=asked.cancel_id, target=asked.req_id)))
            asked.cancel_timer = self._loop.call_later(self._settings.cancel_s, self._not_cancelled)
        return True

    def kill(self, cause: Cause, reason: str) -> None:
        """SIGKILL; what is in flight ends with a Crash."""
        self._fail(cause, reason, kill=True)

    async def stop(self, within_s: float) -> None:
        """SHUTDOWN: it ends after what is in flight, and is killed where it does not in time."""
        self._closing = True
        if self.up:
            with contextlib.suppress(LocalError):  # told already
                self._wire.send(self._wire.end.send(h.Shutdown()))
            await asyncio.wait([self.over], timeout=within_s)
        self.kill(Cause.CLOSED, "the pool is being closed")
        await asyncio.wait([self.over], timeout=DIES_S + 1)

    def _on_packet(self, packet: Packet) -> None:
        asked, header = self._asked, packet.header
        if asked is None:
            return  # an ERR that answers a CANCEL; the link lets nothing else through
        if isinstance(header, h.Token):
            if asked.part is not None:
                asked.part(header)
        elif isinstance(header, h.Err) and asked.cancel_id is not None and header.req_id == asked.cancel_id:
            if asked.cancel_timer is not None:
                asked.cancel_timer.cancel()  # it cannot: its deadline is all there is
        elif isinstance(header, h.Err) and header.req_id not in (None, asked.req_id):
            return  # to a CANCEL of a request before this one
        else:
            asked.over()
            self._asked = None
            asked.done(packet)

    def _on_lost(self, error: Exception | None) -> None:
        if self._closing and self._asked is None and error is None:
            self._fail(Cause.CLOSED, "it was told to end", kill=False)
        elif error is None or isinstance(error, OSError):
            self._fail(Cause.CRASH, "the worker's connection ended", kill=False)
        else:
            self._fail(Cause.VIOLATION, f"the worker broke the protocol: {error}", kill=True)

    def _on_exit(self, how: Exit) -> None:
        # The end of the connection comes too, after what the worker still said; a child of its own may hold
        # the connection open, so it is not waited for long.
        if self.up:
            self._loop.call_later(self._settings.exit_s, self._fail, Cause.CRASH, "the worker ended", False)

    def _expired(self) -> None:
        assert self._asked is not None
        reason = f"no answer to {self._asked.stage} within {self._asked.within_s:.3g} s"
        self._fail(Cause.TIMEOUT, reason, kill=True)

    def _not_cancelled(self) -> None:
        reason = f"a CANCEL was not answered within {self._settings.cancel_s:g} s"
        self._fail(Cause.CANCEL, reason, kill=True)

    def _fail(self, cause: Cause, reason: str, kill: bool) -> None:
        if self._failing is not None:
            return
        asked, self._asked = self._asked, None
        if asked is not None:
            asked.over()
        if kill:
            self._child.kill()
        self._wire.close()
        self._failing = self._loop.create_task(self._finish(asked, cause, reason))

    async def _finish(self, asked: _Asked | None, cause: Cause, reason: str) -> None:
        exit_ = await self._child.exited(self._settings.exit_s)
        if exit_ is None:
            self._child.kill()
            exit_ = await self._child.exited(DIES_S)
        output = await self._child.said(self._settings.crash_output_bytes)
        doing = asked.stage if asked is not None else "idle"
        crash = Crash(cause, doing, reason, exit_, output)
        self.over.set_result(crash)
        if asked is not None:
            asked.done(crash)
