"""The engine as it is built for every machine, against the one that is built for this machine alone.

Peer: llama.cpp in this environment (`make engine`). Ours: the wheel in run/wheels (`make wheel`), unpacked,
with the CPU variant that it chose. Both do the same, a process each, one thread each, in turns: embeddings of
10, 32 and mixed tokens, the reading of a prompt, a generation. What counts is work in a second of CPU time,
which a busy neighbour disturbs less than time on the clock.
"""

from __future__ import annotations

import asyncio
import sys
import time
import zipfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "examples" / "inference"))

import common
import models

from bakemesh.worker.engines.base import Options

RUN = Path(__file__).parents[1] / "run"
ITEMS = 32
MIXES = {"10 tokens": (10, 10), "32 tokens": (32, 32), "mixed 4 to 88": (4, 88)}
CPU_S = 1.0
PROMPT, TOKENS = 256, 48
Work = Callable[[], int]


def works(engine: Any) -> dict[str, Work]:
    """What is measured, by name: each does a piece and says how much it was."""

    def opened(path: Path) -> Any:
        with path.open("rb") as file:
            return engine.load(file.fileno(), str(path), "gguf", {})

    embedder, chat = (
        opened(models.embedder(RUN / "models")),
        opened(models.chat(RUN / "models")),
    )
    rng = np.random.default_rng(3)
    found: dict[str, Work] = {}
    for name, (low, high) in MIXES.items():
        counts = [int(each) for each in rng.integers(low, high + 1, ITEMS)]
        ids = rng.integers(1000, embedder.n_vocab, sum(counts)).astype(np.int32)

        def embed(counts: list[int] = counts, ids: Any = ids) -> int:
            engine.embed(embedder, "mean", True, counts, ids.data)
            return ITEMS

        found[name] = embed

    def generate(length: int, most: int) -> int:
        ids = rng.integers(1000, chat.n_vocab, length).astype(
            np.int32
        )  # another each time: nothing of it is kept
        done = engine.generate(chat, ids.data, Options(max_tokens=most), None, lambda: False)
        return length if most == 1 else int(done.n_gen) or 1

    found["prompt"] = lambda: generate(PROMPT, 1)
    found["generation"] = lambda: generate(1, TOKENS)
    return found


async def serve(folder: str) -> None:
    """A role: says its variant, then the rates of all works for each `go`."""
    if folder:
        sys.path.insert(0, folder)
    from bakemesh.worker.engines.llama import make

    engine = make()
    common.say_ready()
    measured: dict[str, Work] = {}

    async def once() -> None:
        if not measured:
            measured.update(works(engine))
            for work in measured.values():
                work()
        rates = {}
        for name, work in measured.items():
            done, began = 0, time.process_time()
            while (took := time.process_time() - began) < CPU_S:
                done += work()
            rates[name] = done / took
        common.say(rates=rates, variant=engine.build_flags["variant"])

    await common.on_command(once)


async def main(rounds: int) -> None:
    """Prints what was found."""
    wheels = sorted((RUN / "wheels").glob("llama_cpp_python-*.whl"))
    if not wheels:
        print("engine_builds: no wheel in run/wheels: make wheel")
        return
    for fetch in (models.embedder, models.chat):
        fetch(RUN / "models")
    report = common.Report("engine_builds")
    async with common.folder() as where:
        zipfile.ZipFile(wheels[-1]).extractall(where / "portable")
        async with common.role("engine", "") as native, common.role("engine", where / "portable") as portable:
            sides = {"peer": native, "ours": portable}
            said: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}

            def turn(name: str) -> Callable[[], Awaitable[float]]:
                async def once() -> float:
                    await sides[name].go()
                    said[name].append(await sides[name].said())
                    return 0.0

                return once

            await asyncio.gather(*(each.ready() for each in sides.values()))
            await common.rounds(rounds, {name: turn(name) for name in sides})
    for work in said["peer"][0]["rates"]:
        ours, peer = ([each["rates"][work] for each in said[name]] for name in ("ours", "peer"))
        report.claim(f"{work}, of the native build", common.ratio(ours, peer), at_least=0.97)
        report.numbers[work] = {"ours": ours, "peer": peer}
    report.numbers["variants"] = {name: said[name][0]["variant"] for name in sides}
    report.finish()


if __name__ == "__main__":
    args = common.arguments(__doc__, rounds=7)
    if args.role == "engine":
        common.run(serve(args.operands[0] if args.operands else ""))
    else:
        common.run(main(args.rounds))
