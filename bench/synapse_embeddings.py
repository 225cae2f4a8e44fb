"""64 callers, one text each: the mesh against llama-server, both whole on the same cores.

Ours: nats-server, a synapse module, and engine workers of one thread, one a core. Peer: llama-server on the
same file, at the best settings known for this load and at its defaults. The rate that counts is embeddings a
CPU-second of all that serves (wall-clock rates are told); callers are a process of their own on either side.
The texts are the same, and so are the vectors: a cosine below 0.999 ends the run. Also in the same run: two
lanes in process, which is what two cores can do with no bus, no tokenizer and no queue at all.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from itertools import cycle
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "examples" / "inference"))

import aiohttp
import common
import llama_server
import models
import numpy as np
import synapse_module

from bakemesh.inference import Inference

MODELS = Path(__file__).parents[1] / "run" / "models"
ALIAS = "mini"
CALLERS = 64
MIXES = {"10 tokens": (10, 10), "32 tokens": (32, 32), "mixed": (4, 88)}
# As many slots as tokens fit: what was best of many tried for this load on two cores.
SETTINGS = {
    "best": "--embedding --pooling mean -t 2 -tb 2 -np 32 -c 16384 -ub 512 -b 512",
    "best (16 slots)": "--embedding --pooling mean -t 2 -tb 2 -np 16 -c 8192 -ub 512 -b 512",
    "defaults": "--embedding",
}
# Each is one token of the model's vocabulary.
WORDS = """
river stone house garden winter summer paper window bread music history science market village doctor engine
letter number colour island bridge forest silver golden animal teacher student answer question machine
"""


def texts(mix: str, count: int = 256) -> list[str]:
    """Texts of so many tokens, [CLS] and [SEP] among them."""
    low, high = MIXES[mix]
    rng = np.random.default_rng(7)
    return [" ".join(rng.choice(WORDS.split(), length - 2)) for length in rng.integers(low, high + 1, count)]


# -- the callers


async def call_mesh(url: str, mix: str, seconds: str) -> None:
    """Role: CALLERS tasks over the client; says what they did, a line a command."""
    said = cycle(texts(mix))
    async with Inference.connect(url, name="bench") as inference:

        async def one(until: float) -> int:
            done = 0
            while time.perf_counter() < until:
                vectors = await inference.embed([next(said)], model=ALIAS)
                assert vectors.shape[0] == 1
                done += 1
            return done

        await _callers(one, float(seconds), lambda: inference.embed(texts(mix)[:8], model=ALIAS))


async def call_http(url: str, mix: str, seconds: str) -> None:
    """Role: the same over HTTP, connections kept."""
    said = cycle(texts(mix))
    connector = aiohttp.TCPConnector(limit=CALLERS)
    async with aiohttp.ClientSession(connector=connector) as http:

        async def ask(given: list[str]) -> np.ndarray:
            async with http.post(f"{url}/v1/embeddings", json={"input": given}) as answer:
                answer.raise_for_status()
                found = json.loads(await answer.read())["data"]
            return np.asarray([each["embedding"] for each in sorted(found, key=lambda row: row["index"])])

        async def one(until: float) -> int:
            done = 0
            while time.perf_counter() < until:
                assert (await ask([next(said)])).shape[0] == 1
                done += 1
            return done

        await _callers(one, float(seconds), lambda: ask(texts(mix)[:8]))


async def _callers(
    one: Callable[[float], Awaitable[int]], seconds: float, sample: Callable[[], Awaitable[np.ndarray]]
) -> None:
    common.say_ready()

    async def work() -> None:
        vectors = await sample()
        began, cpu = time.perf_counter(), time.process_time()
        done = await asyncio.gather(*(one(began + seconds) for _ in range(CALLERS)))
        common.say(
            n=sum(done),
            seconds=time.perf_counter() - began,
            cpu_s=time.process_time() - cpu,
            vectors=np.asarray(vectors, float).round(5).tolist(),
        )

    await common.on_command(work)


def run_lane(mix: str, seconds: str) -> None:
    """Role: one lane in process, encodes of at most 256 tokens, ids that were made before."""
    from bakemesh.worker.engines.llama import make

    engine = make()
    with models.embedder(MODELS).open("rb") as file:
        model = engine.load(file.fileno(), "minilm", "gguf", {})
    rng = np.random.default_rng(7)
    counts = [len(each.split()) + 2 for each in texts(mix, 32)]
    ids = memoryview(rng.integers(1000, model.n_vocab, sum(counts)).astype("<i4").tobytes()).cast("i")
    engine.embed(model, "mean", True, counts, ids)
    common.say_ready()
    while sys.stdin.readline():
        done, began = 0, time.perf_counter()
        while time.perf_counter() - began < float(seconds):
            engine.embed(model, "mean", True, counts, ids)
            done += len(counts)
        common.say(n=done, seconds=time.perf_counter() - began)


# -- what serves


def mesh(where: Path, workers: int = 2) -> AbstractAsyncContextManager[synapse_module.Module]:
    """One node's module with the embedder."""
    return synapse_module.running(where, ALIAS, models.embedder(MODELS), "--workers", str(workers))


async def measure(role: common.Role, serves: Any) -> dict[str, Any]:
    """One turn of the callers."""
    before = serves.cpu_s
    await role.go()
    said = await role.said()
    said["served_cpu_s"] = serves.cpu_s - before
    return said


def same(ours: list[list[float]], theirs: list[list[float]]) -> None:
    """Raises where the vectors are not the same."""
    a, b = np.asarray(ours), np.asarray(theirs)
    a, b = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (a, b))
    if (cosine := float((a * b).sum(axis=1).min())) < 0.999:
        raise RuntimeError(f"the two sides do not compute the same: cosine {cosine:.4f}")


async def main(rounds: int, seconds: int) -> None:
    """Prints what was found."""
    report = common.Report("synapse_embeddings")
    peers = SETTINGS if llama_server.binary() is not None else {}
    if not peers:
        print("synapse_embeddings: no llama-server here (make peer): the mesh is measured alone")
    async with common.folder() as where, AsyncExitStack() as stack:
        ours = await stack.enter_async_context(mesh(where))
        servers: dict[str, Any] = {}
        for name, flags in peers.items():
            serving = llama_server.running(models.embedder(MODELS), *flags.split())
            servers[name] = await stack.enter_async_context(serving)
        for mix in MIXES:
            async with AsyncExitStack() as turns:
                roles: dict[str, tuple[common.Role, Any]] = {}
                calling = await turns.enter_async_context(common.role("mesh", ours.url, mix, seconds))
                roles["mesh"] = (calling, ours)
                for name, server in servers.items():
                    calling = await turns.enter_async_context(common.role("http", server.url, mix, seconds))
                    roles[name] = (calling, server)
                lanes = [await turns.enter_async_context(common.role("lane", mix, seconds)) for _ in range(2)]
                for each in (*(role for role, _ in roles.values()), *lanes):
                    await each.ready()
                told: dict[str, list[dict[str, Any]]] = {name: [] for name in roles}
                direct: list[float] = []

                def side(name: str, role: common.Role, serves: Any) -> Callable[[], Awaitable[float]]:
                    async def once() -> float:
                        said = await measure(role, serves)
                        told[name].append(said)  # noqa: B023 - used within this turn of the loop
                        return float(said["n"] / said["served_cpu_s"])

                    return once

                async def in_process() -> float:
                    for each in lanes:  # noqa: B023
                        await each.go()
                    said = [await each.said() for each in lanes]  # noqa: B023
                    direct.append(sum(each["n"] / each["seconds"] for each in said))  # noqa: B023
                    return direct[-1]  # noqa: B023

                sides = {name: side(name, *each) for name, each in roles.items()}
                found = await common.rounds(rounds, {**sides, "in process": in_process})
            for name in servers:
                same(told["mesh"][0]["vectors"], told[name][0]["vectors"])
            rates = {name: [said["n"] / said["seconds"] for said in each] for name, each in told.items()}
            _claims(report, mix, found, rates)
            for each in told.values():
                for said in each:
                    del said["vectors"]
            report.numbers[mix] = {"told": told, "in process": found["in process"]}
    report.finish()


def _claims(
    report: common.Report, mix: str, found: dict[str, list[float]], rates: dict[str, list[float]]
) -> None:
    best = [name for name in found if name.startswith("best")]
    if best:
        theirs = [max(each) for each in zip(*(found[name] for name in best), strict=True)]
        report.claim(
            f"{mix}: embeddings a CPU-second, of llama-server's best",
            common.ratio(found["mesh"], theirs),
            at_least=1.1 if mix == "10 tokens" else 1.0,
        )
        report.claim(
            f"{mix}: embeddings a CPU-second, of its defaults", common.ratio(found["mesh"], found["defaults"])
        )
        report.claim(f"{mix}: wall-clock, of its defaults", common.ratio(rates["mesh"], rates["defaults"]))
    report.claim(
        f"{mix}: rate of two lanes, of two in process",
        common.ratio(rates["mesh"], found["in process"]),
        at_least=0.85,
    )
    report.claim(f"{mix}: embeddings a second", sorted(rates["mesh"])[len(rates["mesh"]) // 2])


if __name__ == "__main__":
    args = common.arguments(__doc__, rounds=3, seconds=4)
    if args.role == "mesh":
        common.run(call_mesh(*args.operands), common.loops()[-1])
    elif args.role == "http":
        common.run(call_http(*args.operands), common.loops()[-1])
    elif args.role == "lane":
        run_lane(*args.operands)
    else:
        common.run(main(args.rounds, args.seconds))
