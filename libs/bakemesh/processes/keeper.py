"""The keeper, seen from this process: it starts steps and components, and is started again when it dies.

Guarantees: a step is never started twice; when the keeper dies its steps die, end as `lost`, and only then a
new keeper comes up; `close` ends every step and is bounded. Components run on whatever becomes of keeper and
this process. Leaves out: retries, which are a matter of recipes and restart policies.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib.util
import itertools
import logging
import os
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from bakemesh.processes import cgroup, frames, marks
from bakemesh.processes.cgroup import StepCgroup
from bakemesh.processes.errors import KeeperFailed, KeeperLost, Refusal, SpawnRefused
from bakemesh.processes.link import READY_S, Link, Request
from bakemesh.processes.minded import Minded
from bakemesh.processes.nurse import Nurse
from bakemesh.processes.orphans import Orphans, become_subreaper
from bakemesh.processes.shimmed import Shimmed
from bakemesh.processes.spec import ProcessSpec, ShimSpec, Swept
from bakemesh.processes.sweeping import sweep_instance

CLOSE_S = 6.0  # for steps to die at `close`; what does not is left to the keeper, which goes on
KEEPER_END_S = 3.0
LISTEN_S = 1.0  # for a minder to hear that its start is not wanted any more; a hung mount can hold it
LOST_S = 10.0  # no word from a keeper about a dead minder's step: say what is known
LONGEST_PAUSE_S = 5.0
NURSERY_READY_S = 120.0  # it imports much, and nobody waits for it so long

log = logging.getLogger(__name__)


def find_program() -> Path:
    """The keeper's file, found without importing it: it is a program of its own. Raises KeeperFailed."""
    try:
        spec = importlib.util.find_spec("bakemesh.keeper")
    except ModuleNotFoundError:
        spec = None
    for folder in (spec.submodule_search_locations or []) if spec else []:
        program = Path(folder) / "keeper.py"
        if program.is_file():
            return program
    raise KeeperFailed(
        "the keeper's program is not installed: no bakemesh/keeper/keeper.py on the import path"
    )


class Keeper:
    """Starts processes; made by `Keeper.start`."""

    def __init__(
        self, token: str, program: Path, python: Sequence[str], options: Sequence[str], kind: Nurse | None
    ) -> None:
        self._token = token
        self._program = program
        self._python = python
        self._options = list(options)
        self._kind = kind
        self._own_cgroup = cgroup.own_folder()
        self._cgroup = StepCgroup.make(token) if kind is None else None
        self._orphans = Orphans(token, self._cgroup)
        self._idents = itertools.count(1)
        self._minded: dict[int, Minded] = {}
        self._links: dict[int, Link] = {}  # request → the life of the keeper that has it
        self._gone: dict[int, Swept] = {}  # what a keeper said about dead minders, by request
        self._swept: dict[Link, Swept] = {}  # what this process found after a keeper's death
        self._link: Link | None = None
        self._up = asyncio.Event()
        self._closing = False
        self._closed = asyncio.Event()
        self.dead = asyncio.Event()  # of a nurse: it ended, by itself or by `close`
        self._lingering: set[asyncio.Task[None]] = set()
        self._watcher: asyncio.Task[None] | None = None
        self.restarts = 0

    @classmethod
    async def start(
        cls,
        token: str,
        *,
        program: Path | None = None,
        python: str | None = None,
        no_new_privileges: bool | None = None,
        nurse: Nurse | None = None,
    ) -> Self:
        """Starts the keeper and returns once it takes requests.

        `token` names the owner (the same at each start on one state folder): steps carry it in their
        environment, so that `reap_strangers` finds them after a crash. `no_new_privileges` keeps steps from
        gaining rights by setuid programs, which this process could then not kill; by default it is set unless
        this process is root. A `nurse` takes components of its module only (`Nursery` sees to that), and is
        not started again when it dies. Raises KeeperFailed.
        """
        if not token or "\0" in token or len(token) > 128:
            raise ValueError("a keeper's token has 1 to 128 characters and no NUL")
        if no_new_privileges is None:
            no_new_privileges = os.geteuid() != 0
        options = ["no-new-privileges"] if no_new_privileges else []
        become_subreaper()
        command = [python or sys.executable, *(("-I", "-S") if nurse is None else ())]
        keeper = cls(token, program or find_program(), command, options, nurse)
        keeper._link = await keeper._open()
        keeper._up.set()
        keeper._watcher = asyncio.create_task(keeper._watch(), name="keeper")
        return keeper

    @property
    def pid(self) -> int:
        """The keeper's pid; another one after a restart."""
        assert self._link is not None
        return self._link.pid

    @property
    def running(self) -> int:
        """How many started steps are not over."""
        return len(self._minded)

    async def spawn(
        self,
        spec: ProcessSpec,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> Minded:
        """Starts a process; the descriptors become its own, None is /dev/null. The caller closes its copies
        after.

        Waits for a keeper that is just being restarted. Raises SpawnRefused, and KeeperLost where the keeper
        died over it. A caller who is cancelled has started nothing that lives on.
        """
        given = (stdin, stdout, stderr)
        stdio = "".join(letter for letter, fd in zip(frames.STDIO, given, strict=True) if fd is not None)
        fds = tuple(fd for fd in given if fd is not None)
        marked = replace(spec, env={**spec.env, marks.STEP_VARIABLE: self._token})
        return await self._begin(marked, lambda ident: frames.start(ident, marked, stdio), stdio, fds)

    async def launch(self, spec: ShimSpec) -> Shimmed:
        """Starts a component below a shim of its own, in its folder, which must be there.

        Waits for a keeper that is just being restarted. Raises SpawnRefused, and KeeperLost where keeper or
        shim died over it; nothing of it is alive then. A caller who is cancelled has started nothing that
        lives on.
        """
        process = marks.component(spec.process, spec.instance)
        leave, made = self._cgroups(spec)
        mark = marks.component_mark(spec.instance)
        try:
            minded = await self._begin(
                process, lambda ident: frames.shim(ident, spec, process, mark, leave, made), "", ()
            )
        except KeeperLost:
            await sweep_instance(spec.instance)
            raise
        assert minded.running is not None
        return Shimmed(spec.folder, minded.running, minded.release(), minded.told)

    async def _begin(
        self, spec: ProcessSpec, frame: Callable[[int], bytes], stdio: str, fds: tuple[int, ...]
    ) -> Minded:
        if self._closing:
            raise KeeperLost("the keeper is closed: nothing can be started any more")
        ident = next(self._idents)
        request = self._request(ident, spec, frame, stdio, fds)
        minded = request.minded
        try:
            await self._up.wait()
            link = self._link
            if self._closing or self.dead.is_set() or link is None:
                raise KeeperLost("the keeper is closed: nothing can be started any more")
        except BaseException:
            request.theirs.close()
            minded.withdraw(KeeperLost("not started"))
            raise
        self._minded[ident], self._links[ident] = minded, link
        watch = asyncio.create_task(self._forget_when_over(minded), name=f"step process {ident}")
        self._lingering.add(watch)
        watch.add_done_callback(self._lingering.discard)
        link.submit(request)
        try:
            await minded.started()
        except asyncio.CancelledError:
            current = self._links.get(ident, link)
            if current.withdraw(minded):
                minded.withdraw(KeeperLost("not started"))
            else:
                self._discard(minded, current)
            raise
        finally:
            self._links.get(ident, link).answered(minded)
        return minded

    def kill(self) -> None:
        """KILL to the keeper, one that hangs; what follows is what follows any death of it."""
        if self._link is not None:
            self._link.kill()

    async def close(self) -> None:
        """Kills every step and ends the keeper. Bounded; called again it waits for the first call."""
        if self._closing:
            await self._closed.wait()
            return
        self._closing = True
        self._up.set()  # those who wait for a restart learn that there is none
        if self._watcher is not None:
            self._watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watcher
        if self._link is not None:
            self._withdraw_unsent(self._link, "the keeper was closed before the start")
            for minded in list(self._minded.values()):
                self._discard(minded, self._link)
        await self._all_over(CLOSE_S)
        if self._link is not None:
            self._link.shut()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(KEEPER_END_S):
                    await self._link.ended.wait()
            if not self._link.ended.is_set():
                self._link.kill()
                await self._link.ended.wait()
            self._after(self._link, await self._orphans.sweep())
        await self._all_over(1.0)
        for task in list(self._lingering):
            task.cancel()
        await asyncio.gather(*self._lingering, return_exceptions=True)
        if self._cgroup is not None:
            self._cgroup.remove()
        self.dead.set()
        self._closed.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Starts

    def _cgroups(self, spec: ShimSpec) -> tuple[str, str]:
        """The cgroup that a shim goes to, out of the steps', and the one it makes to hold limits."""
        own = self._own_cgroup
        limited = {"memory": spec.memory_max_bytes, "cpu": spec.cpu_share}
        base = cgroup.with_controllers({name for name, limit in limited.items() if limit}, own)
        made = str(base / cgroup.component_folder_name(spec.instance)) if base else ""
        return (str(own) if own and (made or self._cgroup) else ""), made

    def _request(
        self,
        ident: int,
        spec: ProcessSpec,
        make: Callable[[int], bytes],
        stdio: str,
        fds: tuple[int, ...],
    ) -> Request:
        if not spec.argv or not spec.argv[0]:
            raise SpawnRefused(
                errno.EINVAL, Refusal.BAD_ARGUMENT, "no program was named: the first argument is empty"
            )
        try:
            frame = make(ident)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except ValueError as wrong:
            raise SpawnRefused(
                errno.EINVAL, Refusal.BAD_ARGUMENT, f"cannot start {spec.argv[0]!r}: {wrong}"
            ) from wrong
        except OSError as wrong:
            raise SpawnRefused(
                wrong.errno or 0, Refusal.NO_RESOURCES, f"cannot start {spec.argv[0]!r}: {wrong.strerror}"
            ) from wrong
        return Request(Minded(ident, spec, ours, self._cut_off), frame, stdio, fds, theirs)

    def _discard(self, minded: Minded, link: Link) -> None:
        minded.discard()
        if not minded.pid:
            asyncio.get_running_loop().call_later(LISTEN_S, link.drop, minded)

    async def _forget_when_over(self, minded: Minded) -> None:
        await minded.over.wait()
        self._minded.pop(minded.ident, None)
        self._links.pop(minded.ident, None)
        self._gone.pop(minded.ident, None)

    async def _all_over(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for minded in list(self._minded.values()):
                    await minded.over.wait()

    # Deaths

    def _cut_off(self, minded: Minded) -> None:
        """The minder's end is closed and it did not say that nothing lives: it was killed."""
        link = self._links.get(minded.ident)
        if minded.ident in self._gone:
            minded.settle_lost(self._gone.pop(minded.ident))
        elif link in self._swept:
            minded.settle_lost(self._swept[link])
        else:
            asyncio.get_running_loop().call_later(LOST_S, self._give_up_on, minded)

    def _give_up_on(self, minded: Minded) -> None:
        if not minded.over.is_set():
            log.error("no word about the processes of a dead minder", extra={"pid": minded.pid})
            minded.settle_lost(Swept(0))

    def _on_frame(self, frame: frames.Frame) -> None:
        if not isinstance(frame, frames.Gone):
            raise frames.FrameBroken(f"not a frame of the keeper itself: {frame}")
        minded = self._minded.get(frame.ident)
        if minded is None:
            return
        swept = Swept(frame.killed, frame.survivors)
        if minded.cut_off:
            minded.settle_lost(swept)
        else:
            self._gone[frame.ident] = swept  # the end of its own connection is still to be read

    def _after(self, link: Link, swept: Swept) -> None:
        """A keeper is dead and what it left was swept: whoever waits for that is answered."""
        self._swept = {link: swept}
        for minded in list(self._minded.values()):
            if self._links.get(minded.ident) is link and minded.cut_off:
                minded.settle_lost(swept)
        if swept.survivors:
            log.error("processes survive SIGKILL: %s", ", ".join(map(str, swept.survivors)))
            task = asyncio.create_task(self._orphans.persist(), name="orphans")
            self._lingering.add(task)
            task.add_done_callback(self._lingering.discard)

    @staticmethod
    def _withdraw_unsent(link: Link, why: str) -> None:
        for request in link.take_unsent():
            request.theirs.close()
            request.minded.withdraw(KeeperLost(why))

    async def _open(self) -> Link:
        link = Link(self._on_frame)
        given = os.environ if self._kind is None else self._kind.environment
        environment = {**given, marks.KEEPER_VARIABLE: self._token}
        for name in (marks.STEP_VARIABLE, marks.UP_VARIABLE):
            environment.pop(name, None)
        options = [*self._options, *(() if self._kind is None else self._kind.options)]
        if self._cgroup is not None:
            options.append(f"cgroup={self._cgroup.folder}")
        await link.open(
            self._program,
            self._python,
            environment,
            options,
            READY_S if self._kind is None else NURSERY_READY_S,
        )
        return link

    async def _watch(self) -> None:
        """Waits for the keeper's death, cleans up after it, starts the next."""
        while True:
            assert self._link is not None
            dead = self._link
            await dead.ended.wait()
            if self._kind is not None:
                self.dead.set()
                self._after(dead, await self._orphans.sweep())
                self._withdraw_unsent(dead, "the nursery died before the start")
                return
            self._up.clear()
            log.error("the keeper died; its steps end and a new one is started", extra={"pid": dead.pid})
            self._after(dead, await self._orphans.sweep())
            pause = 0.05
            while True:
                try:
                    self._link = await self._open()
                    break
                except KeeperFailed as wrong:
                    log.error("no new keeper: %s; trying again in %.2f s", wrong, pause)
                    await asyncio.sleep(pause)
                    pause = min(LONGEST_PAUSE_S, pause * 2)
            self.restarts += 1
            for request in dead.take_unsent():
                self._links[request.minded.ident] = self._link
                self._link.submit(request)
            self._up.set()
