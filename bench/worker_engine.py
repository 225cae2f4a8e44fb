"""The llama engine in a worker, against the same engine without one.

Peer: the same engine in this process, asked by the best packing there is (encodes of at most 256 tokens).
Ours: a worker process over its socket, one EMBED_BATCH of 32 items at a time, and GENERATE. Both have one
thread. The model is MiniLM or any embedder that BENCH_EMBEDDER names, and BENCH_CHAT for generation; without
them tiny ones of the tests, on which the socket weighs more than on any real model.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "tests"))

import common

from bakemesh.worker.engines.base import Options
from support.workerhost import Host, i32

ITEMS = 32
MIXES = {"10 tokens": (10, 10), "32 tokens": (32, 32), "mixed 4 to 100": (4, 100)}
SECONDS = 1.0


def items(low: int, high: int, vocabulary: int) -> list[list[int]]:
    """A batch of random ids; what they mean costs nothing."""
    rng = np.random.default_rng(3)
    return [rng.integers(5, vocabulary, length).tolist() for length in rng.integers(low, high + 1, ITEMS)]


def per_second(work: Callable[[], int]) -> float:
    """How much `work` does in a second, measured for one."""
    work()
    done, began = 0, time.perf_counter()
    while (took := time.perf_counter() - began) < SECONDS:
        done += work()
    return done / took


def opened(engine: Any, path: Path) -> Any:
    """The model in this process."""
    with path.open("rb") as file:
        return engine.load(file.fileno(), str(path), "gguf", {})


def embed_both(engine: Any, host: Host, path: Path, ref: str) -> dict[str, dict[str, Callable[[], int]]]:
    """For each mix, both sides."""
    model = opened(engine, path)
    sides: dict[str, dict[str, Callable[[], int]]] = {}
    for name, (low, high) in MIXES.items():
        batch = items(low, high, model.n_vocab)
        counts = [len(each) for each in batch]
        flat = np.concatenate([np.asarray(each, np.int32) for each in batch])

        def direct(counts: list[int] = counts, flat: np.ndarray = flat) -> int:
            engine.embed(model, "mean", True, counts, flat.data)
            return ITEMS

        def through(batch: list[list[int]] = batch) -> int:
            got, data = host.embed(ref, *batch)
            assert got["type"] == "VECTORS"
            assert data is not None
            return ITEMS

        sides[name] = {"ours": through, "peer": direct}
    return sides


def generate_both(engine: Any, host: Host, path: Path, ref: str) -> dict[str, Callable[[], int]]:
    """Both sides of a generation of 64 tokens."""
    model = opened(engine, path)
    ids = np.random.default_rng(4).integers(259, min(model.n_vocab, 350), 40).astype(np.int32)

    def direct() -> int:
        return int(engine.generate(model, ids.data, Options(max_tokens=64), None, lambda: False).n_gen)

    def through() -> int:
        got, _ = host.ask("GENERATE", i32(*ids.tolist()), model_ref=ref, max_tokens=64)
        assert got["type"] == "TEXT"
        return int(got["n_gen"])

    return {"ours": through, "peer": direct}


async def main(rounds: int) -> None:
    """Prints what was found."""
    try:
        from bakemesh.worker.engines.llama import make
        from support import models

        engine = make()
    except ImportError as error:
        print(f"worker_engine: {error}")
        return
    report = common.Report("worker_engine")
    async with common.folder() as where:
        embedder = Path(os.environ.get("BENCH_EMBEDDER") or models.bert(where / "bert.gguf"))
        chat = Path(os.environ.get("BENCH_CHAT") or models.babble(where / "babble.gguf"))
        real = "BENCH_EMBEDDER" in os.environ and "BENCH_CHAT" in os.environ
        with Host(engine="llama") as host:

            def loaded(path: Path) -> str:
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                got, _ = host.try_load(path, digest, format="gguf")
                assert got["type"] == "LOADED", got
                return str(got["model_ref"])

            sides = embed_both(engine, host, embedder, loaded(embedder))
            sides["generation"] = generate_both(engine, host, chat, loaded(chat))
            for name, pair in sides.items():

                def measured(work: Callable[[], int]) -> Callable[[], Any]:
                    async def once() -> float:
                        return per_second(work)

                    return once

                found = await common.rounds(rounds, {side: measured(work) for side, work in pair.items()})
                bound = (0.97 if name == "generation" else 0.95) if real else None
                report.claim(
                    f"{name}, of in process", common.ratio(found["ours"], found["peer"]), at_least=bound
                )
                report.numbers[name] = found
    report.numbers |= {"real models": real, "engine": engine.build_flags}
    report.finish()


if __name__ == "__main__":
    asyncio.run(main(common.arguments(__doc__, rounds=5).rounds))
