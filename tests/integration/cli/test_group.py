"""`up` with stand-in programs: the order, restarts, exit 6, stops, and a death of `up` itself."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from bakemesh.cli.running.component import ProcessComponent
from bakemesh.cli.running.group import Group
from bakemesh.cli.running.guarded import Guard
from bakemesh.restart import Policy

QUICK = Policy(never_quarantine=True, first_s=0.01, most_s=0.05, final_codes=frozenset({6}))


def program(text: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-u", "-c", textwrap.dedent(text)]


READY = """
    import json, os, signal, sys
    print("ready", json.dumps({"pid": os.getpid()}))
    signal.pause()
"""


class Told:
    """Everything that a group told, and a way to wait for it."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, dict]] = []
        self._changed = asyncio.Event()

    def tell(self, what, component, text, facts) -> None:
        self.events.append((str(what), component.name, facts))
        self._changed.set()

    def of(self, what: str) -> list[dict]:
        return [facts for seen, _, facts in self.events if seen == what]

    async def until(self, what: str, times: int = 1) -> list[dict]:
        async with asyncio.timeout(20):
            while len(self.of(what)) < times:
                self._changed.clear()
                await self._changed.wait()
        return self.of(what)


def component(name: str, guard: Guard, text: str) -> ProcessComponent:
    return ProcessComponent(name, lambda: program(text), lambda facts: str(facts.get("pid")), guard)


async def test_started_in_order_stopped_in_reverse_and_nothing_left():
    told = Told()
    with Guard() as guard:
        group = Group([(component(name, guard, READY), QUICK) for name in ("one", "two", "three")], told.tell)
        running = asyncio.create_task(group.run(lambda: group.stop(), None))
        assert await running is None
    assert [(what, name) for what, name, _ in told.events] == [
        ("ready", "one"),
        ("ready", "two"),
        ("ready", "three"),
        ("stopped", "three"),
        ("stopped", "two"),
        ("stopped", "one"),
    ]
    assert not [facts for facts in told.of("ready") if psutil.pid_exists(facts["pid"])]


async def test_a_dead_one_is_restarted_and_the_others_stay():
    told = Told()
    with Guard() as guard:
        group = Group([(component(name, guard, READY), QUICK) for name in ("one", "two")], told.tell)
        running = asyncio.create_task(group.run(lambda: None, None))
        first = (await told.until("ready", 2))[1]["pid"]
        os.kill(first, signal.SIGKILL)
        again = (await told.until("ready", 3))[2]["pid"]
        assert again != first
        assert told.of("died") == [{"code": -9}]
        assert told.events[-1][1] == "two"
        group.stop()
        await running


async def test_exit_code_6_is_not_restarted_and_ends_the_group():
    told = Told()
    with Guard() as guard:
        group = Group(
            [
                (component("bus", guard, READY), QUICK),
                (component("builder", guard, "raise SystemExit(6)"), QUICK),
            ],
            told.tell,
        )
        assert await group.run(lambda: pytest.fail("it was never ready"), None) == 6
    assert [(what, name) for what, name, _ in told.events] == [
        ("ready", "bus"),
        ("died", "builder"),
        ("given-up", "builder"),
        ("stopped", "bus"),
    ]


async def test_for_seconds_stops_by_itself():
    told = Told()
    with Guard() as guard:
        group = Group([(component("one", guard, READY), QUICK)], told.tell)
        assert await group.run(lambda: None, 0) is None
    assert told.of("stopped")


async def test_a_second_stop_kills_what_ignores_the_first():
    told = Told()
    deaf = READY.replace(
        "signal.pause()", "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    while 1: signal.pause()"
    )
    deaf = deaf.replace("print(", "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    print(", 1)
    with Guard() as guard:
        group = Group(
            [(component("deaf", guard, deaf), QUICK), (component("one", guard, READY), QUICK)], told.tell
        )
        running = asyncio.create_task(group.run(lambda: None, None))
        pids = [facts["pid"] for facts in await told.until("ready", 2)]
        group.stop()
        await told.until("stopped")  # "one"; the deaf one is next, and lets everybody wait
        group.stop()
        async with asyncio.timeout(10):
            await running
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


async def test_a_stop_while_one_is_not_ready_yet_ends_it():
    told = Told()
    never = "import signal\nprint('not ready')\nsignal.pause()"
    with Guard() as guard:
        group = Group(
            [(component("one", guard, READY), QUICK), (component("never", guard, never), QUICK)], told.tell
        )
        running = asyncio.create_task(group.run(lambda: pytest.fail("it was never ready"), None))
        await told.until("ready")
        group.stop()
        async with asyncio.timeout(10):
            assert await running is None
    assert told.events[-1][:2] == ("stopped", "one")


UP = """
import asyncio, sys
from bakemesh.cli.running.component import ProcessComponent
from bakemesh.cli.running.group import Group
from bakemesh.cli.running.guarded import Guard
from bakemesh.restart import BUILDER

command = [sys.executable, "-I", "-S", "-u", "-c", sys.argv[1]]
with Guard() as guard:
    def tell(what, component, text, facts):
        print(facts["pid"], flush=True)
    members = [(ProcessComponent(name, lambda: command, str, guard), BUILDER) for name in ("one", "two")]
    asyncio.run(Group(members, tell).run(lambda: None, None))
"""
STUBBORN = """
import json, os, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sleeper = [sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"]
child = subprocess.Popen(sleeper, start_new_session=True)
print("ready", json.dumps({"pid": child.pid}))
signal.pause()
while True: signal.pause()
"""


def test_nothing_is_left_when_up_is_killed(tmp_path: Path):
    script = tmp_path / "up.py"
    script.write_text(UP)
    with subprocess.Popen([sys.executable, str(script), STUBBORN], stdout=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        grandchildren = [psutil.Process(int(up.stdout.readline())) for _ in range(2)]
        everything = [*psutil.Process(up.pid).children(recursive=True), *grandchildren]
        up.kill()
    _, alive = psutil.wait_procs(everything, timeout=30)
    assert alive == []
