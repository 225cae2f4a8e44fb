"""A stand-in for the Builder that is made to be killed; its settings are JSON in `OWNER`.

Starts a keeper, `steps` zoos of `kinds` and `components` (markers, in folders of `home`), writes a JSON line
with the pids, then queues starts or tells how its steps end. Bounded: it ends by itself after 40 s.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bakemesh.processes import Keeper, ProcessSpec
from bakemesh.processes.cgroup import StepCgroup
from support.processes import PATH, Components, grow, grow_component


def tell(**facts: Any) -> None:
    """One line to the test."""
    print(json.dumps(facts), flush=True)


async def main(settings: dict[str, Any]) -> None:
    """The life of the stand-in."""
    if not settings.get("cgroup", True):
        StepCgroup.make = classmethod(lambda cls, token: None)  # type: ignore[method-assign, assignment]
    marker = settings["marker"]
    keeper = await Keeper.start(settings.get("token", marker))
    steps = [
        await grow(keeper, settings.get("kinds", "plain"), settings.get("n", 3), marker)
        for _ in range(settings.get("steps", 1))
    ]
    components = Components(Path(settings.get("home", "/nonexistent")))
    shimmed = [
        await grow_component(keeper, components, settings.get("kinds", "plain"), settings.get("n", 3), one)
        for one in settings.get("components", ())
    ]
    if queued := settings.get("queued", 0):
        os.kill(keeper.pid, signal.SIGSTOP)
        argv = ["/bin/sh", "-c", f"echo ran >> {settings['file']}", marker]
        starts = [asyncio.create_task(keeper.spawn(ProcessSpec(argv, PATH))) for _ in range(queued)]
        await asyncio.sleep(0)  # each start has its turn and is in the keeper's queue
        assert not any(start.done() for start in starts)
    tell(
        keeper=keeper.pid,
        minders=[step.minder for step in steps],
        mains=[step.pid for step in steps],
        shims=[one.shim for one in shimmed],
        instances=[one.instance for one in shimmed],
    )
    if settings.get("ends", False):
        for step in steps:
            end = await step.exited()
            tell(lost=end.lost, code=end.code, signal=end.signal)
    await asyncio.sleep(40)


asyncio.run(main(json.loads(os.environ["OWNER"])))
