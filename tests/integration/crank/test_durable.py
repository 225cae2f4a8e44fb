"""Stored posts: at least once over kill -9, poison put aside, deliveries in order, held back by their age."""

from __future__ import annotations

from pathlib import Path

from bakemesh.bus.posts import ensure_posts
from bakemesh.crank.durable import consumer_name
from bakemesh.protocol import storage
from bakemesh.protocol.builder.spec.component import Post, Trigger
from support.cranks import NODE, crankhost, desk, spec
from support.nats import MESH, server
from support.waiting import eventually

STREAM = storage.posts_stream(MESH)
COUNT = "Robot.Count"
STORED = Trigger(name="In", type=COUNT, durable=(COUNT,))

# Works on what it gets once its gate is open, so that a test can kill it with a message in its hands.
GATED = """
import asyncio, pathlib
async def crank(api):
    async for message in api.messages():
        await api.post("Say", {"begun": message.entries["n"], "trigger": message.trigger})
        while not pathlib.Path(f"gate-{message.entries['n']}").exists():
            await asyncio.sleep(0.01)
"""


def begun(builder) -> list[int]:
    return [each["begun"] for each in builder.heard()]


def gate(host, n: int) -> None:
    (host.folder / "data" / f"gate-{n}").touch()


async def test_a_post_that_was_in_a_killed_cranks_hands_comes_again_at_once_and_no_other(tmp_path: Path):
    of = spec("taker", GATED, triggers=(STORED,))
    async with server(tmp_path) as nats, desk(nats.url) as builder:
        await ensure_posts(builder.bus, [COUNT])
        for n in (1, 2, 3):  # before the component is there at all
            await builder.store(COUNT, {"n": n})
        async with crankhost(tmp_path, nats.url, of) as host:
            await builder.said(1)
            gate(host, 1)
            await builder.said(2)
            await host.kill9()
            await host.start()
            await builder.said(3)
            for n in (2, 3):
                gate(host, n)
            await builder.said(4)
            assert begun(builder) == [1, 2, 2, 3]
            await builder.store(COUNT, {"n": 4})
            await builder.said(5)
            consumer = consumer_name(NODE, "taker", "In", COUNT)

            async def acknowledged(floor: int, pending: int) -> bool:
                info = await builder.bus.api.consumer_info(STREAM, consumer)
                return (info["ack_floor"]["stream_seq"], info["num_ack_pending"]) == (floor, pending)

            await eventually(lambda: acknowledged(3, 1), what="the acknowledgement of all but the last")
            gate(host, 4)  # it is through with 4 and asks for the next
            await eventually(lambda: acknowledged(4, 0), what="the acknowledgement of the last")
            assert await host.stop() == 0
            await host.start()
            await builder.ready(host)
            await builder.store(COUNT, {"n": 5})
            assert [each["begun"] for each in await builder.said(6)][-1] == 5
            gate(host, 5)
            assert await host.stop() == 0


async def test_what_is_stored_is_not_given_live_as_well_and_other_types_are(tmp_path: Path):
    source = GATED.replace(
        """
        while not pathlib.Path(f"gate-{message.entries['n']}").exists():
            await asyncio.sleep(0.01)
""",
        "\n",
    )
    triggers = (
        Trigger(name="Stored", type="Robot.*", durable=(COUNT,)),
        Trigger(name="Live", type="Robot.*"),
    )
    async with server(tmp_path) as nats, desk(nats.url) as builder:
        await ensure_posts(builder.bus, [COUNT])
        async with crankhost(tmp_path, nats.url, spec("taker", source, triggers=triggers)) as host:
            await builder.ready(host)
            await builder.store(COUNT, {"n": 1})
            await builder.post("Robot.Other", {"n": 2})
            await builder.said(4)
            assert await host.stop() == 0
        told = sorted((each["begun"], each["trigger"]) for each in builder.heard())
        assert told == [(1, "Live"), (1, "Stored"), (2, "Live"), (2, "Stored")]


async def test_a_poison_post_is_put_aside_and_the_next_one_is_worked_on(tmp_path: Path):
    source = """
import os, signal
async def crank(api):
    async for message in api.messages():
        n = message.entries["n"]
        with open("begun", "a") as file:
            print(n, file=file)
        if n == 1:
            raise ValueError("poison")
        if n == 2:
            os.kill(os.getpid(), signal.SIGKILL)
"""
    of = spec("eater", source, triggers=(STORED,))
    async with server(tmp_path) as nats, desk(nats.url) as builder:
        await ensure_posts(builder.bus, [COUNT])
        for n in (1, 2, 3):
            await builder.store(COUNT, {"n": n})
        async with crankhost(tmp_path, nats.url, of) as host:
            for turn in range(6):
                code = await host.ended()
                assert code == (70 if turn < 3 else -9), host.out
                await host.start()
            seen = host.folder / "data" / "begun"
            await eventually(lambda: seen.read_text().split()[-1] == "3", what="the post behind the poison")
            assert seen.read_text().split() == ["1", "1", "1", "2", "2", "2", "3"]
            assert await host.stop() == 0
        assert host.out.count("is put aside: it was given 3 times") == 2
        assert f"post 1 of {STREAM} on {MESH}.a.tester.-.{COUNT} is put aside" in host.out
        assert builder.shown("eater")["put-aside"] == "1"
        assert (await builder.bus.api.get_message(STREAM, sequence=1)).payload  # it is still to be had


async def test_bytes_that_are_no_message_are_put_aside(tmp_path: Path):
    source = """
async def crank(api):
    message = await api.wait_for_message()
    await api.post("Say", message.entries)
"""
    async with server(tmp_path) as nats, desk(nats.url) as builder:
        await ensure_posts(builder.bus, [COUNT])
        await builder.bus.link.exchange(f"{MESH}.a.x.-.{COUNT}", b"junk", 5)
        await builder.store(COUNT, {"n": 2})
        async with crankhost(tmp_path, nats.url, spec("eater", source, triggers=(STORED,))) as host:
            assert await builder.said(1) == [{"n": 2}]
            assert await host.ended() == 0
        assert "put aside: not a msgpack map" in host.out


async def test_a_durable_post_goes_from_crank_to_crank_once_each_and_in_order(tmp_path: Path):
    giver = """
def crank(api):
    for n in range(200):
        api.post("Count", {"n": n})
"""
    taker = """
def crank(api):
    for message in api.messages():
        api.post("Say", {"n": message.entries["n"], "sender": message.sender})
"""
    posts = (Post(name="Count", type=COUNT, durable=True),)
    async with server(tmp_path) as nats, desk(nats.url) as builder:
        await ensure_posts(builder.bus, [COUNT])
        async with (
            crankhost(tmp_path, nats.url, spec("taker", taker, triggers=(STORED,))) as host,
            crankhost(tmp_path, nats.url, spec("giver", giver, posts=posts)) as other,
        ):
            assert await other.ended() == 0
            heard = await builder.said(200)
            assert await host.stop() == 0
        assert builder.heard() == heard == [{"n": n, "sender": "giver"} for n in range(200)]


async def test_a_new_life_counts_the_delay_from_the_post_not_from_its_start(tmp_path: Path):
    source = """
import time
async def crank(api):
    async for message in api.messages():
        await api.post("Say", {"n": message.entries["n"], "late": time.time() - message.created / 1e6})
"""
    late = Trigger(name="In", type=COUNT, durable=(COUNT,), after_ms=700)
    async with server(tmp_path) as nats, desk(nats.url) as builder:
        await ensure_posts(builder.bus, [COUNT])
        for n in range(10):
            await builder.store(COUNT, {"n": n})
        async with crankhost(tmp_path, nats.url, spec("clock", source, triggers=(late,))) as host:
            heard = await builder.said(10)
            assert [each["n"] for each in heard] == list(range(10))
            assert all(each["late"] >= 0.7 for each in heard), heard
            # ten delays in a row would be seven seconds
            assert heard[-1]["late"] - heard[0]["late"] < 5, heard
            assert await host.stop() == 0


async def test_the_consumer_outlives_a_changed_spec_and_dies_with_what_it_could_miss(tmp_path: Path):
    source = """
async def crank(api):
    async for message in api.messages():
        await api.post("Say", message.entries)
"""
    other = Trigger(name="First", type="Robot.Other", durable=("Robot.Other",))
    async with server(tmp_path) as nats, desk(nats.url) as builder:
        await ensure_posts(builder.bus, [COUNT, "Robot.Other"])
        await builder.store(COUNT, {"n": 1})
        async with crankhost(tmp_path, nats.url, spec("taker", source, triggers=(STORED,))) as host:
            await builder.said(1)
            assert await host.stop() == 0
            host.spec = spec("taker", source, triggers=(other, STORED))
            await host.start()
            await builder.store(COUNT, {"n": 2})
            assert [each["n"] for each in await builder.said(2)] == [1, 2]
            info = await builder.bus.api.consumer_info(STREAM, consumer_name(NODE, "taker", "In", COUNT))
            config = (await builder.bus.api.stream_info(STREAM))["config"]
            assert info["config"]["inactive_threshold"] > config["max_age"]
            assert await host.stop() == 0
