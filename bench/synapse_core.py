"""The core of the synapse module alone, on the fake engine: what scheduling costs a request, and how that
grows.

Ours: callers, one text of 10 tokens each at a time, through the core to two real workers. Peer: the same
lanes asked directly with full batches of 32 callers' items, as nobody with single callers can: what is above
it is the core's own. All CPU is of this process; the workers have their own. Told too: a request that is
refused, and the vectors of one bulk request.
"""

from __future__ import annotations

import asyncio
import hashlib
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import common

from bakemesh.synapse.lanes.local import LocalLanes
from bakemesh.synapse.scheduling.asks import Ask, Failed
from bakemesh.synapse.scheduling.core import Core
from bakemesh.synapse.scheduling.settings import Settings
from bakemesh.workerpool import Artifact, Call, ModelKey, Share
from bakemesh.workerpool import Settings as PoolSettings

CALLERS = (1, 8, 64, 256, 1000)
TOKENS, BATCH = 10, 32
IDS = b"\x07\x00\x00\x00" * TOKENS
FAKE = (sys.executable, "-m", "bakemesh.worker", "--engine", "fake")


class World:
    """Lanes, a core over them, and what each side found: requests a second, and CPU µs of one."""

    def __init__(self, lanes: LocalLanes, core: Core, key: ModelKey, requests: int) -> None:
        self.lanes, self.core, self.key, self.requests = lanes, core, key, requests
        self.cpu_us: dict[str, list[float]] = {}

    async def measured(self, name: str, work: Callable[[], Awaitable[int]]) -> float:
        """Requests a second."""
        began, cpu = time.perf_counter(), time.process_time()
        done = await work()
        self.cpu_us.setdefault(name, []).append((time.process_time() - cpu) / done * 1e6)
        return done / (time.perf_counter() - began)

    async def callers(self, count: int) -> int:
        """So many at a time, each with its next text as soon as it has the last one's vector."""
        left = requests = max(self.requests // 4 if count < 8 else self.requests, count)
        clock = asyncio.get_running_loop().time

        async def caller() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                ask = Ask(deadline=clock() + 60, size=len(IDS))
                rows = self.core.embed(self.key, [TOKENS], IDS, pooling="mean", normalize=True, ask=ask)
                async for part in rows:
                    assert part.n == 1

        await asyncio.gather(*(caller() for _ in range(count)))
        return requests

    async def direct(self) -> int:
        """Full batches on every lane, without a core."""
        shares = [Share([TOKENS], IDS)] * BATCH
        names = [view.name for view in self.lanes.views()]
        batches = self.requests // BATCH // len(names)

        async def on(lane: str) -> None:
            for _ in range(batches):
                found = await self.lanes.embed_batch(lane, self.key, shares, "mean", True, Call(within_s=60))
                assert len(found) == BATCH

        await asyncio.gather(*map(on, names))
        return batches * BATCH * len(names)

    async def bulk(self) -> int:
        """All of them in one request."""
        ask = Ask(deadline=asyncio.get_running_loop().time() + 60, work_class="bulk")
        counts = [TOKENS] * self.requests
        rows = self.core.embed(self.key, counts, IDS * self.requests, pooling="mean", normalize=True, ask=ask)
        return sum([part.n async for part in rows])

    async def refused(self) -> int:
        """Requests that the core does not take: their caller's time is too short."""
        for _ in range(self.requests):
            try:
                self.core.embed(self.key, [TOKENS], IDS, pooling="mean", normalize=True, ask=Ask(deadline=0))
            except Failed:
                continue
            raise AssertionError("it was taken")
        return self.requests


async def opened(where: Path, requests: int) -> World:
    """Two workers that have the model."""
    lanes = LocalLanes(PoolSettings(runtime_dir=where / "run", command=FAKE, workers=2), "bench")
    await lanes.start()
    core = Core(lanes, Settings(max_queue_s=60))
    file = where / "model"
    file.write_bytes(b"any file")
    digest = "sha256:" + hashlib.sha256(b"any file").hexdigest()
    artifact = Artifact(path=file, digest=digest, format="fake")
    manifest = SimpleNamespace(bytes=file.stat().st_size, min_placement_share=None)
    key = core.know(SimpleNamespace(artifact=artifact, config={}, manifest=manifest))
    world = World(lanes, core, key, requests)
    while any(key not in view.loaded for view in lanes.views()):
        for view in lanes.views():
            if view.idle:
                await lanes.load(view.name, key, Call(within_s=60))
        await asyncio.sleep(0.05)
    return world


async def main(rounds: int, requests: int) -> None:
    """Prints what was found."""
    report = common.Report("synapse_core")
    async with common.folder() as where:
        world = await opened(where, requests)
        try:

            def side(name: str, work: Callable[[], Awaitable[int]]) -> Callable[[], Awaitable[float]]:
                return lambda: world.measured(name, work)

            works: dict[str, Callable[[], Awaitable[int]]] = {"direct": world.direct, "bulk": world.bulk}
            works["refused"] = world.refused
            for count in CALLERS:
                works[f"{count} callers"] = lambda count=count: world.callers(count)
            found = await common.rounds(rounds, {name: side(name, work) for name, work in works.items()})
        finally:
            await world.core.close()
            await world.lanes.close()
    cpu = {name: statistics.median(values) for name, values in world.cpu_us.items()}
    report.claim("CPU of the core alone at 64 callers, µs a request", cpu["64 callers"] - cpu["direct"])
    growth = common.ratio(world.cpu_us["1000 callers"], world.cpu_us["64 callers"])
    report.claim("CPU a request at 1,000 callers, of 64", growth, at_most=1.5)
    rate = common.ratio(found["64 callers"], found["direct"])
    report.claim("requests a second at 64 callers, of direct", rate)
    report.claim("CPU of a refused request, µs", cpu["refused"])
    report.claim("CPU of an item of a bulk request, µs", cpu["bulk"])
    report.numbers |= {"requests/s": found, "CPU µs": world.cpu_us}
    report.finish()


if __name__ == "__main__":
    given = common.arguments(__doc__, rounds=3, requests=6000)
    asyncio.run(main(given.rounds, given.requests))
