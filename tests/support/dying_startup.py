"""A real Startup Supervisor that kills itself right after a chosen transaction of its journal (`DIE_AT`).

offered: before anything was journaled    kicked: the own node's boot    prepared: a sealed recipe
ended: a bring-up's success    announced: Ready was sealed    delivered: a letter is out
"""

from __future__ import annotations

import os
import signal
import sys

from bakemesh.startup import __main__ as program
from bakemesh.startup.desk import Desk
from bakemesh.startup.journal import Changes, Journal

POINT = os.environ.get("DIE_AT", "")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Dying(Journal):
    """Dies once it has committed."""

    def commit(self, changes: Changes) -> None:
        super().commit(changes)
        sites = [site for site in changes.sites.values() if site is not None]
        reached = {
            "kicked": "boot" in changes.state,
            "prepared": bool(changes.recipes),
            "ended": bool(changes.dropped) and any(site.done for site in sites),
            "announced": "announced" in changes.state,
        }
        if reached.get(POINT):
            die()

    def out(self, number: int) -> None:
        super().out(number)
        if POINT == "delivered":
            die()


if __name__ == "__main__":
    from bakemesh.startup import service

    service.Journal = Dying  # type: ignore[misc]
    if POINT == "offered":
        offer = Desk.offer

        async def offered(self: Desk, plan: object) -> None:
            await offer(self, plan)  # type: ignore[arg-type]
            die()

        Desk.offer = offered  # type: ignore[method-assign, assignment]
    sys.exit(program.main())
