"""Components that are one Python module, started by a fork of a process that has imported it already.

    nursery = Nursery(keeper, token, Nurse("bakemesh.crankhost", preload=…, common=environment))
    shimmed = await nursery.launch(spec)

Guarantees: those of `Keeper.launch`; a start never fails because of the nursery: what it cannot start, or has
lost with nothing of it alive, the keeper executes. Only the first starts of all wait for it to come up, which
takes as long as one of them would by itself, and for `FIRST_S` at most; one that hangs is killed. Components
run on when it dies. Its code is that of its own start, whatever is installed meanwhile: it ends with this
process, and the next one has a new one.

    no process ──first start, or `warm`──→ coming up ──→ up ──dies──→ pause ──→ coming up …
                                               └────── fails ──────────↑
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

from bakemesh.processes.errors import KeeperFailed, KeeperLost
from bakemesh.processes.keeper import Keeper
from bakemesh.processes.nurse import Nurse
from bakemesh.processes.shimmed import Shimmed
from bakemesh.processes.spec import ShimSpec

FIRST_S = 10.0
HUNG_S = 30.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
WELL_S = 60.0  # one that lived so long is no failed start

log = logging.getLogger(__name__)


class Nursery:
    """Starts components by fork where it can, else by the keeper. Its process is not started before it is
    wanted."""

    def __init__(
        self,
        keeper: Keeper,
        token: str,
        nurse: Nurse,
        *,
        program: Path | None = None,
        python: str | None = None,
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        self._keeper = keeper
        self._token, self._nurse = token, nurse
        self._program, self._python = program, python
        self._first_pause_s = first_pause_s
        self._nursing: Keeper | None = None
        self._tried = asyncio.Event()  # it is up, or has failed once
        self._wanted = 0.0  # since when
        self._life: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The pid of its process; None where there is none."""
        return None if self._nursing is None else self._nursing.pid

    def warm(self) -> None:
        """Starts its process where it was not wanted before."""
        if self._life is None and not self._closed:
            self._wanted = asyncio.get_running_loop().time()
            self._life = asyncio.create_task(self._live(), name="nursery")

    async def launch(self, spec: ShimSpec) -> Shimmed:
        """As `Keeper.launch`."""
        if self._nurse.serves(spec) and not self._closed:
            self.warm()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._wanted + FIRST_S):
                    await self._tried.wait()
            if (nursing := self._nursing) is not None:
                late = asyncio.get_running_loop().call_later(HUNG_S, self._give_up, nursing)
                try:
                    return await nursing.launch(spec)
                except KeeperLost:  # nothing of it is alive: `Keeper.launch` has swept it
                    if self._closed:
                        raise
                finally:
                    late.cancel()
        return await self._keeper.launch(spec)

    async def close(self) -> None:
        """Ends its process; components run on."""
        self._closed = True
        self._tried.set()
        if self._life is not None:
            self._life.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._life
        if self._nursing is not None:
            await self._nursing.close()
            self._nursing = None

    def _give_up(self, nursing: Keeper) -> None:
        if nursing is self._nursing:
            log.error(
                "the nursery (pid %d) has not started a component for %.0f s: it is killed",
                nursing.pid,
                HUNG_S,
            )
            nursing.kill()

    async def _live(self) -> None:
        loop = asyncio.get_running_loop()
        pause, said = self._first_pause_s, False
        while True:
            began = loop.time()
            try:
                self._nursing = await Keeper.start(
                    self._token, nurse=self._nurse, program=self._program, python=self._python
                )
                self._tried.set()
                log.log(logging.WARNING if said else logging.DEBUG, "the nursery is up")
                await self._nursing.dead.wait()
                nursing, self._nursing = self._nursing, None
                await nursing.close()
                why = f"it died (pid {nursing.pid})"
            except KeeperFailed as wrong:
                self._tried.set()
                why = str(wrong)
            if loop.time() - began > WELL_S:
                pause, said = self._first_pause_s, False
            if not said:
                log.warning("no nursery: %s; components start slower meanwhile, it is tried again", why)
            said = True
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE_S, pause * 2)
