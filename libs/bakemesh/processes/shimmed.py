"""One component that runs, as this process sees it through its shim.

Guarantees: `ended` is answered once, and only when nothing of the component is alive: by the shim's own
death, seen through a pidfd, and what it wrote; where it wrote nothing it was killed, and then everything that
carries the instance is killed first. A shim that does not answer a stop is killed with its component.
Leaves out: who starts shims (`keeper.py`), who finds them again (`adopting.py`).

    running ──the shim ends──→ exit file ──→ ended
        └──the shim was killed──→ what it minded is swept ──→ ended, lost
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from bakemesh.processes import frames, records
from bakemesh.processes.connecting import connect
from bakemesh.processes.spec import ShimExit, Survivor, Swept
from bakemesh.processes.sweeping import sweep_to_the_last

HUNG_S = 15.0  # beyond a stop's grace: after 5 of them a shim that works has named who does not die
LARGEST_ANSWER = 64 * 1024

log = logging.getLogger(__name__)


def say(survivors: tuple[Survivor, ...]) -> None:
    """Logs who survives SIGKILL."""
    log.error("processes survive SIGKILL: %s", ", ".join(map(str, survivors)))


class Shimmed:
    """A component; made by `Keeper.launch` and `adopt`.

    `pid` and `start_time` (ticks since boot) name its main process, `began` is wall clock time, `held` what
    of its limits the system holds here: `memory` or `memory-sampled` (looked at each second), `cpu-share`.
    `on_survivors` is told every few seconds who keeps a component whose shim was killed from having ended.
    """

    def __init__(
        self, folder: Path, running: frames.Running, control: socket.socket | None, told: bytes = b""
    ) -> None:
        self.folder = folder
        self.instance = running.instance
        self.pid = running.pid
        self.start_time = running.start_time
        self.began = running.began
        self.shim = running.shim
        self.held = running.held
        self.on_survivors: Callable[[tuple[Survivor, ...]], object] = say
        self._loop = asyncio.get_running_loop()
        self._told = told  # what the shim said at its end
        self._end: asyncio.Future[ShimExit] = self._loop.create_future()
        self._alive: asyncio.Future[frames.Alive] = self._loop.create_future()
        self._losing: asyncio.Task[None] | None = None
        self._control: socket.socket | None = None
        self._use(control)
        self._pidfd = records.pin(running.shim, running.shim_start)
        if self._pidfd is None:
            self._conclude()
        else:
            self._loop.add_reader(self._pidfd, self._shim_ended)

    async def ended(self) -> ShimExit:
        """Returns how it ended, once nothing of it lives. Cancelled where this was closed."""
        return await asyncio.shield(self._end)

    async def stop(self, grace_s: float) -> Swept:
        """TERM and CONT to all of it, up to `grace_s` seconds to end, then KILL until nothing is alive.

        Survivors are named 5 s after that, and go on being killed. Called again, the earlier end stands.
        """
        if not self._end.done():
            self._alive = self._loop.create_future()
            self._signal_shim(signal.SIGCONT)  # one that is stopped would sleep through it
            await self._command(frames.kill(grace_s))
            waiting: set[asyncio.Future[object]] = {self._end, self._alive}  # type: ignore[arg-type]
            done, _ = await asyncio.wait(
                waiting, timeout=max(0.0, grace_s) + HUNG_S, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                log.error("the shim of a component does not answer: it is killed", extra={"pid": self.shim})
                self._signal_shim(signal.SIGKILL)
            elif not self._end.done():
                return Swept(self._alive.result().killed, self._alive.result().survivors)
        end = await self.ended()
        return Swept(end.killed, (), end.max_rss_kib, end.cpu_s)

    def close(self) -> None:
        """Lets go: the component runs on, and whoever waits for its end here is cancelled."""
        self._use(None)
        self._unpin()
        if self._losing is not None:
            self._losing.cancel()
        self._end.cancel()

    # What the shim says

    def _use(self, control: socket.socket | None) -> None:
        if self._control is not None:
            self._loop.remove_reader(self._control)
            self._control.close()
        self._control = control
        if control is not None:
            control.setblocking(False)
            self._loop.add_reader(control, self._readable)

    def _readable(self) -> None:
        while self._control is not None:
            try:
                data = self._control.recv(LARGEST_ANSWER)
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionResetError:
                continue  # it ended with a command unread: what it said before is still to be read
            if not data:
                self._use(None)  # a newer Builder has the shim, or it ends: its pidfd tells
                return
            frame = frames.parse(data)
            if isinstance(frame, frames.Alive) and not self._alive.done():
                self._alive.set_result(frame)
            elif isinstance(frame, frames.Over):
                self._told = frame.text

    async def _command(self, command: bytes) -> None:
        for _ in range(2):
            if self._control is not None:
                with contextlib.suppress(OSError):
                    self._control.send(command)
                    return
            self._use(await connect(self.folder, self.shim))

    # Its end

    def _shim_ended(self) -> None:
        self._readable()  # its last words may still be there
        self._use(None)
        assert self._pidfd is not None
        # It is a child of this process where its keeper died before it.
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)
        self._unpin()
        self._conclude()

    def _conclude(self) -> None:
        end = records.parse_exit(self._told, self.instance) or records.read_exit(self.folder, self.instance)
        if end is not None:
            self._end.set_result(end)
        else:
            self._losing = self._loop.create_task(self._lose(), name=f"lost component {self.pid}")

    async def _lose(self) -> None:
        # Looked up each time: it may be set meanwhile.
        killed = await sweep_to_the_last(self.instance, lambda survivors: self.on_survivors(survivors))
        self._end.set_result(ShimExit(None, None, lost=True, at=None, killed=killed))

    def _signal_shim(self, number: signal.Signals) -> None:
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def _unpin(self) -> None:
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
