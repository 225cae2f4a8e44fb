"""What bus, module and worker add to one text, and what an interactive caller waits behind endless bulk.

Peer of the first: the same engine in this process, asked with the ids that the module makes of the text. Of
the second: the same bulk with nobody interactive beside it. One lane of one thread on either side.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "examples" / "inference"))

import common
import models
import numpy as np
import synapse_embeddings as embeddings

from bakemesh.inference import Inference

TEXT = "the river stone house garden winter summer paper"  # 10 tokens with [CLS] and [SEP]
ALONE = 300
BULK_ITEMS = 64
PER_S = 10.0  # interactive ones, at random times
SECONDS = 12.0


async def one_by_one(inference: Inference, count: int) -> list[float]:
    """ms of so many single texts, one after the other."""
    took = []
    for _ in range(count):
        began = time.perf_counter()
        await inference.embed([TEXT], model=embeddings.ALIAS)
        took.append((time.perf_counter() - began) * 1000)
    return took


def in_process() -> Any:
    """ms of the same ids in this process, as a function of how many."""
    from bakemesh.worker.engines.llama import make

    engine = make()
    with models.embedder(embeddings.MODELS).open("rb") as file:
        model = engine.load(file.fileno(), "minilm", "gguf", {})
    ids = memoryview(np.arange(2000, 2010, dtype="<i4").tobytes()).cast("i")

    def measure(count: int) -> list[float]:
        took = []
        for _ in range(count):
            began = time.perf_counter()
            engine.embed(model, "mean", True, [10], ids)
            took.append((time.perf_counter() - began) * 1000)
        return took

    measure(20)
    return measure


async def bulk(inference: Inference, until: float) -> int:
    """Endless bulk from one caller with two requests on their way; how many tokens came back."""
    said = embeddings.texts("mixed")

    async def stream(seed: int) -> int:
        draw, tokens = random.Random(seed), 0
        while time.perf_counter() < until:
            chosen = [draw.choice(said) for _ in range(BULK_ITEMS)]
            await inference.embed(chosen, model=embeddings.ALIAS, work_class="bulk")
            if time.perf_counter() < until:
                tokens += sum(len(each.split()) + 2 for each in chosen)
        return tokens

    return sum(await asyncio.gather(stream(1), stream(2)))


async def interactive(inference: Inference, until: float) -> list[float]:
    """ms of single texts that come at random times, each in its own time."""
    draw, took, asked = random.Random(3), list[float](), list[asyncio.Task[None]]()

    async def one() -> None:
        began = time.perf_counter()
        await inference.embed([TEXT], model=embeddings.ALIAS)
        took.append((time.perf_counter() - began) * 1000)

    while (now := time.perf_counter()) < until:
        await asyncio.sleep(min(draw.expovariate(PER_S), max(0.0, until - now)))
        asked.append(asyncio.ensure_future(one()))
    await asyncio.gather(*asked)
    return took


async def main(rounds: int) -> None:
    """Prints what was found."""
    report = common.Report("synapse_latency")
    async with (
        common.folder() as where,
        embeddings.mesh(where, workers=1) as serves,
        Inference.connect(serves.url, name="bench") as one,
        Inference.connect(serves.url, name="bulk") as other,
    ):
        direct = in_process()
        await one_by_one(one, 30)
        through, alone = list[float](), list[float]()
        for _ in range(rounds):
            through += await one_by_one(one, ALONE)
            alone += direct(ALONE)
        added = common.percentile(through, 0.5) - common.percentile(alone, 0.5)
        report.claim("bus, module and worker add to one text, p50, ms", added, at_most=2)
        report.claim("the same, p99, ms", common.percentile(through, 0.99) - common.percentile(alone, 0.99))
        waits, beside, by_itself = list[float](), list[float](), list[float]()
        for _ in range(rounds):
            by_itself.append(await bulk(other, time.perf_counter() + SECONDS) / SECONDS)
            until = time.perf_counter() + SECONDS
            tokens, took = await asyncio.gather(bulk(other, until), interactive(one, until))
            beside.append((tokens + 10 * len(took)) / SECONDS)
            waits += took
    report.claim(
        "one interactive text behind endless bulk, p99, ms", common.percentile(waits, 0.99), at_most=130
    )
    report.claim("the same, p50, ms", common.percentile(waits, 0.5))
    report.claim(
        "tokens a second with interactive ones, of bulk alone", common.ratio(beside, by_itself), at_least=0.97
    )
    report.numbers = {"through_ms": through, "alone_ms": alone, "waits_ms": waits, "bulk_per_s": by_itself}
    report.finish()


if __name__ == "__main__":
    common.run(main(common.arguments(__doc__, rounds=3).rounds), common.loops()[-1])
