"""Whether load evens out over two nodes of which one is half as fast, at 80 percent of what both can do.

Two synapse modules with a fake engine each, whose every batch takes a fixed time (the slow one's twice as
long), and whose items are so long that a batch holds one. Several clients, each a connection that knows what
the nodes publish and what it sent itself, send at random moments (Poisson). A request's queue time is what it
took beyond its batch's own time on that node. The claim is about the medians of both nodes; the peer is the
queue group `any`, which shares evenly and knows nothing, in turns in the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import common

from bakemesh.inference import Inference, Usage

FAST_MS, SLOW_MS = 20, 40
NODES = {"fast": FAST_MS, "slow": SLOW_MS}
TOKENS = 400  # of a request: a byte a token, and no two of them fit into a batch
LOAD = 0.8
CLIENTS = 4
WITHIN = 1.5


@asynccontextmanager
async def module(where: Path, url: str, node: str, slow_ms: int) -> AsyncIterator[None]:
    """A module with one worker."""
    model = where / "model.fake"
    model.write_text(json.dumps({"kind": "embed", "dims": 8}))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bakemesh.synapse", "--nats", url, "--node", node),
        *("--state", str(where / node), "--engine=fake", "--workers=1", "--log-level=error"),
        *("--model", f"mini={model}", "--model", f"mini.slow_ms={slow_ms}", "--max-queue-ms=60000"),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(common.READY_S):
            assert (await process.stdout.readline()).startswith(b"ready")
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def capacity(client: Inference, node: str) -> float:
    """Requests a second of a node that always has some waiting."""
    count = 120
    await asyncio.gather(*(one(client, node) for _ in range(10)))
    began = time.perf_counter()
    await asyncio.gather(*(one(client, node) for _ in range(count)))
    return count / (time.perf_counter() - began)


async def one(client: Inference, node: str | None) -> tuple[str, float]:
    """A request: which node did it, and how many seconds it took."""
    usage = Usage()
    began = time.perf_counter()
    await client.embed(["x" * TOKENS], model="mini", node=node, usage=usage)
    return next(iter(usage.nodes)), time.perf_counter() - began


async def shared(
    clients: list[Inference],
    rate: float,
    seconds: float,
    services: dict[str, float],
    seed: int,
    *,
    blind: bool,
) -> dict[str, list[float]]:
    """The queue times of each node. `blind`: nodes are drawn evenly, as a queue group does."""
    chance = random.Random(seed)
    took: dict[str, list[float]] = {node: [] for node in NODES}

    async def send() -> None:
        node, passed = await one(chance.choice(clients), chance.choice(list(NODES)) if blind else None)
        took[node].append(max(0.0, passed - services[node]))

    async with asyncio.TaskGroup() as group:
        end = time.perf_counter() + seconds
        at = time.perf_counter()
        while at < end:
            at += chance.expovariate(rate)
            await asyncio.sleep(max(0.0, at - time.perf_counter()))
            group.create_task(send())
    return took


async def bench(rounds: int, seconds: float) -> None:
    """Prints and keeps what was found."""
    found: dict[str, list[dict[str, float]]] = {"ours": [], "blind": []}
    async with common.folder() as where, common.server(where) as nats, AsyncExitStack() as stack:
        for node, slow_ms in NODES.items():
            await stack.enter_async_context(module(where, nats.url, node, slow_ms))
        clients = [
            await stack.enter_async_context(Inference.connect(nats.url, f"app{n}")) for n in range(CLIENTS)
        ]
        await asyncio.gather(*(client.health() for client in clients))  # waits until every node was heard of
        rates = {node: await capacity(clients[0], node) for node in NODES}
        services = {node: min([(await one(clients[0], node))[1] for _ in range(20)]) for node in NODES}
        for round_ in range(rounds):
            for way in found:
                took = await shared(
                    clients, LOAD * sum(rates.values()), seconds, services, round_, blind=way == "blind"
                )
                found[way].append(
                    {
                        **{
                            f"{node}_median_ms": 1000 * statistics.median(each) for node, each in took.items()
                        },
                        **{f"{node}_requests": len(each) for node, each in took.items()},
                        "mean_ms": 1000 * statistics.mean([t for each in took.values() for t in each]),
                    }
                )
    for way, each in found.items():
        for row in each:
            low, high = sorted(row[f"{node}_median_ms"] for node in NODES)
            row["ratio"] = high / max(low, 1.0)
            print(way, {name: round(value, 1) for name, value in row.items()})
    ratio = statistics.median(row["ratio"] for row in found["ours"])
    blind = statistics.median(row["ratio"] for row in found["blind"])
    verdict = "ok" if ratio <= WITHIN else "MISSED"
    print(
        f"two_nodes: median queue times of both nodes within {ratio:.2f} times (promised {WITHIN}; "
        f"{verdict}); a queue group: {blind:.2f}"
    )
    common.RESULTS.mkdir(exist_ok=True)
    result = {"bench": "two_nodes", "rates": rates, "services": services, "ratio": ratio, **found}
    (common.RESULTS / "two_nodes.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))


def main() -> None:
    """The bench."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0)
    arguments = parser.parse_args()
    asyncio.run(bench(arguments.rounds, arguments.seconds))


if __name__ == "__main__":
    main()
