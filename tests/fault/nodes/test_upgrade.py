"""A rolling upgrade: the Builder of one node is replaced by a newer one under load, an older one beside it.

The newer one has another version, an entry in its SystemStatus and a kind of step that the older one does not
know. Bakes go on by the rules of recovery, Data is gap-free, components run on and are the newer one's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bakemesh.bus.reader import read
from bakemesh.protocol import storage, subjects
from bakemesh.protocol.builder.node import ComponentVerb
from bakemesh.supervisor import Bake, Supervisor
from support import newer
from support.builder import RunningBuilder
from support.house import check_story
from support.mesh import Mesh, mesh
from support.processes import gone, new_marker
from support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
LINES = 300


def counting(pace_s: float) -> str:
    """A step that counts to LINES."""
    return f"n=0; while [ $n -lt {LINES} ]; do echo $n; n=$((n+1)); sleep {pace_s}; done"


def counted() -> bytes:
    return b"".join(b"%d\n" % n for n in range(LINES))


def recipe(name: str, command: str, attributes: str = "") -> str:
    step = f'<cli shell="yes" data-interval-ms="0" {attributes} command="{command}"/>'
    return f'<recipe name="{name}">{step}</recipe>'


@dataclass
class Load:
    """Short recipes without a pause, one after the other; each is followed to its end."""

    boss: Supervisor
    node_id: str
    ended: list[str] = field(default_factory=list)
    bakes: list[Bake] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Load]:
        """While the block runs; what was sent by its end has ended too."""
        stop = asyncio.Event()
        task = asyncio.create_task(self._run(stop))
        try:
            yield self
            stop.set()
            await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            number = len(self.bakes)
            xml = recipe("short", f"echo {number}", 'retryable="yes"')
            bake = await self.boss.bake(xml, node_id=self.node_id)
            self.bakes.append(bake)
            output = {}
            async for chunk in bake.data():
                output[chunk.attempt] = output.get(chunk.attempt, b"") + chunk.data
            outcome = await bake.outcome()
            assert outcome.outcome == "success", outcome.summary
            assert output[max(output)] == b"%d\n" % number
            self.ended.append(bake.recipe_id)

    async def more(self, count: int = 3) -> None:
        """Returns when so many more have ended."""
        wanted = len(self.ended) + count
        await eventually(lambda: len(self.ended) >= wanted, what="more short bakes", within=60)


async def node(boss: Supervisor, node_id: str) -> Any:
    return next((one for one in await boss.nodes() if one.node_id == node_id and one.alive), None)


async def component(boss: Supervisor, node_id: str, name: str) -> Mapping[str, str] | None:
    info = await node(boss, node_id)
    rows = info.status.components if info else []
    return next((row for row in rows if row["name"] == name and row["state"] == "ready"), None)


async def terminals(net: Mesh, bake: Bake) -> list[str]:
    """Every terminal of a bake that the streams hold."""
    found = []
    async with net.connect("ops") as bus:
        pattern = f"{bus.mesh}.{bake.node_id}.boss.{bake.recipe_id}.{subjects.BAKE}.*"
        async for one in read(bus, storage.hub_status_stream(bus.mesh), pattern, end="last"):
            last = one.subject.rpartition(".")[2]
            if last in ("Success", "Failed", "Cancelled"):
                found.append(last)
    return found


async def replaced(builder: RunningBuilder, environment: Mapping[str, str], how: str) -> None:
    """The Builder ends and another version starts on its state folder."""
    if how == "TERM":
        assert await builder.stop() == 0
    else:
        await builder.kill9()
    builder.environment = environment
    await builder.start()


@pytest.mark.parametrize("how", ["TERM", "KILL"])
async def test_a_builder_is_replaced_by_a_newer_one_under_load(how: str, tmp_path: Path) -> None:
    environment = newer.install(tmp_path / "newer")
    marker = new_marker()
    async with (
        mesh(tmp_path, "--on-stop", "keep", nodes=("alpha", "beta")) as net,
        net.supervisor("boss") as boss,
    ):
        beta = net.nodes["beta"]
        before = await node(boss, "beta")
        ticks = f"while :; do echo {marker}; sleep 0.2; done"
        crank = f'<crank command="sh -c &quot;{ticks}&quot;"/>'
        made = await boss.bake(
            f'<recipe name="up"><module name="ticker" restart="always">{crank}</module>'
            '<attach module="ticker"/></recipe>',
            node_id="beta",
        )
        assert (await made.outcome()).outcome == "success"
        row = await eventually(lambda: component(boss, "beta", "ticker"), what="the component", within=30)
        async with Load(boss, "beta").running() as load, Load(boss, "alpha").running() as beside:
            again = await boss.bake(recipe("again", counting(0.02), 'retryable="yes"'), node_id="beta")
            once = await boss.bake(recipe("once", counting(0.02)), node_id="beta")
            child = '<recipe name="inner" node="{}">' + recipe("x", counting(0.02), 'retryable="yes"')[17:]
            across = await boss.bake(f'<recipe name="outer">{child.format("beta")}</recipe>', node_id="alpha")
            for bake in (again, once):
                async for _ in bake.data():
                    break
            await load.more()
            await replaced(beta, environment, how)
            assert not gone(int(row["pid"])), "the component runs on"
            await load.more()
            await beside.more()

            # The older ones read what the newer one says.
            after = await eventually(lambda: node(boss, "beta"), what="beta", within=30)
            assert after.status.version == newer.VERSION
            assert newer.STEP_KIND in after.status.stepkinds
            assert after.status.boot == before.status.boot, "an upgrade is no boot"
            older = await node(boss, "alpha")
            assert older.status.version == before.status.version

            # Recovery: run again where that is allowed, else failed; every byte, every Status once.
            statuses = [status async for status in again.status()]
            check_story(statuses, again)
            assert statuses[-1].outcome == "success"
            output: dict[int, bytes] = {}
            async for chunk in again.data():  # it checks that no seq is left out
                output[chunk.attempt] = output.get(chunk.attempt, b"") + chunk.data
            assert output[max(output)] == counted()
            assert max(output) == 2
            failed = await once.outcome()
            assert (failed.outcome, failed.code) == ("failed", "builder_restarted")
            assert (await across.outcome()).outcome == "success"

            # From the newer one to the older one.
            inner = '<recipe name="inner" node="alpha"><cli command="true"/></recipe>'
            back = await boss.bake(f'<recipe name="back">{inner}</recipe>', node_id="beta")
            assert (await back.outcome()).outcome == "success"

        # The same process, the newer one's by now: it is reported, and does what is asked.
        now = await eventually(lambda: component(boss, "beta", "ticker"), what="the component", within=30)
        assert (now["pid"], now["restarts"]) == (row["pid"], row["restarts"])
        for bake in (again, once, across, back, *load.bakes, *beside.bakes):
            assert len(await terminals(net, bake)) == 1, bake.recipe_id
        result = await boss.control_component(ComponentVerb.STOP, "ticker", node="beta")
        assert result.accepted
        await eventually(lambda: gone(int(row["pid"])), what="the component stopped", within=30)

        # And back again: what the newer one left is the older one's.
        await replaced(beta, {}, how)
        last = await eventually(lambda: node(boss, "beta"), what="beta", within=30)
        assert last.status.version == before.status.version
        final = await boss.bake('<recipe name="final"><cli command="true"/></recipe>', node_id="beta")
        assert (await final.outcome()).outcome == "success"


PRESSER = """
import asyncio

async def crank(api):
    number = 0
    while True:
        await api.post("Pressed", {"Number": number})
        number += 1
        await asyncio.sleep(0.01)
"""
COUNTER = """
async def crank(api):
    with open(api.parameter("file"), "a") as file:
        async for message in api.messages():
            print(message.entries["Number"], file=file, flush=True)
            api.watch("last", message.entries["Number"])
"""


@pytest.mark.parametrize("how", ["TERM", "KILL"])
async def test_cranks_hear_each_other_while_a_builder_is_replaced(how: str, tmp_path: Path) -> None:
    environment = newer.install(tmp_path / "newer")
    heard = tmp_path / "heard"
    modules = {
        "counter": (
            "beta",
            COUNTER,
            '<trigger name="Pressed" type="Test.Pressed"/>'
            f'<parameter name="file" type="String" value="{heard}"/>',
        ),
        "presser": ("alpha", PRESSER, '<post name="Pressed" type="Test.Pressed"/>'),
    }

    def numbers() -> list[int]:
        return [int(line) for line in heard.read_text().splitlines()] if heard.exists() else []

    async def further(by: int) -> None:
        wanted = len(numbers()) + by
        await eventually(lambda: len(numbers()) >= wanted, what="more presses heard", within=30)

    async with (
        mesh(tmp_path, "--on-stop", "keep", nodes=("alpha", "beta"), guard=False) as net,
        net.supervisor("boss") as boss,
    ):
        for name, (where, script, more) in modules.items():
            path = tmp_path / f"{name}.py"
            path.write_text(script)
            module = f'<module name="{name}"><crank script="{path}" function="crank"/>{more}</module>'
            made = await boss.bake(
                f'<recipe name="up">{module}<attach module="{name}"/></recipe>', node_id=where
            )
            outcome = await made.outcome()
            assert outcome.outcome == "success", outcome.summary
        await further(50)
        row = await eventually(lambda: component(boss, "beta", "counter"), what="the counter", within=30)
        await replaced(net.nodes["beta"], environment, how)
        await further(50)
        now = await eventually(lambda: component(boss, "beta", "counter"), what="the counter", within=30)
        assert (now["pid"], now["restarts"]) == (row["pid"], row["restarts"])
        after = len(numbers())

        async def watched() -> bool:
            found = await component(boss, "beta", "counter")
            values: Any = found["watch"] if found else {}
            return int(values.get("last", 0)) > after

        await eventually(watched, what="the newer Builder hearing of the counter", within=30)
        pressing = await eventually(
            lambda: component(boss, "alpha", "presser"), what="the presser", within=30
        )
        for name, node_id in (("presser", "alpha"), ("counter", "beta")):
            assert (await boss.control_component(ComponentVerb.STOP, name, node=node_id)).accepted
        for pid in (int(pressing["pid"]), int(row["pid"])):
            await eventually(lambda pid=pid: gone(pid), what="the components stopped", within=30)
        found = numbers()
        assert found == list(range(found[0], found[0] + len(found))), "a press was lost, or came twice"
        assert found[0] == 0
