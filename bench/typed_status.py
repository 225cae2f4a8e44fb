"""A typed Status, published in one process and handled in another, against raw nats-py and FastStream.

Raw nats-py carries the very bytes of a sealed Status as they are, without making or reading a message;
FastStream publishes and takes a pydantic model with the same entries in its own (JSON) form. Both processes
of a side run on the same loop and stay for all rounds. Counted: from the first publish to the last message
handled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial

import common
import nats
from nats.aio.client import Client

from bakemesh.bus import Bus, BusSettings
from bakemesh.bus.sealing import seal
from bakemesh.bus.server import EmbeddedServer
from bakemesh.protocol.admit import Delivery
from bakemesh.protocol.builder.messages import BakeStatus
from bakemesh.protocol.identity import Identity

IDENTITY = Identity("nightly", "bringup", "nightly-bringup-17", "alpha", "alpha")
SIDES = ("ours", "raw", "faststream")
# Of one length, and each side's own: they share the server.
SUBJECTS = {
    side: f"psyclone.alpha.nightly{number}.{IDENTITY.recipe_id}.{BakeStatus.TYPE}"
    for number, side in enumerate(SIDES)
}
FLUSHES = 2  # nats-py's first PING overtakes what is pending
FASTSTREAM_SHARE = 8  # it gets so many times fewer messages: it takes as much longer


def status(serial: int) -> BakeStatus:
    """A Status as a step in progress says it."""
    return BakeStatus(
        **IDENTITY.fields(),
        kind="interim",
        serial=serial,
        pct=37,
        summary="step 3 (compile): 37 % of the files",
        stepindex=3,
        step="compile",
        attempt=1,
    )


# -- the processes


class Counter:
    """Counts what is handled, in rounds of `count`."""

    def __init__(self, count: int) -> None:
        self.count, self.left, self.ended = count, 0, 0.0
        self.all = asyncio.Event()

    def one(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.ended = time.monotonic()
            self.all.set()

    async def round(self) -> None:
        self.left = self.count
        self.all.clear()
        cpu = time.process_time()
        common.say_ready()
        async with asyncio.timeout(common.ROLE_S):
            await self.all.wait()
        common.say(ended=self.ended, cpu_us=(time.process_time() - cpu) / self.count * 1e6)


async def give(
    count: int, publish: Callable[[int], Awaitable[None]], flush: Callable[[], Awaitable[None]]
) -> None:
    """Publishes a round of messages whenever it is told to."""

    async def burst() -> None:
        began, cpu = time.monotonic(), time.process_time()
        for serial in range(1, count + 1):
            await publish(serial)
        await flush()
        common.say(began=began, cpu_us=(time.process_time() - cpu) / count * 1e6)

    common.say_ready()
    await common.on_command(burst)


async def take_ours(url: str, count: int) -> None:
    counter = Counter(count)

    def handle(delivery: Delivery) -> None:
        message = delivery.received.message
        assert isinstance(message, BakeStatus)
        assert message.stepindex == 3
        counter.one()

    async with await Bus.connect(BusSettings(servers=(url,), name="nightly")) as bus:
        await bus.subscribe(SUBJECTS["ours"], handle)
        await common.on_command(counter.round)


async def give_ours(url: str, count: int) -> None:
    async with await Bus.connect(BusSettings(servers=(url,), name="builder", node_id="alpha")) as bus:
        await give(count, lambda serial: bus.publish(SUBJECTS["ours"], status(serial)), bus.link.barrier)


async def flushed(client: Client) -> None:
    """What nats-py has is with the server."""
    for _ in range(FLUSHES):
        await client.flush()


async def take_raw(url: str, count: int) -> None:
    counter = Counter(count)

    async def handle(_msg: object) -> None:
        counter.one()

    client = await nats.connect(url)
    await client.subscribe(SUBJECTS["raw"], cb=handle)
    await flushed(client)
    await common.on_command(counter.round)
    await client.close()


async def give_raw(url: str, count: int) -> None:
    payload = seal(status(1000), "builder@alpha").payload
    client = await nats.connect(url)
    await give(count, lambda _serial: client.publish(SUBJECTS["raw"], payload), partial(flushed, client))
    await client.close()


async def take_faststream(url: str, count: int) -> None:
    from faststream.nats import NatsBroker

    counter = Counter(count)
    broker = NatsBroker(url, logger=None)

    @broker.subscriber(SUBJECTS["faststream"])
    async def handle(message: BakeStatus) -> None:
        assert message.stepindex == 3
        counter.one()

    async with broker:
        await broker.start()
        await asyncio.sleep(0.3)  # it has no way to say that the server has its subscription
        await common.on_command(counter.round)


async def give_faststream(url: str, count: int) -> None:
    from faststream.nats import NatsBroker

    async with NatsBroker(url, logger=None) as broker:
        await broker.start()

        async def publish(serial: int) -> None:
            await broker.publish(status(serial), SUBJECTS["faststream"])

        async def flush() -> None:
            await asyncio.sleep(0)

        await give(count, publish, flush)


# -- the measurement


class Side:
    """The two processes of one side."""

    def __init__(self, server: EmbeddedServer, name: str, count: int, loop: str) -> None:
        self.server, self.name, self.count, self.loop = server, name, count, loop
        self.spent: list[
            tuple[float, ...]
        ] = []  # µs of CPU a message: giving process, taking process, server

    async def start(self, stack: AsyncExitStack) -> None:
        operands = (self.server.url, self.count, self.loop)
        self.giving = await stack.enter_async_context(common.role(f"give_{self.name}", *operands))
        self.taking = await stack.enter_async_context(common.role(f"take_{self.name}", *operands))
        await self.giving.ready()

    async def once(self) -> float:
        """Messages a second."""
        before = common.cpu_s(self.server.pid)
        await self.taking.go()
        await self.taking.ready()
        await self.giving.go()
        gave, took = await self.giving.said(), await self.taking.said()
        served = (common.cpu_s(self.server.pid) - before) / self.count * 1e6
        self.spent.append(tuple(round(us, 1) for us in (gave["cpu_us"], took["cpu_us"], served)))
        return float(self.count / (took["ended"] - gave["began"]))


async def measure(count: int, turns: int) -> None:
    report = common.Report("typed_status")
    async with common.folder() as where, common.server(where) as server:
        for loop in common.loops():
            async with AsyncExitStack() as stack:
                sides = {}
                for name in SIDES:
                    share = FASTSTREAM_SHARE if name == "faststream" else 1
                    sides[name] = Side(server, name, count // share, loop)
                    await sides[name].start(stack)
                found = await common.rounds(turns, {name: side.once for name, side in sides.items()})
            report.claim(f"to raw nats-py, {loop}", common.ratio(found["ours"], found["raw"]), at_least=0.6)
            report.claim(
                f"to FastStream, {loop}", common.ratio(found["ours"], found["faststream"]), at_least=4
            )
            report.numbers[loop] = {f"{name}_per_s": rates for name, rates in found.items()}
            report.numbers[loop] |= {f"{name}_cpu_us": side.spent for name, side in sides.items()}
    report.finish()


ROLES = {
    each.__name__: each
    for each in (take_ours, give_ours, take_raw, give_raw, take_faststream, give_faststream)
}

if __name__ == "__main__":
    args = common.arguments(__doc__, count=20_000, rounds=15)
    if args.role:
        url, count, loop = args.operands
        common.run(ROLES[args.role](url, int(count)), loop)
    else:
        asyncio.run(measure(args.count, args.rounds))
