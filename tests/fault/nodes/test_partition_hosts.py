"""A host is cut off in the middle of a bake, for half a minute: nothing is lost, nothing comes twice.

The step writes on while it is cut off. On a shared server the far Builder has nobody to send to: it
journals. On a leaf it sends to the server beside it, and takes recipes from there. After healing the
Supervisor has every byte and counts every Status once, and so do the streams themselves.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.hosts import How, Net, Program, far, hosts, local_bus, nats_server, up
from support.house import python
from support.waiting import eventually

LINES, BYTES, PACE_S = 900, 200, 0.06

# A line at a time, its number in a file beside: how far the step is can be seen on a host that is cut off.
WRITES = f"""
import hashlib, os, sys, time
digest = hashlib.sha256()
for number in range({LINES}):
    line = (b"%06d " % number) + os.urandom({BYTES} // 2).hex().encode() + b"\\n"
    digest.update(line)
    sys.stdout.buffer.write(line)
    sys.stdout.flush()
    open(sys.argv[1], "w").write(str(number))
    time.sleep({PACE_S})
digest.update(b"second\\n")  # what the step after this one writes
open(sys.argv[2], "w").write(digest.hexdigest())
"""


class Step:
    """The step on the far host, seen from beside the mesh."""

    def __init__(self, folder: Path) -> None:
        self.progress, self.digest = folder / "progress", folder / "digest"

    @property
    def recipe(self) -> str:
        return (
            f'<recipe name="long"><cli data-interval-ms="20" status-interval-ms="250">{python(WRITES)}'
            f"<arg>{self.progress}</arg><arg>{self.digest}</arg></cli>"
            f'<cli command="echo second"/></recipe>'
        )

    async def written(self, lines: int) -> None:
        """Returns when it has written so many."""

        def so_far() -> bool:
            text = self.progress.read_text() if self.progress.exists() else ""
            return text.isdigit() and int(text) >= lines

        await eventually(so_far, what=f"{lines} lines written", within=LINES * PACE_S * 4)


async def complete(boss: Program, step: Step, *, within: float = 120) -> None:
    """The Supervisor has seen all of it once, and the streams hold all of it once."""
    told = await boss.event("followed", within=within)
    assert told["outcome"] == "success"
    assert told["serials"] == list(range(1, len(told["serials"]) + 1))
    audit = await boss.event("audit", within=60)
    assert audit["serials"] == told["serials"]
    assert (audit["seqs_from"], audit["seqs_to"]) == (1, told["chunks"])
    assert audit["seqs_in_order"]
    assert told["sha256"] == step.digest.read_text()
    assert told["size"] == LINES * (8 + BYTES) + len("second\n")
    assert await boss.ended() == 0


async def seen(boss: Program, event: str) -> int:
    return sum(one["event"] == event for one in boss.told())


async def start(net: Net, topology: str) -> int:
    """The server and node a on host a, node b on host b."""
    hub = await nats_server(net["a"])
    await up(net["a"], "--nats", await net.way("a", "a", hub.port), "--node", "a", "--nodes-expected", "2")
    joining = (
        ("--join", await net.way("b", "a", hub.leaf_port))
        if topology == "leaf"
        else ("--nats", await net.way("b", "a", hub.port), "--nodes-expected", "2")
    )
    await up(net["b"], *joining, "--node", "b")
    return hub.port


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.filterwarnings("default::support.hosts.NoNamespaces")
@pytest.mark.parametrize(
    ("topology", "how"),
    [
        ("shared", How.SILENT),
        ("shared", How.DOWN),
        ("shared", How.RESET),
        ("leaf", How.SILENT),
        ("leaf", How.DOWN),
        ("leaf", How.RESET),
    ],
    ids=lambda value: str(value).replace(" ", "-"),
)
async def test_cut_off_in_the_middle_of_a_bake_and_healed(topology: str, how: How, tmp_path: Path) -> None:
    async with hosts(tmp_path, "a", "b") as net:
        port = await start(net, topology)
        step = Step(tmp_path)
        nats = [await net.way("a", "a", port)]
        boss = await far(net["a"], "boss", nats=nats, node_id="b", recipe=step.recipe, audit=topology)
        await step.written(100)
        await net.cut("b", how)
        await step.written(100 + int(30 / PACE_S))  # half a minute at least
        during = await seen(boss, "data")
        await step.written(120 + int(30 / PACE_S))
        assert await seen(boss, "data") == during, "something came through"
        await net.heal("b")
        await complete(boss, step)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.filterwarnings("default::support.hosts.NoNamespaces")
async def test_a_leaf_that_is_cut_off_mints_and_bakes_and_delivers_all_of_it_later(tmp_path: Path) -> None:
    """A Supervisor beside it, with a folder of its own, sends recipes while the hub is out of reach."""
    async with hosts(tmp_path, "a", "b") as net:
        port = await start(net, "leaf")
        beside = {"nats": [local_bus(net["b"])], "node_id": "b", "state": str(tmp_path / "mint")}
        small = '<recipe name="small"><cli command="echo {}"/></recipe>'
        # Numbers are taken from the hub in blocks, so it mints once before.
        first = await far(net["b"], "near", **beside, recipe=small.format("before"))
        assert (await first.event("followed"))["outcome"] == "success"
        assert await first.ended() == 0
        waiting = await far(net["a"], "boss", nats=[await net.way("a", "a", port)], node_id="b", recipe=small)
        assert (await waiting.event("followed"))["outcome"] == "success"
        await net.cut("b", How.SILENT)
        sent = []
        for number in range(5):
            near = await far(net["b"], "near", **beside, recipe=small.format(f"cut-off-{number}"))
            told = await near.event("followed")
            assert (told["outcome"], told["size"]) == ("success", len(f"cut-off-{number}\n"))
            assert await near.ended() == 0
            sent.append((await near.event("accepted"))["recipe_id"])
        assert len(set(sent)) == 5
        # One from the other side waits for the node in the hub's inbox.
        late = await far(net["a"], "boss", nats=[await net.way("a", "a", port)], node_id="b", recipe=small)
        await late.event("waiting")
        await net.heal("b")
        assert (await late.event("followed", within=120))["outcome"] == "success"
        for recipe_id in sent:  # from the hub: every Status and every byte
            order = {"nats": [await net.way("a", "a", port)], "node_id": "b", "attach": recipe_id}
            attached = await far(net["a"], "near", **order, audit="leaf")
            told = await attached.event("followed")
            assert (told["outcome"], told["size"]) == ("success", len("cut-off-0\n"))
            audit = await attached.event("audit")
            assert audit["serials"] == told["serials"] == list(range(1, len(told["serials"]) + 1))
            assert await attached.ended() == 0, json.dumps(audit)
