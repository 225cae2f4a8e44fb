"""A typed Status, published in one process and handled in another, against raw nats-py and FastStream.

Raw nats-py carries the very bytes of a sealed Status as they are, without making or reading a message;
FastStream publishes and takes a pydantic model with the same entries in its own (JSON) form. Both processes
of a side run on the same loop. Counted: from the first publish to the last message handled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

import common

from bakemesh.bus import Bus, BusSettings
from bakemesh.bus.server import EmbeddedServer
from bakemesh.protocol.admit import Delivery
from bakemesh.protocol.builder.messages import BakeStatus
from bakemesh.protocol.identity import Identity

IDENTITY = Identity("nightly", "bringup", "nightly-bringup-17", "alpha", "alpha")
SUBJECT = f"psyclone.alpha.nightly.{IDENTITY.recipe_id}.{BakeStatus.TYPE}"
SIDES = ("ours", "raw", "faststream")
FLUSHES = 2  # nats-py's first PING overtakes what is pending


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
    """Counts what is handled; `all` is done at the last one."""

    def __init__(self, count: int) -> None:
        self.left, self.count, self.ended, self.cpu = count, count, 0.0, 0.0
        self.all = asyncio.Event()

    def one(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.ended, self.cpu = time.monotonic(), time.process_time() - self.cpu
            self.all.set()

    async def wait(self) -> None:
        self.cpu = time.process_time()
        common.say_ready()
        async with asyncio.timeout(common.ROLE_S):
            await self.all.wait()
        common.say(ended=self.ended, cpu_us=self.cpu / self.count * 1e6)


async def take_ours(url: str, count: int) -> None:
    counter = Counter(count)

    def handle(delivery: Delivery) -> None:
        message = delivery.received.message
        assert isinstance(message, BakeStatus)
        assert message.stepindex == 3
        counter.one()

    async with await Bus.connect(BusSettings(servers=(url,), name="nightly")) as bus:
        await bus.subscribe(SUBJECT, handle)
        await counter.wait()


async def give_ours(url: str, count: int) -> None:
    async with await Bus.connect(BusSettings(servers=(url,), name="builder", node_id="alpha")) as bus:
        common.say_ready()
        began, cpu = time.monotonic(), time.process_time()
        for serial in range(1, count + 1):
            await bus.publish(SUBJECT, status(serial))
    common.say(began=began, cpu_us=(time.process_time() - cpu) / count * 1e6)


async def take_raw(url: str, count: int) -> None:
    import nats

    counter = Counter(count)

    async def handle(_msg: object) -> None:
        counter.one()

    client = await nats.connect(url)
    await client.subscribe(SUBJECT, cb=handle)
    for _ in range(FLUSHES):
        await client.flush()
    await counter.wait()
    await client.close()


async def give_raw(url: str, count: int) -> None:
    import nats

    from bakemesh.bus.sealing import seal

    payload = seal(status(1000), "builder@alpha").payload
    client = await nats.connect(url)
    common.say_ready()
    began, cpu = time.monotonic(), time.process_time()
    for _ in range(count):
        await client.publish(SUBJECT, payload)
    await client.drain()
    common.say(began=began, cpu_us=(time.process_time() - cpu) / count * 1e6)


async def take_faststream(url: str, count: int) -> None:
    from faststream.nats import NatsBroker

    counter = Counter(count)
    broker = NatsBroker(url, logger=None)

    @broker.subscriber(SUBJECT)
    async def handle(message: BakeStatus) -> None:
        assert message.stepindex == 3
        counter.one()

    async with broker:
        await broker.start()
        await asyncio.sleep(0.3)  # it has no way to say that the server has its subscription
        await counter.wait()


async def give_faststream(url: str, count: int) -> None:
    from faststream.nats import NatsBroker

    async with NatsBroker(url, logger=None) as broker:
        await broker.start()
        common.say_ready()
        began, cpu = time.monotonic(), time.process_time()
        for serial in range(1, count + 1):
            await broker.publish(status(serial), SUBJECT)
        # Closing drains.
    common.say(began=began, cpu_us=(time.process_time() - cpu) / count * 1e6)


# -- the measurement


async def once(
    nats: EmbeddedServer, side: str, count: int, loop: str, spent: list[tuple[float, ...]]
) -> float:
    """Messages a second; `spent` gets the µs of CPU that one took: in the giving process, the taking process,
    the server.
    """
    url, before = nats.url, common.cpu_s(nats.pid)
    async with common.role(f"take_{side}", url, count, loop) as taking:
        await taking.ready()
        async with common.role(f"give_{side}", url, count, loop) as giving:
            gave, took = await giving.result(), await taking.result()
    served = (common.cpu_s(nats.pid) - before) / count * 1e6
    spent.append(tuple(round(us, 1) for us in (gave["cpu_us"], took["cpu_us"], served)))
    return float(count / (took["ended"] - gave["began"]))


async def measure(count: int, turns: int) -> None:
    report = common.Report("typed_status")
    async with common.folder() as where, common.server(where) as nats:
        for loop in common.loops():
            spent: dict[str, list[tuple[float, ...]]] = {side: [] for side in SIDES}
            sides: dict[str, Callable[[], Awaitable[float]]] = {
                side: partial(
                    once, nats, side, count if side != "faststream" else count // 4, loop, spent[side]
                )
                for side in SIDES
            }
            found = await common.rounds(turns, sides)
            report.claim(f"to raw nats-py, {loop}", common.ratio(found["ours"], found["raw"]), at_least=0.6)
            report.claim(
                f"to FastStream, {loop}", common.ratio(found["ours"], found["faststream"]), at_least=4
            )
            report.numbers[loop] = {f"{side}_per_s": rates for side, rates in found.items()}
            report.numbers[loop] |= {f"{side}_cpu_us": each for side, each in spent.items()}
    report.finish()


ROLES = {
    each.__name__: each
    for each in (take_ours, give_ours, take_raw, give_raw, take_faststream, give_faststream)
}

if __name__ == "__main__":
    args = common.arguments(__doc__, count=40_000, rounds=5)
    if args.role:
        url, count, loop = args.operands
        common.run(ROLES[args.role](url, int(count)), loop)
    else:
        asyncio.run(measure(args.count, args.rounds))
