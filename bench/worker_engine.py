"""The llama engine behind a pool, against the same engine in this process.

Peer: the same engine, asked directly by the best packing there is (encodes of at most 256 tokens). Ours: a
`Pool` of one worker process, EMBED_BATCH of 32 items at a time, GENERATE, and a chat's next turn. Both have
one thread and the same real models (examples/inference/models.py fetches them into run/models once).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "examples" / "inference"))

import common
import models

from bakemesh.worker.engines.base import Options
from bakemesh.workerpool import Artifact, ModelKey, Pool, Settings, Share, Token, WorkerPoolError
from bakemesh.workerpool.settings import OUR_WORKER

MODELS = Path(__file__).parents[1] / "run" / "models"
ITEMS = 32
MIXES = {"10 tokens": (10, 10), "32 tokens": (32, 32), "mixed 4 to 88": (4, 88)}
SECONDS = 1.0
PREFIX, TURN, TOKENS = 256, 24, 48

Work = Callable[[], Awaitable[int]]


def items(low: int, high: int, vocabulary: int) -> tuple[list[int], bytes]:
    """Counts and ids of a batch; what they mean costs nothing."""
    rng = np.random.default_rng(3)
    counts = [int(each) for each in rng.integers(low, high + 1, ITEMS)]
    return counts, rng.integers(1000, vocabulary, sum(counts)).astype("<i4").tobytes()


def prompt(length: int, seed: int) -> bytes:
    """Ids that a chat model reads like any others."""
    return np.random.default_rng(seed).integers(1000, 40_000, length).astype("<i4").tobytes()


async def per_second(work: Work) -> float:
    """How much `work` does in a second, measured for one."""
    await work()
    done, began = 0, time.perf_counter()
    while (took := time.perf_counter() - began) < SECONDS:
        done += await work()
    return done / took


def opened(engine: Any, path: Path) -> Any:
    """The model in this process."""
    with path.open("rb") as file:
        return engine.load(file.fileno(), str(path), "gguf", {})


async def loaded(pool: Pool, path: Path) -> ModelKey:
    """The model in the worker."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return (await pool.load(Artifact(path=path, digest=f"sha256:{digest}"), {})).key


def embeddings(engine: Any, model: Any, pool: Pool, key: ModelKey) -> dict[str, dict[str, Work]]:
    """Both sides of each mix."""
    sides: dict[str, dict[str, Work]] = {}
    for name, (low, high) in MIXES.items():
        counts, ids = items(low, high, model.n_vocab)

        async def direct(counts: list[int] = counts, ids: bytes = ids) -> int:
            engine.embed(model, "mean", True, counts, memoryview(ids).cast("i"))
            return ITEMS

        async def through(counts: list[int] = counts, ids: bytes = ids) -> int:
            return (await pool.embed(key, Share(counts, ids))).n

        sides[name] = {"ours": through, "peer": direct}
    return sides


def generations(engine: Any, model: Any, pool: Pool, key: ModelKey) -> dict[str, Work]:
    """Both sides of a generation, the prompt another one each time so that nothing of it is kept."""
    seeds = iter(range(1 << 30))

    async def direct() -> int:
        ids = memoryview(prompt(59, next(seeds))).cast("i")
        return int(engine.generate(model, ids, Options(max_tokens=TOKENS), None, lambda: False).n_gen) or 1

    async def through() -> int:
        return (await pool.generate(key, prompt(59, next(seeds)), TOKENS)).n_gen or 1

    return {"ours": through, "peer": direct}


async def first_token_ms(pool: Pool, key: ModelKey, ids: bytes) -> float:
    """From the question to the first token."""
    began = time.perf_counter()
    async for each in pool.generate_stream(key, ids, 2):
        if isinstance(each, Token):
            return (time.perf_counter() - began) * 1000
    raise RuntimeError("the chat model said nothing")


async def follow_up(pool: Pool, key: ModelKey, number: int) -> tuple[float, float]:
    """First token of a cold prompt, and of one that goes on from it."""
    said = prompt(PREFIX, 10_000 + number)
    cold = await first_token_ms(pool, key, said)
    warm = await first_token_ms(pool, key, said + prompt(TURN, 20_000 + number))
    return cold, warm


async def killed_to_serving_ms(pool: Pool, key: ModelKey, share: Share) -> float:
    """From a worker's kill -9 to its next vectors, the model loaded again."""
    pid = pool.health().lanes[0].pid
    assert pid is not None
    began = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    while True:
        try:
            await pool.embed(key, share)
        except WorkerPoolError:
            await asyncio.sleep(0.001)
            continue
        if pool.health().lanes[0].pid != pid:
            return (time.perf_counter() - began) * 1000


async def main(rounds: int) -> None:
    """Prints what was found."""
    try:
        from bakemesh.worker.engines.llama import make

        engine = make()
    except ImportError as error:
        print(f"worker_engine: {error}")
        return
    report = common.Report("worker_engine")
    embedder, chat = models.embedder(MODELS), models.chat(MODELS)
    async with common.folder() as where:
        settings = Settings(runtime_dir=where / "run", command=OUR_WORKER, budget=None)
        async with Pool(settings) as pool:
            embeds, chats = await loaded(pool, embedder), await loaded(pool, chat)
            sides = embeddings(engine, opened(engine, embedder), pool, embeds)
            sides["generation"] = generations(engine, opened(engine, chat), pool, chats)
            for name, pair in sides.items():

                def measured(work: Work) -> Callable[[], Awaitable[float]]:
                    return lambda: per_second(work)

                found = await common.rounds(rounds, {side: measured(work) for side, work in pair.items()})
                bound = 0.97 if name == "generation" else 0.95
                report.claim(
                    f"{name}, of in process", common.ratio(found["ours"], found["peer"]), at_least=bound
                )
                report.numbers[name] = found
            turns = [await follow_up(pool, chats, number) for number in range(rounds)]
            counts, ids = items(10, 10, 30_000)
            kills = [await killed_to_serving_ms(pool, embeds, Share(counts, ids)) for _ in range(rounds)]
    report.claim(
        f"first token of a next turn at a prefix of {PREFIX}, of a cold one",
        statistics.median(warm / cold for cold, warm in turns),
        at_most=0.2,
    )
    report.claim("kill -9 to vectors again, model loaded, ms", statistics.median(kills))
    report.numbers |= {"turns_ms": turns, "killed_to_serving_ms": kills, "engine": engine.build_flags}
    report.finish()


if __name__ == "__main__":
    common.run(main(common.arguments(__doc__, rounds=7).rounds), common.loops()[-1])
