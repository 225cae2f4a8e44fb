"""How long one waits: a recipe to its first Status, a Cancel to the child's death, in raw NATS requests.

The unit is the p50 of a raw nats-py request that another process answers, on the same server, taken in turns
with ours. First Status: from the sending of a prepared recipe to the first item of `bake.status()`, in the
SDK. Cancel: from the call of `bake.cancel()` until the step's process is dead, as its pidfd tells; the
process is a shell's `sleep`, which does not resist TERM.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time

import common

from bakemesh.protocol.builder.messages import BakeCancelled
from bakemesh.supervisor import Supervisor
from bakemesh.supervisor.bake import Bake

NODE = "bench"
ECHO = "peer.echo"
SLEEP = (
    '<recipe name="sleep" data-interval-ms="0">'
    '<code name="sleep" language="sh">echo $$; exec sleep 60</code></recipe>'
)
BODY = b"x" * 300  # as long as a control's


async def echo(url: str) -> None:
    """The peer's other side."""
    import nats
    from nats.aio.msg import Msg

    client = await nats.connect(url)

    async def answer(msg: Msg) -> None:
        await client.publish(msg.reply, msg.data)

    await client.subscribe(ECHO, cb=answer)
    for _ in range(2):
        await client.flush()
    common.say_ready()
    await asyncio.sleep(common.ROLE_S * 4)


async def requests(url: str, count: int) -> list[float]:
    """Seconds of each of `count` raw requests, one after the other."""
    import nats

    client = await nats.connect(url)
    found = []
    for _ in range(count):
        began = time.perf_counter()
        await client.request(ECHO, BODY, timeout=10)
        found.append(time.perf_counter() - began)
    await client.close()
    return found[count // 10 :]


async def first_status(supervisor: Supervisor) -> tuple[float, Bake]:
    """Sends one and waits; gives the bake too, whose step now runs."""
    prepared = await supervisor.prepare(SLEEP, node_id=NODE)
    began = time.perf_counter()
    bake = await supervisor.send(prepared)
    async for _ in bake.status():
        break
    return time.perf_counter() - began, bake


async def cancel(bake: Bake) -> float:
    """Cancels it and waits for the death of its process."""
    chunk = await anext(aiter(bake.data()))
    pid = int(chunk.data)
    loop, dead = asyncio.get_running_loop(), asyncio.Event()
    died = 0.0

    def gone() -> None:
        nonlocal died
        died = time.perf_counter()
        loop.remove_reader(watched)
        dead.set()

    watched = os.pidfd_open(pid)
    try:
        loop.add_reader(watched, gone)
        began = time.perf_counter()
        assert (await bake.cancel()).accepted
        async with asyncio.timeout(30):
            await dead.wait()
        assert isinstance(await bake.outcome(), BakeCancelled)
    finally:
        os.close(watched)
    return died - began


async def measure(count: int, turns: int) -> None:
    report = common.Report("latency")
    flags = ("--recipe-rate", "1000", "--control-rate", "1000")
    raw: list[list[float]] = []
    first: list[list[float]] = []
    death: list[list[float]] = []
    async with (
        common.folder() as where,
        common.server(where) as nats,
        common.node(where, nats.url, *flags),
        common.role("echo", nats.url) as echoing,
        Supervisor.connect(nats.url, "nightly") as supervisor,
    ):
        await echoing.ready()
        await cancel((await first_status(supervisor))[1])
        for _ in range(turns):
            raw.append(await requests(nats.url, count * 4))
            first.append([])
            death.append([])
            for _ in range(count):
                seconds, bake = await first_status(supervisor)
                first[-1].append(seconds)
                death[-1].append(await cancel(bake))
            raw[-1] += await requests(nats.url, count * 4)
    unit = [statistics.median(each) for each in raw]
    in_units = [statistics.median(ours) / one for ours, one in zip(first, unit, strict=True)]
    report.claim(
        "recipe sent to first Status, p50, in p50s of a raw request", statistics.median(in_units), at_most=8
    )
    every = [seconds / one for ours, one in zip(death, unit, strict=True) for seconds in ours]
    report.claim(
        "Cancel sent to child dead, p99, in p50s of a raw request", common.percentile(every, 0.99), at_most=20
    )
    report.claim("the same, p50", statistics.median(every))
    report.numbers = {
        "raw_p50_us": [one * 1e6 for one in unit],
        "first_status_p50_us": [statistics.median(each) * 1e6 for each in first],
        "first_status_p99_us": [common.percentile(each, 0.99) * 1e6 for each in first],
        "cancel_p50_us": [statistics.median(each) * 1e6 for each in death],
        "cancel_p99_us": [common.percentile(each, 0.99) * 1e6 for each in death],
    }
    report.finish()


if __name__ == "__main__":
    args = common.arguments(__doc__, count=100, rounds=9)  # of fewer, the p99 would be the worst one
    if args.role:
        common.run(echo(*args.operands), common.loops()[-1])
    else:
        common.run(measure(args.count, args.rounds), common.loops()[-1])
