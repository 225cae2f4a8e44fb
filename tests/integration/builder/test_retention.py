"""Purging on real streams: the node's own, and the hub's by the janitor; the clock is turned by hand."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
import time
from pathlib import Path

import pytest

from bakemesh.builder.clock import Clock
from bakemesh.builder.hubcopy import HubCopy, origin, position
from bakemesh.builder.janitor import Janitor, microseconds
from bakemesh.builder.retention import DAY_US, STATUS_DAYS, Fill, status_due
from bakemesh.bus import Bus
from bakemesh.bus.errors import BusError
from bakemesh.bus.purge import purge_subject
from bakemesh.protocol import storage
from bakemesh.protocol.builder.messages import BakeSuccess
from bakemesh.protocol.identity import Identity
from bakemesh.supervisor import Bake, DataPruned, Supervisor
from support.controls import control
from support.inside import builder_inside
from support.letters import again, inbox_subject, recipe_letter, send
from support.mesh import mesh
from support.nats import connect, hub_and_leaf, server
from support.waiting import eventually


def test_microseconds_reads_the_servers_times() -> None:
    assert microseconds("1970-01-01T00:00:01Z") == 1_000_000
    assert microseconds("1970-01-01T00:00:01.5Z") == 1_500_000
    assert microseconds("2026-12-01T02:03:04.123456789Z") % 1_000_000 == 123_456


@pytest.mark.parametrize(("used", "limit", "over"), [(79, 100, False), (80, 100, True), (10**9, -1, False)])
def test_eighty_percent(used: int, limit: int, over: bool) -> None:
    assert Fill(used, limit).over is over


def test_a_clock_set_back_purges_nothing() -> None:
    ended = 100 * DAY_US
    assert not status_due(ended, ended - 1)
    assert not status_due(ended, ended + STATUS_DAYS * DAY_US - 1)
    assert status_due(ended, ended + STATUS_DAYS * DAY_US)


def big(size: int) -> str:
    code = f"import os; os.write(1, b'x' * {size})"
    program = f"<arg>{sys.executable}</arg><arg>-c</arg><arg>{code}</arg>"
    return f'<recipe name="big"><cli>{program}</cli></recipe>'


async def messages(bus: Bus, stream: str) -> int:
    info = await bus.hub_api.stream_info(stream)
    return int(info["state"]["messages"])


async def test_the_oldest_ended_bakes_make_room_and_a_reader_is_told(tmp_path: Path) -> None:
    async with mesh(tmp_path, "--store-max-bytes", "16MiB") as net, net.supervisor("boss") as boss:
        first = await boss.bake(big(7 * 2**20), node="alpha")
        assert isinstance(await asyncio.wait_for(first.outcome(), 30), BakeSuccess)
        second = await boss.bake(big(7 * 2**20), node="alpha")
        assert isinstance(await asyncio.wait_for(second.outcome(), 30), BakeSuccess)

        async def pruned() -> bool:
            try:
                async for _ in first.data():
                    pass
            except DataPruned:
                return True
            return False

        await eventually(pruned, within=30, what="the first bake's Data purged")
        kept = b"".join([chunk.data async for chunk in second.data()])
        assert len(kept) == 7 * 2**20


async def test_the_janitor_purges_the_hubs_old_status(tmp_path: Path) -> None:
    async with mesh(tmp_path) as net, net.supervisor("boss") as boss, net.connect("builder-alpha") as bus:
        bake = await boss.bake('<recipe name="old"><cli command="true"/></recipe>', node="alpha")
        assert isinstance(await bake.outcome(), BakeSuccess)
        status = storage.hub_status_stream(bus.mesh)

        async def arrived() -> bool:
            return await messages(bus, status) >= 4

        await eventually(arrived, what="the hub's copy of the Status")
        now = [time.time_ns() // 1000]
        janitor = Janitor(bus, Clock(wall=lambda: now[0]))
        await janitor.round()
        assert await messages(bus, status) >= 4
        now[0] += (STATUS_DAYS + 1) * DAY_US
        await janitor.round()
        assert await messages(bus, status) == 0


async def test_the_janitor_makes_room_in_the_hubs_status(tmp_path: Path) -> None:
    """A full one would take no node's Status any more."""
    async with mesh(tmp_path) as net, net.supervisor("boss") as boss, net.connect("builder-alpha") as bus:
        status = storage.hub_status_stream(bus.mesh)
        bakes = [
            await boss.bake('<recipe name="r"><cli command="true"/></recipe>', node="alpha") for _ in range(4)
        ]
        for bake in bakes:
            assert isinstance(await bake.outcome(), BakeSuccess)
        going = await boss.bake('<recipe name="r"><cli command="sleep 600"/></recipe>', node="alpha")

        async def arrived() -> bool:
            return await messages(bus, status) == 4 * 4 + 2

        await eventually(arrived, what="the hub's copy of the Status")

        async def left(part: float) -> dict[str, int]:
            """What the janitor leaves of the bakes where the stream is that much smaller than it is full."""
            info = await bus.api.stream_info(status)
            await bus.api.update_stream(info["config"] | {"max_bytes": int(info["state"]["bytes"] / part)})
            await Janitor(bus, Clock()).round()
            found = (await bus.api.stream_info(status, subjects_filter=">"))["state"]["subjects"]
            return {subject.split(".", 3)[3]: count for subject, count in found.items()}

        kind = "Psyclone.Builder.Bake"
        ends = {f"{bake.recipe_id}.{kind}.Success": 1 for bake in bakes}
        rest = {f"{bake.recipe_id}.{kind}.Status": 3 for bake in bakes} | {
            f"{going.recipe_id}.{kind}.Status": 2
        }
        assert await left(0.5) == ends | rest
        trimmed = await left(1.0)
        assert ends.items() <= trimmed.items(), "the ends stay longest"
        assert f"{bakes[0].recipe_id}.{kind}.Status" not in trimmed
        assert f"{going.recipe_id}.{kind}.Status" in trimmed
        whole = await left(1.0)
        while f"{bakes[0].recipe_id}.{kind}.Success" in whole:
            whole = await left(1.0)
        assert f"{bakes[-1].recipe_id}.{kind}.Success" in whole, "the oldest go first"


def test_how_far_the_hub_has_come() -> None:
    info = {"sources": [{"name": "m-status-b", "seq": 4}, {"name": "m-status-a", "seq": 7}]}
    assert position(info, "m-status-a") == 7
    assert position(info, "m-status-c") == 0
    assert position({"sources": [{"name": "m-status-a", "lag": 0}]}, "m-status-a") is None
    assert origin({"Nats-Stream-Source": "m-status-a:n1VdnVvB 8 > > m.a.boss.k.T yjTuZCo4"}) == 8
    assert origin({}) == 0


class Turned:
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        self.ahead = 0
        self.clock = Clock(wall=lambda: time.time_ns() // 1000 + self.ahead)


async def test_what_was_kept_of_an_old_bake_goes_with_its_status(tmp_path: Path) -> None:
    turned = Turned()
    async with (
        server(tmp_path) as nats,
        builder_inside(tmp_path, nats.url, clock=turned.clock) as inside,
        connect(nats.url, name="writer") as bus,
    ):

        def kept() -> tuple[int, int, int]:
            with contextlib.closing(
                sqlite3.connect(f"file:{inside.state}/journal.db?mode=ro", uri=True)
            ) as db:
                tables = ("answers", "controls", "bakes")
                found = [db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables]
                return found[0], found[1], found[2]

        identity = Identity("writer", "r", "writer-r-1", "alpha", "alpha")
        letter = recipe_letter(identity, '<recipe name="r"><cli command="sleep 600"/></recipe>')
        subject = inbox_subject(bus, identity)
        assert (await send(bus, subject, letter)).accepted
        assert (await control(bus, identity, "Cancel", 5)).accepted
        status = storage.status_stream(bus.mesh, "alpha")

        async def ended() -> bool:
            return await messages(bus, status) >= 4

        await eventually(ended, what="its end")
        assert (await send(bus, subject, again(letter))).accepted
        assert (await control(bus, identity, "Cancel", 5)).code == "stale_ctrlseq"
        assert kept() == (1, 1, 1)

        turned.ahead = (STATUS_DAYS + 1) * DAY_US
        await eventually(lambda: kept() == (0, 0, 1), what="all but the bake's own row gone")
        assert await messages(bus, status) == 0
        assert (await send(bus, subject, again(letter))).code == "duplicate_recipe_id"
        assert (await control(bus, identity, "Cancel", 5)).code == "terminal"


async def test_a_leaf_purges_what_the_hub_has_had(tmp_path: Path) -> None:
    """Not before it has it; and where the hub has purged it since, neither it nor the next waits."""
    turned = Turned()
    xml = '<recipe name="r"><cli command="echo r"/></recipe>'
    async with (
        hub_and_leaf(tmp_path) as pair,
        connect(pair.leaf.url, name="leaf") as leaf,
        connect(pair.hub.url, name="hub") as hub,
        Supervisor.connect(nats=pair.leaf.url, name="boss", state=tmp_path / "boss") as boss,
        builder_inside(tmp_path, pair.leaf.url, node_id="edge", clock=turned.clock),
    ):
        own, copied = storage.status_stream(leaf.mesh, "edge"), storage.hub_status_stream(leaf.mesh)

        async def end_of(bake: Bake) -> tuple[bool, bool]:
            copy = HubCopy(leaf, "edge")
            return await copy.has_end("boss", bake.recipe_id), await copy.has_data("boss", bake.recipe_id)

        await eventually(boss.nodes, what="the node on the hub")
        first = await boss.bake(xml, node_id="edge")
        await first.outcome()

        async def arrived() -> bool:
            return all(await end_of(first))

        await eventually(arrived, within=40, what="the first on the hub")
        await pair.cut()
        second = await boss.bake(xml, node_id="edge")
        await second.outcome()
        with pytest.raises(BusError):
            await end_of(second)
        await pair.heal()

        async def followed() -> bool:
            return all(await end_of(second))

        await eventually(followed, within=40, what="the second on the hub")
        prefix = f"{leaf.mesh}.edge.boss.{first.recipe_id}.Psyclone.Builder.Bake"
        assert await purge_subject(hub, copied, f"{prefix}.*") == 4
        assert await purge_subject(hub, storage.hub_data_stream(leaf.mesh), f"{prefix}.Data") == 1
        assert await end_of(first) == (True, True)
        turned.ahead = (STATUS_DAYS + 1) * DAY_US

        async def gone() -> bool:
            info = await leaf.api.stream_info(own)
            return int(info["state"]["messages"]) == 0

        await eventually(gone, within=30, what="both gone from the leaf")
