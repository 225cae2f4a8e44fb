"""One started process and its tree, as this process sees it through its minder.

Guarantees: `exited` and `swept` are answered exactly once each, whatever dies; where the minder or the keeper
died, they are answered only after what was minded is dead (or named as a survivor). Leaves out: who starts
minders and who kills for a dead one (`keeper.py`).

      starting ──refused──→ over
         │ started
      running ──exited──→ ended ──none──→ over
         └── the minder or the keeper died → lost ──all killed──→ over

For a component it stands for the start alone: `release` hands what came of that to `shimmed.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable

from bakemesh.processes import frames
from bakemesh.processes.errors import KeeperLost, SpawnRefused, refused
from bakemesh.processes.spec import Exit, ProcessSpec, Swept

LARGEST_ANSWER = 64 * 1024


class Minded:
    """A process that a minder watches over; made by `Keeper.spawn`."""

    def __init__(
        self, ident: int, spec: ProcessSpec, control: socket.socket, on_cut_off: Callable[[Minded], None]
    ) -> None:
        self.ident = ident
        self.pid = 0
        self.start_time = 0  # clock ticks since boot: with the pid it names the process for good
        self.minder = 0
        self._lost = False  # killed because the keeper died
        self.cut_off = False  # the minder is gone without having said that nothing lives
        self.over = (
            asyncio.Event()
        )  # nothing more comes: all is dead, or named as a survivor of a dead minder
        self.running: frames.Running | None = None  # a component: what its shim said at the start
        self.told = b""  # and at its end, which may come at once
        self._spec = spec
        self._control = control
        self._on_cut_off = on_cut_off
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[SpawnRefused | None] = self._loop.create_future()
        self._exit: asyncio.Future[Exit] = self._loop.create_future()
        self._swept: asyncio.Future[Swept] = self._loop.create_future()
        self._last = Swept(0)
        control.setblocking(False)
        self._loop.add_reader(control, self._readable)

    # What users ask

    async def exited(self) -> Exit:
        """Returns how the main process ended, once it has. Processes it left may still run: see `sweep`."""
        return await asyncio.shield(self._exit)

    async def sweep(self) -> Swept:
        """Waits for the main process, then kills what it left until nothing of the step is alive.

        Where something does not die within 5 s the answer names it; the minder goes on killing it. A grace
        that `kill` gave is not cut short.
        """
        await self.exited()
        return await self._finish(frames.sweep())

    async def kill(self, grace_s: float) -> Swept:
        """TERM and CONT to the whole tree, up to `grace_s` seconds to end, then KILL until nothing is alive.

        Processes that outlive the main one have the rest of the grace too. Called again, the earlier end
        stands.
        """
        return await self._finish(frames.kill(grace_s))

    async def _finish(self, command: bytes) -> Swept:
        if not self._swept.done():
            self._send(command)
            return await asyncio.shield(self._swept)
        return self._last

    # What the keeper's side asks

    async def started(self) -> None:
        """Returns once the process runs. Raises SpawnRefused, KeeperLost."""
        if wrong := await asyncio.shield(self._started):
            raise wrong

    def discard(self) -> None:
        """Kills the whole tree now; `over` is set when that is done."""
        if not self.over.is_set():
            self._send(frames.kill(0))

    def release(self) -> socket.socket | None:
        """Hands over the connection to a component's shim, where it is still there."""
        control = self._control if self._control.fileno() >= 0 else None
        if control is not None:
            self._loop.remove_reader(control)
        self.over.set()
        return control

    def withdraw(self, why: SpawnRefused) -> None:
        """Ends a start that never reached the keeper."""
        self._disconnect()
        self._refuse(why)

    def settle_lost(self, swept: Swept) -> None:
        """The minder is gone and what it minded was killed, by the keeper or by this process."""
        self._disconnect()
        if not self._started.done():
            self._refuse(
                KeeperLost(f"the keeper died while {self._spec.argv[0]!r} was being started; it may have run")
            )
            return
        self._end(Exit(None, None, swept.max_rss_kib, swept.cpu_s, lost=True))
        self._sweep_done(Swept(swept.killed, swept.survivors, self._last.max_rss_kib, self._last.cpu_s))
        self.over.set()

    # What the minder says

    def _readable(self) -> None:
        while self._control.fileno() >= 0:
            try:
                data = self._control.recv(LARGEST_ANSWER)
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionResetError:
                continue  # it ended with a command of ours unread: what it said before is still to be read
            if not data:
                self._disconnect()
                if not self.over.is_set():
                    self.cut_off = True
                    self._on_cut_off(self)
                return
            self._take(frames.parse(data))

    def _take(self, frame: frames.Frame) -> None:
        match frame:
            case frames.Started(pid, start_time, minder):
                self.pid, self.start_time, self.minder = pid, start_time, minder
                if not self._started.done():
                    self._started.set_result(None)
            case frames.Running(pid, start_time, shim):
                self.pid, self.start_time, self.minder, self.running = pid, start_time, shim, frame
                if not self._started.done():
                    self._started.set_result(None)
            case frames.Over(text):
                self.told = text
                self._disconnect()
                self._sweep_done(Swept(0))
                self.over.set()
            case frames.Refused(stage, errno):
                self._disconnect()
                self._refuse(refused(self._spec, stage, errno))
            case frames.Exited(status, max_rss_kib, cpu_us, cut):
                code = os.waitstatus_to_exitcode(status)
                spent = (max_rss_kib, cpu_us / 1e6)
                self._last = Swept(0, (), *spent)
                if cut:
                    self._lost = True  # told when nothing of it lives any more
                elif code < 0:
                    self._end(Exit(None, -code, *spent))
                else:
                    self._end(Exit(code, None, *spent))
            case frames.Alive(killed, survivors):
                self._end_lost()
                self._sweep_done(Swept(killed, survivors, self._last.max_rss_kib, self._last.cpu_s))
            case frames.Nothing(killed, max_rss_kib, cpu_us):
                self._disconnect()
                self._end_lost()
                self._sweep_done(Swept(killed, (), max_rss_kib, cpu_us / 1e6))
                self.over.set()

    def _refuse(self, why: SpawnRefused) -> None:
        if not self._started.done():
            self._started.set_result(why)
        self._sweep_done(Swept(0))
        self.over.set()

    def _end_lost(self) -> None:
        if self._lost:
            self._end(Exit(None, None, self._last.max_rss_kib, self._last.cpu_s, lost=True))

    def _end(self, end: Exit) -> None:
        if not self._exit.done():
            self._exit.set_result(end)

    def _sweep_done(self, swept: Swept) -> None:
        self._last = swept
        if not self._swept.done():
            self._swept.set_result(swept)

    def _send(self, command: bytes) -> None:
        # A minder that is gone needs no command, and one that has hundreds unread has this one too.
        with contextlib.suppress(OSError):
            self._control.send(command)

    def _disconnect(self) -> None:
        if self._control.fileno() >= 0:
            self._loop.remove_reader(self._control)
            self._control.close()
