"""kill -9 of everything, in turn and then at random, while two nodes bake and run components; then the peace,
and what must be true after it.

    BAKEMESH_KILLS_S=300 BAKEMESH_SEED=7 pytest tests/fault/nodes/test_random_kills.py    # a long run

Killed are the nats-server (a single one, or the leader of three), the Builder on b, its keeper, a shim, a
component, and the Startup Supervisor. `bakemesh up` of each node lives on: it is who brings them back.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bakemesh.bus import Bus
from bakemesh.bus.errors import BusError
from bakemesh.bus.kv import Bucket
from bakemesh.bus.reader import read
from bakemesh.protocol import storage, subjects
from bakemesh.protocol.admit import Delivery
from bakemesh.protocol.builder.messages import BakeData, BakeStatus
from bakemesh.protocol.message import Received, decode
from bakemesh.protocol.startup import Ready
from bakemesh.supervisor import Bake, Supervisor
from bakemesh.supervisor.errors import RecipeRejected, SupervisorError
from support import invariants
from support.cluster import cluster, leader
from support.commandline import Up
from support.invariants import PlannedStep, Story
from support.kills import NodeProcesses, kill9, order, with_traces_of
from support.modules import Board, board
from support.nats import MESH, server
from support.waiting import eventually

KILLS_S = float(os.environ.get("BAKEMESH_KILLS_S", "25"))
SEED = int(os.environ.get("BAKEMESH_SEED", "3"))
SHORTEST_S, LONGEST_S = 0.3, 2.5
WORKERS = 2  # bakes side by side on each node
PEACE_S = 150.0  # for outages to end and pauses between restarts to be over
NODES = ("a", "b")
TARGETS = ("nats", "builder", "keeper", "shim", "component", "startup")

STEP = """\
import hashlib, os, sys, time
ledger, tag, lines, pause = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
os.write(file, (tag + "\\n").encode())
for number in range(lines):
    digest = hashlib.sha256(f"{tag} {number}".encode()).hexdigest()
    os.write(1, b"%06d %s\\n" % (number, digest.encode()))
    time.sleep(pause)
"""

# Holds a lock as long as anything of it lives, its own child too: a second one beside it finds out.
COMPONENT = """\
import fcntl, os, subprocess, sys
ledger, name = sys.argv[1], os.environ["BAKEMESH_COMPONENT"]
lock = os.open("lock", os.O_WRONLY | os.O_CREAT, 0o600)
os.set_inheritable(lock, True)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    how = "alone"
except OSError:
    how = "beside another"
file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
os.write(file, f"{name} {how}\\n".encode())
subprocess.run(["sleep", "100000"], close_fds=False)
"""

POSTER = """\
import os, time
async def crank(api):
    file = os.open(api.parameter("ledger"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    while api.should_continue():
        number = time.time_ns()
        await api.post("Tick", {"Number": number})
        os.write(file, f"{number}\\n".encode())
        await api.wait_for_message(0.2)
"""

TAKER = """\
import os
async def crank(api):
    file = os.open(api.parameter("ledger"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    async for message in api.messages():
        os.write(file, f"{message.entries['Number']}\\n".encode())
"""


class Ledgers:
    """The files that steps and components write into; an append of a line is one write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.steps, self.starts = folder / "steps", folder / "starts"
        self.posted, self.taken = folder / "posted", folder / "taken"

    @staticmethod
    def lines(file: Path) -> list[str]:
        return file.read_text().splitlines() if file.exists() else []

    def numbers(self, file: Path) -> list[int]:
        return [int(line) for line in self.lines(file)]


def psyspec(folder: Path, ledgers: Ledgers) -> tuple[str, dict[str, str]]:
    """The text, and which node each component belongs to."""
    (folder / "component.py").write_text(COMPONENT)
    (folder / "poster.py").write_text(POSTER)
    (folder / "taker.py").write_text(TAKER)
    many = 'max-restarts="100000" shutdown-ms="500"'
    command = f"{sys.executable} -I -S {folder / 'component.py'} {ledgers.starts}"
    where = {"one": "a", "two": "a", "three": "b", "four": "b", "poster": "a", "taker": "b"}
    modules = [
        f'<module name="{name}" node="{where[name]}" ready-ms="100" {many}>'
        f'<crank command="{command}"/></module>'
        for name in ("one", "two", "three", "four")
    ]
    for name, inside, file in (
        ("poster", '<post name="Tick" type="Kills.Tick" durable="yes"/>', ledgers.posted),
        ("taker", '<trigger name="Tick" type="Kills.Tick"/>', ledgers.taken),
    ):
        modules.append(
            f'<module name="{name}" node="{where[name]}" {many}><crank script="{name}.py" function="crank"/>'
            f'{inside}<parameter name="ledger" type="String" value="{file}"/></module>'
        )
    nodes = "".join(f'<node name="{node}"/>' for node in NODES)
    return f'<psySpec name="kills">{nodes}{"".join(modules)}</psySpec>', where


@dataclass
class Ordered:
    """A recipe that was sent, and what its steps are to do."""

    bake: Bake
    tag: str
    steps: list[PlannedStep]
    serials: list[int] = field(default_factory=list)  # as the SDK gave them
    output: list[int] = field(default_factory=list)


class Baking:
    """Bakes on both nodes until told to stop; whatever the bus does, an order that was minted is sent."""

    def __init__(self, boss: Supervisor, folder: Path, ledgers: Ledgers) -> None:
        self.boss, self.program, self.ledgers = boss, folder / "step.py", ledgers
        self.program.write_text(STEP)
        self.ordered: list[Ordered] = []
        self.refused: list[str] = []
        self.enough = False

    async def work(self, node: str, seed: str) -> None:
        """One bake after the other."""
        draw, number = random.Random(seed), 0
        while not self.enough:
            number += 1
            order_ = await self._order(f"{seed}.{number}", node, draw)
            if order_ is not None:
                self.ordered.append(order_)
                await asyncio.gather(self._status(order_), self._data(order_))

    async def _order(self, tag: str, node: str, draw: random.Random) -> Ordered | None:
        steps, written = [], []
        for index in range(draw.randint(2, 4)):
            retryable, lines, pause = draw.random() < 0.6, draw.randint(1, 150), draw.uniform(0, 0.01)
            steps.append(PlannedStep(retryable, invariants.output_of(f"{tag}.{index}", lines)))
            words = (
                sys.executable,
                "-I",
                "-S",
                self.program,
                self.ledgers.steps,
                f"{tag}.{index}",
                lines,
                pause,
            )
            args = "".join(f"<arg>{word}</arg>" for word in words)
            written.append(
                f'<cli retryable="{"yes" if retryable else "no"}" data-interval-ms="20">{args}</cli>'
            )
        xml = f'<recipe name="kills" status-interval-ms="500">{"".join(written)}</recipe>'
        prepared = await _until_done(lambda: self.boss.prepare(xml, node_id=node))
        try:
            bake = await _until_done(lambda: self.boss.send(prepared))
        except RecipeRejected as error:
            self.refused.append(f"{prepared.identity.recipe_id}: {error}")
            return None
        return Ordered(bake, tag, steps)

    @staticmethod
    async def _status(order_: Ordered) -> None:
        async for status in order_.bake.status():
            order_.serials.append(status.serial)

    @staticmethod
    async def _data(order_: Ordered) -> None:
        async for chunk in order_.bake.data():
            order_.output.append(chunk.seq)


async def _until_done(work: Callable[[], Awaitable[Any]]) -> Any:
    """What a Supervisor does while the bus is away: the same again."""
    while True:
        try:
            return await work()
        except RecipeRejected:
            raise
        except (BusError, SupervisorError):
            await asyncio.sleep(0.1)


class Servers:
    """What is killed as `nats`, and comes back by itself."""

    urls: tuple[str, ...]
    pids: Callable[[], list[int]]
    kill: Callable[[Bus], Awaitable[None]]


@asynccontextmanager
async def single(folder: Path) -> AsyncIterator[Servers]:
    async with server(folder) as nats:
        servers = Servers()
        servers.urls = (nats.url,)
        servers.pids = lambda: [nats.pid]

        async def kill(_: Bus) -> None:
            await nats.kill()
            await nats.start()

        servers.kill = kill
        yield servers


@asynccontextmanager
async def three(folder: Path) -> AsyncIterator[Servers]:
    """The one that leads the Data stream of b is killed."""
    async with cluster(folder, max_file="16G") as nats:
        servers = Servers()
        servers.urls = nats.urls
        servers.pids = lambda: [process.pid for process in nats.running.values()]

        async def kill(bus: Bus) -> None:
            led = await leader(bus, storage.data_stream(MESH, "b")) or nats.names[0]
            await nats.kill(led)
            await nats.start(led)

        servers.kill = kill
        yield servers


@dataclass
class World:
    """Everything that runs."""

    servers: Servers
    boss: Supervisor
    seen: Board
    readys: list[tuple[str, str, bytes]]
    nodes: Mapping[str, NodeProcesses]
    killed: Counter[str] = field(default_factory=Counter)

    async def kill(self, target: str, draw: random.Random) -> None:
        """Kills one, where there is one now."""
        b = self.nodes["b"]
        if target == "nats":
            await self.servers.kill(self.boss.bus)
            self.killed[target] += 1
            return
        if target in ("shim", "component"):
            found = [each for node in self.nodes.values() for each in node.components()]
            one = draw.choice(found) if found else None
            pid = None if one is None else one.shim if target == "shim" else one.pid
        elif target == "startup":
            pid = self.nodes["a"].service("bakemesh.startup")
        else:
            pid = b.keeper() if target == "keeper" else b.service("bakemesh.builder")
        self.killed[target] += kill9(pid)

    def ready(self, where: Mapping[str, str]) -> bool:
        """Whether every component is, as its node says."""
        rows = [self.seen.row(name, node) for name, node in where.items()]
        return all(row is not None and row["state"] == "ready" for row in rows)


def heard(delivery: Received) -> tuple[str, str, bytes]:
    message = delivery.message
    assert isinstance(message, Ready)
    return message.node_id, message.boot, delivery.id


@asynccontextmanager
async def world(folder: Path, servers: Servers, text: str) -> AsyncIterator[World]:
    """Two nodes up, the PsySpec given to a, one Supervisor that has all eyes."""
    async with AsyncExitStack() as stack:
        urls, nodes, readys = ",".join(servers.urls), {}, []
        boss = Supervisor.connect(servers.urls, "boss", state=folder / "mint", connect_timeout_s=60)
        await stack.enter_async_context(boss)
        seen = await stack.enter_async_context(board(boss.bus))

        def note(delivery: Delivery) -> None:
            readys.append(heard(delivery.received))

        await boss.bus.subscribe(subjects.pattern(MESH, Ready.TYPE), note)
        (folder / "kills.xml").write_text(text)
        ups = []
        for node in NODES:
            home = folder / node
            home.mkdir()
            given = [str(folder / "kills.xml")] if node == "a" else []
            up = Up(home, *given, "--node", node, "--nats", urls, "--nodes-expected", str(len(NODES)))
            stack.callback(up.stop)
            ups.append(up)
            nodes[node] = NodeProcesses(home / "state")
        try:
            for up in ups:
                await asyncio.to_thread(up.until, "up")
            yield World(servers, boss, seen, readys, nodes)
        except BaseException:
            for node, up in zip(NODES, ups, strict=True):
                print(f"--- up {node}\n{up.said()[-6000:]}")
            raise
        for up in ups:
            assert await asyncio.to_thread(up.stop) == 0, up.said()[-3000:]


async def stored(bus: Bus, stream: str, subject: str) -> list[Any]:
    """The messages as they lie in the stream; one whose servers still choose a leader is asked again."""

    async def all_of_them() -> list[Any]:
        return [decode(one.payload).message async for one in read(bus, stream, subject, end="last")]

    found: list[Any] = await _until_done(all_of_them)
    return found


async def story(bus: Bus, order_: Ordered, runs: Counter[str]) -> Story:
    bake = order_.bake
    prefix = f"{MESH}.{bake.node_id}.boss.{bake.recipe_id}.{subjects.BAKE}"
    statuses = await stored(bus, storage.status_stream(MESH, bake.node_id), f"{prefix}.*")
    chunks = await stored(bus, storage.data_stream(MESH, bake.node_id), f"{prefix}.Data")
    assert all(isinstance(each, BakeStatus) for each in statuses)
    assert all(isinstance(each, BakeData) for each in chunks)
    begun = {
        index: runs[f"{order_.tag}.{index}"]
        for index in range(len(order_.steps))
        if runs[f"{order_.tag}.{index}"]
    }
    return Story(bake.recipe_id, order_.steps, statuses, chunks, begun)


async def broken(at: World, baking: Baking, ledgers: Ledgers, where: Mapping[str, str]) -> list[str]:
    """Every invariant that does not hold."""
    bus, found = at.boss.bus, list(baking.refused)
    runs = Counter(ledgers.lines(ledgers.steps))
    for order_ in baking.ordered:
        told = await story(bus, order_, runs)
        found += invariants.broken_in(told)
        if order_.serials != [each.serial for each in told.statuses]:
            found.append(f"{told.recipe_id}: the SDK gave serials {order_.serials[:40]}")
        if order_.output != [each.seq for each in told.chunks]:
            found.append(f"{told.recipe_id}: the SDK gave seqs {order_.output[:40]}")
    for node in NODES:
        note = await Bucket(bus, storage.nodes_bucket(MESH)).get(storage.ready_key(node))
        if note is not None:
            at.readys.append(heard(decode(note.value)))
    living = [(each.name, each.pid) for node in at.nodes.values() for each in node.components()]
    return [
        *found,
        *invariants.ready_once(at.readys, {"a"}),
        *invariants.components_single(living, where),
        *invariants.never_doubled(ledgers.lines(ledgers.starts)),
        *(f"a step's process lives: {each}" for each in with_traces_of(baking.program)),
    ]


@pytest.mark.slow
@pytest.mark.timeout(KILLS_S + 2 * PEACE_S)
@pytest.mark.parametrize("servers", [single, three], ids=["one-server", "three-servers"])
async def test_after_random_kills_nothing_is_lost_doubled_or_left_over(servers: Any, tmp_path: Path) -> None:
    ledgers = Ledgers(tmp_path / "ledgers")
    text, where = psyspec(tmp_path, ledgers)
    async with servers(tmp_path) as nats:
        async with world(tmp_path, nats, text) as at:
            await eventually(lambda: at.ready(where), what="every component ready", within=PEACE_S)
            baking = Baking(at.boss, tmp_path, ledgers)
            workers = [
                asyncio.create_task(baking.work(node, f"{node}{number}-{SEED}"))
                for node in NODES
                for number in range(WORKERS)
            ]
            try:
                draw, clock = random.Random(SEED), asyncio.get_running_loop().time
                end = clock() + KILLS_S
                for pause, target in order(SEED, TARGETS, SHORTEST_S, LONGEST_S):
                    if clock() + pause > end:
                        break
                    await asyncio.sleep(pause)
                    await at.kill(target, draw)
                baking.enough = True
                async with asyncio.timeout(PEACE_S):
                    await asyncio.gather(*workers)
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)
            await eventually(lambda: at.ready(where), what="every component ready again", within=PEACE_S)
            posted = ledgers.numbers(ledgers.posted)
            await eventually(
                lambda: not invariants.delivered(posted, ledgers.numbers(ledgers.taken)),
                what="every durable post taken",
                within=PEACE_S,
            )
            print(f"killed {dict(at.killed)}; {len(baking.ordered)} bakes; {len(posted)} durable posts")
            assert min(at.killed[target] for target in TARGETS) > 0, at.killed
            assert len(baking.ordered) > len(workers)
            assert len(posted) > 0
            found = await broken(at, baking, ledgers, where)
            assert found == [], "\n".join(found)
        assert with_traces_of(tmp_path, spared=nats.pids()) == []
