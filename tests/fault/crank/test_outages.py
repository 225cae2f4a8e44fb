"""Outages in the middle of a crank's work: the server killed, a leaf cut off, a Builder gone."""

from __future__ import annotations

from pathlib import Path

from bakemesh.bus.posts import ensure_posts
from bakemesh.protocol import storage
from bakemesh.protocol.builder.spec.component import Post, Trigger
from support.cranks import crankhost, desk, spec
from support.nats import MESH, hub_and_leaf, server
from support.waiting import eventually

COUNT = "Robot.Count"
STORED = Trigger(name="In", type=COUNT, durable=(COUNT,))
DURABLE = (Post(name="Count", type=COUNT, durable=True), Post(name="Live", type="Robot.Live"))
GIVER = """
import pathlib
async def crank(api):
    for n in range(300):
        await api.post("Count", {"n": n})
        await api.post("Live", {"n": n})
        pathlib.Path("given").write_text(str(n))
"""
TAKER = """
async def crank(api):
    with open("taken", "a", buffering=1) as file:
        async for message in api.messages():
            print(message.entries["n"], file=file)
"""


def given(host) -> int:
    path = host.folder / "data" / "given"
    return int(path.read_text() or 0) if path.exists() else 0


def taken(host) -> list[int]:
    path = host.folder / "data" / "taken"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


async def test_a_killed_server_loses_and_doubles_no_durable_post(tmp_path: Path):
    async with server(tmp_path) as nats, desk(nats.url) as builder:
        await ensure_posts(builder.bus, [COUNT])
        async with (
            crankhost(tmp_path, nats.url, spec("taker", TAKER, triggers=(STORED,))) as taker,
            crankhost(tmp_path, nats.url, spec("giver", GIVER, posts=DURABLE)) as giver,
        ):
            for mark in (60, 160):
                await eventually(lambda mark=mark: given(giver) > mark, what=f"{mark} posts")
                await nats.kill()
                await nats.start()
            assert await giver.ended() == 0
            await eventually(lambda: len(set(taken(taker))) == 300, within=40, what="every post")
            assert await taker.stop() == 0
        # In one life of the taker nothing comes twice, whatever the server has forgotten.
        assert taken(taker) == list(range(300))
        info = await builder.bus.api.stream_info(storage.posts_stream(MESH))
        assert info["state"]["messages"] == 300


async def test_on_a_leaf_that_is_cut_off_posts_wait_and_then_all_arrive(tmp_path: Path):
    async with (
        hub_and_leaf(tmp_path) as pair,
        desk(pair.leaf.url, node_id="edge") as edge,
        desk(pair.hub.url, node_id="mid") as middle,
    ):
        await ensure_posts(edge.bus, [COUNT])
        async with (
            crankhost(
                tmp_path, pair.hub.url, spec("taker", TAKER, triggers=(STORED,)), node_id="mid"
            ) as taker,
            crankhost(tmp_path, pair.leaf.url, spec("giver", GIVER, posts=DURABLE), node_id="edge") as giver,
            crankhost(
                tmp_path, pair.leaf.url, spec("echo", TAKER, triggers=(STORED,)), node_id="edge"
            ) as echo,
        ):
            await middle.ready(taker)
            await eventually(lambda: given(giver) > 60, what="the first posts")
            await pair.link.cut()
            await eventually(lambda: "a durable post waits" in giver.out, what="a post that waits")
            await pair.link.heal()
            assert await giver.ended() == 0
            for each in (taker, echo):
                await eventually(lambda each=each: len(set(taken(each))) == 300, within=60, what="every post")
                assert taken(each) == list(range(300))
                assert await each.stop() == 0


async def test_core_posts_of_an_outage_are_lost_counted_and_said_once(tmp_path: Path):
    source = """
import asyncio, pathlib
async def crank(api):
    while not pathlib.Path("go").exists():
        await asyncio.sleep(0.01)
    for n in range(50):
        await api.post("Live", {"n": n})
    pathlib.Path("done").touch()
    await api.wait_for_message()
"""
    async with server(tmp_path) as nats, desk(nats.url) as builder:
        async with crankhost(tmp_path, nats.url, spec("giver", source, posts=DURABLE)) as giver:
            await builder.ready(giver)
            await nats.kill()
            data = giver.folder / "data"
            await eventually(lambda: not builder.bus.connected, what="the end of the link")
            (data / "go").touch()
            await eventually((data / "done").exists, what="the crank to go on")
            await nats.start()
            await eventually(
                lambda: builder.shown("giver").get("lost-posts") == "50", within=30, what="the count"
            )
            assert await giver.stop() == 0
        assert giver.out.count("post Live is lost") == 1


async def test_a_host_starts_while_bus_and_builder_are_away_and_begins_when_they_are_back(tmp_path: Path):
    source = "async def crank(api):\n    await api.post('Say', {'begun': 1})\n"
    async with server(tmp_path) as nats:
        url = nats.url
        await nats.kill()
        async with crankhost(tmp_path, url, spec("early", source)) as host:
            await eventually(lambda: "waiting for the bus" in host.out, what="a word about the bus")
            await nats.start()
            async with desk(url) as builder:
                await builder.said(1)
                assert await host.ended() == 0
