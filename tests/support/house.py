"""One server, one Builder, one Supervisor and a tap on every Status, kept for all tests of a module.

    house = house_fixture("--operator", "ops")     # a fixture of the test module
    pytestmark = pytest.mark.asyncio(loop_scope="module")

    async def test_…(house: House) -> None:
        bake = await house.bake(f'<recipe name="r"><cli command="echo {house.canary()}"/></recipe>')
        story = await house.story(bake)

At its end the Builder must stop by itself with code 0, its log must hold no traceback, and no Status that
went over the bus a trace of any canary.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bakemesh.bus import Bus
from bakemesh.bus.server import EmbeddedServer
from bakemesh.protocol.builder.messages import BakeData, BakeOutcome, BakePaused, BakeRestarted, BakeStatus
from bakemesh.supervisor import Bake, Supervisor
from support.builder import RunningBuilder
from support.canary import StatusTap, canary, tapped
from support.mesh import Mesh, mesh
from support.waiting import eventually


def python(code: str) -> str:
    """A cli step's arguments for a Python snippet."""
    return f"<arg>{sys.executable}</arg><arg>-I</arg><arg>-S</arg><arg>-c</arg><arg><![CDATA[{code}]]></arg>"


class Gate:
    """A step waits at it until the test opens it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> None:
        self.path.touch()

    def shut(self) -> None:
        self.path.unlink(missing_ok=True)

    @property
    def wait(self) -> str:
        """The shell text that waits at it."""
        return f"while [ ! -e '{self.path}' ]; do sleep 0.02; done"


@dataclass
class House:
    """What a test works with."""

    net: Mesh
    node: RunningBuilder
    boss: Supervisor
    bus: Bus
    tap: StatusTap
    folder: Path
    canaries: list[str] = field(default_factory=list)
    _gates: int = 0

    def canary(self) -> str:
        """A new one; that it stays out of every Status is checked at the end."""
        self.canaries.append(canary())
        return self.canaries[-1]

    def gate(self) -> Gate:
        """A new one, shut."""
        self._gates += 1
        return Gate(self.folder / f"gate-{self._gates}")

    def held_at(self, gate: Gate, name: str, attributes: str = "") -> str:
        """A step that prints a canary and waits at the gate."""
        return (
            f'<cli name="{name}" shell="yes" data-interval-ms="0" {attributes}'
            f' command="echo {self.canary()}; {gate.wait}"/>'
        )

    async def bake(self, xml: str, **more: Any) -> Bake:
        """Sends a recipe to this Builder."""
        return await self.boss.bake(xml, node_id=self.node.node_id, **more)

    async def story(self, bake: Bake) -> list[BakeStatus]:
        """Every Status of a bake to its end, held against what is true of all bakes."""
        statuses = [status async for status in bake.status()]
        check_story(statuses, bake)
        return statuses

    async def reached(self, bake: Bake, stepindex: int, attempt: int = 1) -> None:
        """Returns when an attempt of the step has begun to print (it must print at once)."""
        async for chunk in bake.data():
            if (chunk.stepindex, chunk.attempt) == (stepindex, attempt):
                return

    @property
    def nats(self) -> EmbeddedServer:
        """The server."""
        return self.net.nats

    @property
    def log(self) -> str:
        """The Builder's log so far."""
        return self.node.log.read_text()


def check_story(statuses: Sequence[BakeStatus], bake: Bake) -> None:
    """What is true of every bake that has ended."""
    assert [s.serial for s in statuses] == list(range(1, len(statuses) + 1))
    assert {s.identity for s in statuses} == {bake.identity}
    assert [s.final for s in statuses] == [False] * (len(statuses) - 1) + [True]
    assert all(len(s.summary.encode()) <= 512 for s in statuses)
    # Paused and Restarted come in pairs; only the end may leave a rest open.
    rests = [s for s in statuses if isinstance(s, BakePaused | BakeRestarted)]
    for turn, status in enumerate(rests):
        assert isinstance(status, BakePaused if turn % 2 == 0 else BakeRestarted), summaries(rests)
    if len(rests) % 2:
        assert statuses[-1].outcome in ("cancelled", "failed"), summaries(statuses)
    assert all((s.kind == "outcome") == isinstance(s, BakeOutcome) for s in statuses)
    # pct never goes down, but by a RetryStep
    last = -1
    for status in statuses:
        if status.kind == "ack" and status.outcome == "retrying":
            last = -1
        assert status.pct >= last, [(s.kind, s.pct, s.summary) for s in statuses]
        last = status.pct


def summaries(statuses: Sequence[BakeStatus]) -> list[str]:
    """In words."""
    return [f"{s.type.rpartition('.')[2]} {s.kind} {s.outcome}: {s.summary}" for s in statuses]


def acks(statuses: Sequence[BakeStatus]) -> list[tuple[str | None, str | None]]:
    """(verb, outcome) of every acknowledgement."""
    return [(s.verb, s.outcome) for s in statuses if s.kind == "ack"]


def tale(statuses: Sequence[BakeStatus]) -> list[str]:
    """The story in short words: `start`, `0 begins`, `0 ok`, `ack Pause paused`, `Paused`, `Success`."""
    told = []
    for s in statuses:
        match s.kind:
            case "start":
                told.append("start")
            case "step":
                told.append(f"{s.stepindex} {s.outcome or 'begins'}")
            case "ack":
                told.append(f"ack {s.verb} {s.outcome}")
            case "outcome":
                told.append(s.type.rpartition(".")[2])
    return told


async def said(bake: Bake, check: Callable[[BakeStatus], Any]) -> BakeStatus:
    """The first Status, from serial 1, for which `check` is true."""
    async for status in bake.status():
        if check(status):
            return status
    raise AssertionError("the bake has ended and never said so")


async def output_of(bake: Bake) -> dict[tuple[int, str], bytes]:
    """Everything that the bake wrote, by (stepindex, stream)."""
    found: defaultdict[tuple[int, str], bytes] = defaultdict(bytes)
    async for chunk in bake.data():
        found[chunk.stepindex, chunk.stream] += chunk.data
    return dict(found)


async def chunks_of(bake: Bake) -> list[BakeData]:
    """Every chunk to the end."""
    return [chunk async for chunk in bake.data()]


@asynccontextmanager
async def running_house(
    folder: Path, *flags: str, name: str = "boss", node_id: str = "alpha"
) -> AsyncIterator[House]:
    """All of it, checked at the end."""
    async with mesh(folder, *flags, nodes=(node_id,), witnesses=("witness",)) as net:
        node = net.node
        async with (
            net.supervisor(name) as boss,
            net.connect("witness") as bus,
            tapped(bus) as tap,
        ):
            here = House(net, node, boss, bus, tap, folder)
            yield here
            await settled(here)
        if node.process is not None and node.process.returncode is None:
            assert await node.stop() == 0, here.log[-3000:]
        assert "Traceback" not in here.log, here.log[-6000:]
        if here.canaries:
            tap.assert_silent(*here.canaries)


async def settled(house: House) -> None:
    """Returns when the tap has heard the latest Status of every bake that the Supervisor knows of."""
    heard = len(house.tap.bodies)
    bake = await house.bake('<recipe name="last"><cli command="true"/></recipe>')
    await bake.outcome()
    await eventually(
        lambda: any(s.final and s.recipe_id == bake.recipe_id for s in house.tap.statuses[heard:]),
        what="the tap's last word",
    )


def house_fixture(*flags: str, node_id: str = "alpha") -> Any:
    """A fixture of that name for a test module whose tests share the module's event loop."""

    @pytest_asyncio.fixture(scope="module", loop_scope="module")
    async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
        async with running_house(tmp_path_factory.mktemp("house"), *flags, node_id=node_id) as here:
            yield here

    return house
