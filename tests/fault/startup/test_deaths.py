"""A Startup Supervisor that dies at any moment, Builders that die, a server that is away, nodes that reboot.

Real processes and a real server. Whatever happens: one bring-up a (boot, group) that succeeds, one Ready a
boot, no component doubled, what did not change keeps its pid.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from bakemesh.bus import Bus
from bakemesh.bus.errors import BusError
from bakemesh.bus.kv import Bucket
from bakemesh.bus.server import EmbeddedServer
from bakemesh.processes import marks
from bakemesh.protocol import storage
from bakemesh.protocol.builder.messages import Result, SystemStatus
from bakemesh.protocol.message import decode
from bakemesh.protocol.rights import startup_name
from bakemesh.protocol.startup import PsySpecMessage
from bakemesh.protocol.subjects import RECIPE, build, pattern
from support.builder import RunningBuilder, builder
from support.nats import connect, server
from support.startup import Heard, RunningStartup, listening, startup
from support.waiting import eventually

SEEDS = range(4)


def module(name: str, node: str = "alpha", seconds: int = 600, depends: str = "") -> str:
    more = f' depends="{depends}"' if depends else ""
    crank = f'<crank command="sleep {seconds}"/>'
    return f'<module name="{name}" node="{node}" ready-ms="100"{more}>{crank}</module>'


def psyspec(*modules: str) -> str:
    return f'<psySpec name="demo"><node name="alpha"/><node name="beta"/>{"".join(modules)}</psySpec>'


THREE = psyspec(module("one"), module("two", depends="one"), module("far", "beta"))


@dataclass
class House:
    nats: EmbeddedServer
    alpha: RunningBuilder
    bus: Bus
    heard: Heard
    folder: Path
    recipes: list[bytes]  # envelope ids of bring-ups that were sent
    stack: AsyncExitStack

    async def node(self, node_id: str) -> RunningBuilder:
        """One more Builder."""
        return await self.stack.enter_async_context(
            builder(self.folder, self.nats.url, *STOP, node_id=node_id)
        )

    async def components(self, node_id: str) -> dict[str, int]:
        """The pids of what is ready on a node, by its own SystemStatus."""
        with contextlib.suppress(BusError):
            entry = await Bucket(self.bus, storage.nodes_bucket(self.bus.mesh)).get(node_id)
            if entry is not None:
                status = decode(entry.value).message
                assert isinstance(status, SystemStatus)
                return {each["name"]: each["pid"] for each in status.components if each["state"] == "ready"}
        return {}

    async def ready(self, node_id: str, *names: str) -> dict[str, int]:
        """Waits until exactly these are ready; their pids, which live."""
        found: dict[str, int] = {}

        async def there() -> bool:
            nonlocal found
            found = await self.components(node_id)
            return found.keys() == set(names) and all(map(psutil.pid_exists, found.values()))

        await eventually(there, within=60, what=f"{names} ready on {node_id}")
        return found

    async def give(self, text: str) -> None:
        subject = build(self.bus.mesh, "alpha", "ops", startup_name("alpha"), PsySpecMessage.TYPE)
        answer = (await self.bus.request(subject, PsySpecMessage(psyspec=text, issuedby="ops"))).message
        assert isinstance(answer, Result)
        assert answer.accepted, answer


STOP = ("--on-stop", "stop")


@asynccontextmanager
async def house(folder: Path) -> AsyncIterator[House]:
    async with AsyncExitStack() as stack:
        nats = await stack.enter_async_context(server(folder))
        alpha = await stack.enter_async_context(builder(folder, nats.url, *STOP))
        bus = await stack.enter_async_context(connect(nats.url))
        heard = await stack.enter_async_context(listening(bus))
        recipes: list[bytes] = []

        def sent(delivery: object) -> None:
            recipes.append(delivery.received.id)  # type: ignore[attr-defined]

        tap = await bus.subscribe(pattern(bus.mesh, RECIPE, party=startup_name("alpha")), sent)
        stack.push_async_callback(tap.stop)
        yield House(nats, alpha, bus, heard, folder, recipes, stack)


def processes_of(folder: Path) -> list[int]:
    """Every main process of a component below this folder."""
    found = []
    for process in psutil.process_iter(["environ", "name"]):
        if process.info["name"] == "sleep" and marks.INSTANCE_VARIABLE in (process.info["environ"] or {}):
            with contextlib.suppress(psutil.Error):
                if process.cwd().startswith(str(folder)):
                    found.append(process.pid)
    return found


async def done(running: RunningStartup, here: House) -> None:
    """Everything of THREE is up, once."""
    alpha = await here.ready("alpha", "one", "two")
    beta = await here.ready("beta", "far")
    await eventually(lambda: here.heard.ready, within=60, what="Ready")
    assert sorted(processes_of(here.folder)) == sorted([*alpha.values(), *beta.values()])
    assert len(here.heard.ready_ids) == 1
    # A restart now finds nothing to do: what it answers comes after whatever it would have sent.
    recipes = set(here.recipes)
    told = len(here.heard.reconciled)
    await here.give(THREE)
    await eventually(lambda: len(here.heard.reconciled) >= told + 2, within=60, what="Reconciled")
    assert set(here.recipes) == recipes
    assert len(here.heard.ready_ids) == 1
    assert await here.ready("alpha", "one", "two") == alpha


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", SEEDS)
async def test_killed_at_random_moments_of_a_bring_up(tmp_path, seed):
    draw = random.Random(seed)
    async with house(tmp_path) as here:
        await here.node("beta")
        async with startup(tmp_path, here.nats.url, "alpha", THREE, wait=False) as running:
            for _ in range(4):
                since = len(running.lines)
                # Somewhere between its start and a while after the bring-up's end, wherever that is today.
                moment = draw.choice(["launch", "ready", "recipe", "component", "later"])
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(draw.uniform(0.05, 4.0)):
                        if moment == "ready":
                            await running.until("ready", since=since)
                        elif moment == "recipe":
                            await eventually(lambda: here.recipes, what="a recipe")
                        elif moment == "component":
                            await running.until("component", since=since)
                        elif moment == "later":
                            await running.until("announced", since=since, times=100)
                await running.kill9()
                await running.launch()
            await running.kill9()
            await running.start()  # `done` asks it, and all may be done already
            await done(running, here)
        assert len(set(here.recipes)) == 2, "one bring-up a node"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("point", ["offered", "kicked", "prepared", "ended", "announced", "delivered"])
async def test_killed_at_each_point_of_its_journal(tmp_path, point):
    async with house(tmp_path) as here:
        await here.node("beta")
        async with startup(
            tmp_path,
            here.nats.url,
            "alpha",
            THREE,
            program="support.dying_startup",
            environ={"DIE_AT": point},
        ) as running:
            assert await running.ended() == -9, running.log.read_text()
            running.environ = {}
            await running.start()
            await done(running, here)
        assert len(set(here.recipes)) == 2, "one bring-up a node"


@pytest.mark.timeout(240)
async def test_the_builder_killed_in_the_middle_of_a_bring_up(tmp_path):
    async with house(tmp_path) as here:
        await here.node("beta")
        slow = psyspec(module("one"), module("two", depends="one"), module("far", "beta")).replace(
            'ready-ms="100"', 'ready-ms="700"'
        )
        async with startup(tmp_path, here.nats.url, "alpha", slow) as running:
            for _ in range(3):
                await eventually(lambda: here.recipes, what="the bring-up")
                await here.alpha.kill9()
                await here.alpha.start()
            alpha = await here.ready("alpha", "one", "two")
            beta = await here.ready("beta", "far")
            await running.until("announced", deadline=60)
            assert sorted(processes_of(tmp_path)) == sorted([*alpha.values(), *beta.values()])
        assert len(here.heard.ready_ids) == 1


@pytest.mark.timeout(240)
async def test_the_server_restarted_in_the_middle_of_a_bring_up(tmp_path):
    async with house(tmp_path) as here:
        await here.node("beta")
        async with startup(tmp_path, here.nats.url, "alpha", THREE) as running:
            await eventually(lambda: here.recipes, what="the bring-up")
            await here.nats.kill()
            await here.nats.start()
            await here.ready("alpha", "one", "two")
            await here.ready("beta", "far")
            await running.until("announced", deadline=60)
            again = await here.alpha.stop()
            assert again == 0
        assert len(set(here.recipes)) <= 2


@pytest.mark.timeout(240)
async def test_a_peer_that_comes_late_and_one_that_is_started_anew(tmp_path):
    async with house(tmp_path) as here:
        async with startup(tmp_path, here.nats.url, "alpha", THREE) as running:
            await running.until("announced", deadline=60)
            alpha = await here.ready("alpha", "one", "two")
            beta = await here.node("beta")
            first = await here.ready("beta", "far")
            # Killed and started again it is the same boot: its component runs on, and nobody sends anything.
            await beta.kill9()
            await beta.start()
            assert await here.ready("beta", "far") == first
            assert len(set(here.recipes)) == 2
            # Stopped with its components it is another boot.
            assert await beta.stop() == 0
            assert not psutil.pid_exists(first["far"])
            await beta.start()
            second = await here.ready("beta", "far")
            assert second != first
            assert len(set(here.recipes)) == 3
            assert await here.ready("alpha", "one", "two") == alpha
        assert len(here.heard.ready_ids) == 1


@pytest.mark.timeout(240)
async def test_a_changed_psyspec_while_it_is_killed(tmp_path):
    async with house(tmp_path) as here:
        await here.node("beta")
        async with startup(tmp_path, here.nats.url, "alpha", THREE) as running:
            await running.until("announced", deadline=60)
            before = await here.ready("alpha", "one", "two")
            await here.ready("beta", "far")
            changed = psyspec(
                module("one"), module("two", seconds=601), module("new"), module("far", "alpha")
            )
            await here.give(changed)
            await running.kill9()
            await running.start()
            after = await here.ready("alpha", "one", "two", "new", "far")
            await here.ready("beta")
            assert after["one"] == before["one"]
            assert after["two"] != before["two"]
            await eventually(
                lambda: {each.message.node for each in here.heard.reconciled} == {"alpha", "beta"},
                within=60,
                what="Reconciled of both",
            )
            assert sorted(processes_of(tmp_path)) == sorted(after.values())
        ids = [(each.message.node, each.id) for each in here.heard.reconciled]
        assert len(set(ids)) == 2
        assert len(here.heard.ready_ids) == 1
