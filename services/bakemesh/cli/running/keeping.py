"""Keeping a component alive: start, wait for its end, ask the restart policy, again."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from enum import StrEnum

from bakemesh.cli.running.component import Component, Died, Ready
from bakemesh.restart import Ended, LetBe, Policy, Record, Restart, decide


class What(StrEnum):
    """What happened to a component."""

    READY = "ready"
    DIED = "died"
    RESTARTS = "restarts"
    QUARANTINED = "quarantined"
    GIVEN_UP = "given-up"
    STOPPED = "stopped"


Tell = Callable[[What, Component, str, dict[str, object]], None]


class Kept:
    """One component under its policy. `ready` is set while it is; `run` returns when it is let be, with its
    code.
    """

    def __init__(self, component: Component, policy: Policy, tell: Tell) -> None:
        self.component, self._policy, self._tell = component, policy, tell
        self.ready = asyncio.Event()
        self.was_ready = False

    async def run(self) -> int:
        """Starts and restarts it until the policy lets it be. Returns its last exit code."""
        record = Record()
        while True:
            began = time.monotonic()
            try:
                found = await self.component.start()
                self._say_ready(found)
                code = await self.component.ended()
            except Died as died:
                code = died.code
            self.ready.clear()
            now = time.monotonic()
            decision, record = decide(self._policy, record, Ended(code, now - began, now, random.random()))
            self._say(What.DIED, _ended(code), code=code)
            if isinstance(decision, LetBe):
                self._say(What.GIVEN_UP, f"not started again: {decision.reason}", reason=decision.reason)
                return code
            pause = decision.pause_s if isinstance(decision, Restart) else decision.probe_s
            what = What.RESTARTS if isinstance(decision, Restart) else What.QUARANTINED
            self._say(what, f"starts again in {pause:.1f} s", pause_s=round(pause, 3))
            await asyncio.sleep(pause)

    def _say_ready(self, found: Ready) -> None:
        self.was_ready = True
        self.ready.set()
        self._say(What.READY, found.text, **found.facts)

    def _say(self, what: What, text: str, **facts: object) -> None:
        self._tell(what, self.component, text, facts)


def _ended(code: int) -> str:
    return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
