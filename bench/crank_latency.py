"""A crank's post to another node's crank, against raw nats-py publish → subscribe, one way.

Ours: two crank hosts as a Builder runs them (`python -m bakemesh.crankhost`), on two nodes, on one server;
from before `api.post` to the message in the other one's hands. The peer: two processes with nats-py on the
same server and loop; from before `publish` to the callback, with as many bytes as ours has. Both send at the
same pace, so that neither queues, and take turns. The clock is the machine's monotonic one, which processes
share.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from pathlib import Path

import common

from bakemesh.protocol.builder.spec.component import Post
from bakemesh.protocol.message import GenericMessage

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # crank hosts as the tests start them

from support.cranks import crankhost, desk, spec

SUBJECT = "peer.press"
PACE_S = 0.002

SENDER = f"""
import asyncio, time
async def crank(api):
    async for go in api.messages():
        for number in range(go.entries["Count"]):
            await api.post("Press", {{"Sent": time.monotonic_ns(), "Number": number, "Colour": "red"}})
            await asyncio.sleep({PACE_S})
"""

TAKER = """
import time
async def crank(api):
    found = []
    async for message in api.messages():
        found.append(time.monotonic_ns() - message.entries["Sent"])
        if len(found) == api.parameter("count"):
            await api.post("Say", {"Took": found})
            found = []
"""


def size_of_ours() -> int:
    """Bytes of such a message."""
    from bakemesh.bus.sealing import seal

    entries = {"Sent": time.monotonic_ns(), "Number": 100, "Colour": "red"}
    return len(
        seal(GenericMessage.from_entries(entries, "Bench.Press"), "sender@a", type="Bench.Press").payload
    )


async def publisher(url: str, count: str) -> None:
    """The peer's sending side."""
    import nats

    client = await nats.connect(url)
    body = b"x" * (size_of_ours() - 8)
    await client.flush()
    common.say_ready()

    async def work() -> None:
        for _ in range(int(count)):
            await client.publish(SUBJECT, time.monotonic_ns().to_bytes(8, "big") + body)
            await asyncio.sleep(PACE_S)

    await common.on_command(work)


async def subscriber(url: str, count: str) -> None:
    """The peer's receiving side."""
    import nats
    from nats.aio.msg import Msg

    client = await nats.connect(url)
    found: list[int] = []

    async def take(msg: Msg) -> None:
        found.append(time.monotonic_ns() - int.from_bytes(msg.data[:8], "big"))
        if len(found) == int(count):
            common.say(took=list(found))
            found.clear()

    await client.subscribe(SUBJECT, cb=take)
    await client.flush()
    common.say_ready()
    await asyncio.sleep(common.ROLE_S * 4)


async def measure(count: int, turns: int) -> None:
    report = common.Report("crank_latency")
    sender = spec(
        "sender", SENDER, triggers={"Go": "Bench.Go"}, posts=(Post(name="Press", type="Bench.Press"),)
    )
    taker = spec("taker", TAKER, triggers={"Press": "Bench.Press"}, parameters={"count": count})
    ours: list[list[float]] = []
    peer: list[list[float]] = []
    async with (
        common.folder() as where,
        common.server(where) as nats,
        desk(nats.url, node_id="a") as a,
        desk(nats.url, node_id="b") as b,
        crankhost(where, nats.url, sender, node_id="a") as sending,
        crankhost(where, nats.url, taker, node_id="b") as taking,
        common.role("subscriber", nats.url, count) as subscribing,
        common.role("publisher", nats.url, count) as publishing,
    ):
        await a.ready(sending)
        await b.ready(taking)
        await subscribing.ready()
        await publishing.ready()

        async def crank_turn() -> float:
            heard = len(b.heard())
            await a.post("Bench.Go", {"Count": count})
            took = (await b.said(heard + 1))[-1]["Took"]
            ours.append([ns / 1000 for ns in took[count // 10 :]])
            return statistics.median(ours[-1])

        async def raw_turn() -> float:
            await publishing.go()
            took = (await subscribing.said())["took"]
            peer.append([ns / 1000 for ns in took[count // 10 :]])
            return statistics.median(peer[-1])

        await crank_turn()
        await raw_turn()
        ours.clear()
        peer.clear()
        await common.rounds(turns, {"ours": crank_turn, "peer": raw_turn})
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        mine, theirs = ([common.percentile(each, share) for each in side] for side in (ours, peer))
        bound = {} if name == "p90" else {"at_most": 2.5}
        report.claim(
            f"crank's post to the other's hands, {name}, in raw ones", common.ratio(mine, theirs), **bound
        )
        report.numbers |= {f"crank_{name}_us": mine, f"raw_{name}_us": theirs}
    report.numbers["bytes"] = size_of_ours()
    report.finish()


if __name__ == "__main__":
    args = common.arguments(__doc__, count=600, rounds=7)
    if args.role:
        common.run({"publisher": publisher, "subscriber": subscriber}[args.role](*args.operands))
    else:
        common.run(measure(args.count, args.rounds))
