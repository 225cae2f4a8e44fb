"""Text through the mesh: beside llama-server with several callers, beside the engine in process with one.

Ours: nats-server, a synapse module, and engine workers of one thread, one a core. Peers: llama-server with
sixteen slots on the same file and as many threads; the same engine in this process. Greedy, 48 tokens from
59, every prompt another one, nothing kept from one to the next on either side.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "examples" / "inference"))

import aiohttp
import common
import llama_server
import models
import numpy as np
import synapse_module

from bakemesh.inference import Inference, Token

MODELS = Path(__file__).parents[1] / "run" / "models"
ALIAS = "chat"
PROMPT, TOKENS = 59, 48
CALLERS = (4, 16)
SETTINGS = "-t 2 -tb 2 -np 16 -c 8192 --cache-ram 0"
_seeds = iter(range(1, 1 << 30))

Ask = Callable[[list[int]], Awaitable[int]]


def prompt() -> list[int]:
    """Ids that were not asked before."""
    return [1, *np.random.default_rng(next(_seeds)).integers(1000, 40_000, PROMPT - 1).tolist()]


async def together(ask: Ask, callers: int) -> float:
    """Tokens a second of so many callers with one prompt each."""
    prompts = [prompt() for _ in range(callers)]
    began = time.perf_counter()
    made = await asyncio.gather(*(ask(each) for each in prompts))
    return sum(made) / (time.perf_counter() - began)


def mesh(where: Path, workers: int) -> AbstractAsyncContextManager[synapse_module.Module]:
    """One node's module with the chat model."""
    flags = ("--workers", str(workers), "--max-queue-ms", "120000")
    return synapse_module.running(where, ALIAS, models.chat(MODELS), *flags)


def through(inference: Inference) -> Ask:
    """A prompt to the mesh."""

    async def ask(ids: list[int]) -> int:
        return (await inference.generate(np.asarray(ids, "<i4"), ALIAS, max_tokens=TOKENS)).n_generated

    return ask


def over_http(http: aiohttp.ClientSession, url: str) -> Ask:
    """The same to llama-server."""
    asked = {
        "n_predict": TOKENS,
        "temperature": 0,
        "cache_prompt": False,
        "top_k": 1,
        "samplers": ["top_k"],
    }

    async def ask(ids: list[int]) -> int:
        async with http.post(f"{url}/completion", json={**asked, "prompt": ids}) as answer:
            answer.raise_for_status()
            return int((await answer.json())["tokens_predicted"])

    return ask


def in_process() -> tuple[Ask, Callable[[list[int]], float]]:
    """The engine here: a whole text, and the ms to its first token."""
    from bakemesh.worker.engines.base import Options
    from bakemesh.worker.engines.llama import make

    engine = make()
    path = models.chat(MODELS)
    with path.open("rb") as file:
        model = engine.load(file.fileno(), str(path), "gguf", {})

    def whole(ids: list[int]) -> int:
        given = memoryview(np.asarray(ids, "<i4").tobytes()).cast("i")
        return int(engine.generate(model, given, Options(max_tokens=TOKENS), None, lambda: False).n_gen)

    async def ask(ids: list[int]) -> int:
        return await asyncio.to_thread(whole, ids)  # the client hears its nodes meanwhile

    def first(ids: list[int]) -> float:
        given = memoryview(np.asarray(ids, "<i4").tobytes()).cast("i")
        began, at = time.perf_counter(), list[float]()
        engine.generate(
            model, given, Options(max_tokens=2), lambda _: at.append(time.perf_counter()), lambda: False
        )
        return ((at or [time.perf_counter()])[0] - began) * 1000

    return ask, first


async def first_ms(inference: Inference, ids: list[int]) -> float:
    """ms to the first token through the mesh."""
    began, first = time.perf_counter(), 0.0
    async for each in inference.stream(np.asarray(ids, "<i4"), ALIAS, max_tokens=2):
        if not first or isinstance(each, Token):
            first = first or time.perf_counter()
    return (first - began) * 1000


async def alone(report: common.Report, where: Path, rounds: int) -> None:
    """One caller, one lane: against the engine in process."""
    async with mesh(where, 1) as serves, Inference.connect(serves.url, name="bench") as inference:
        ask, first = in_process()
        ours = through(inference)
        for each in (ask, ours):
            await each(prompt())

        def rate(one: Ask) -> Callable[[], Awaitable[float]]:
            return lambda: together(one, 1)

        found = await common.rounds(rounds, {"mesh": rate(ours), "in process": rate(ask)})
        report.claim(
            "one caller, tokens a second, of in process",
            common.ratio(found["mesh"], found["in process"]),
            at_least=0.95,
        )
        through_ms, direct_ms = list[float](), list[float]()
        for _ in range(3 * rounds):
            ids = prompt()
            through_ms.append(await first_ms(inference, ids))
            direct_ms.append(await asyncio.to_thread(first, prompt()))
        report.claim(
            "time to first token above in process, p50, ms",
            common.percentile(through_ms, 0.5) - common.percentile(direct_ms, 0.5),
            at_most=5,
        )
        report.numbers |= {"one": found, "first_ms": [through_ms, direct_ms]}


async def several(report: common.Report, where: Path, rounds: int) -> None:
    """Several callers, two lanes: against llama-server."""
    if llama_server.binary() is None:
        print("synapse_generation: no llama-server here (make peer): only in process is measured")
        return
    async with AsyncExitStack() as stack:
        serves = await stack.enter_async_context(mesh(where, 2))
        model = models.chat(MODELS)
        server: Any = await stack.enter_async_context(llama_server.running(model, *SETTINGS.split()))
        inference = await stack.enter_async_context(Inference.connect(serves.url, name="bench"))
        timeout = aiohttp.ClientTimeout(total=300)
        http = await stack.enter_async_context(aiohttp.ClientSession(timeout=timeout))
        sides = {"mesh": through(inference), "llama-server": over_http(http, server.url)}
        for each in sides.values():
            await together(each, 2)
        for callers in CALLERS:

            def rate(one: Ask, callers: int = callers) -> Callable[[], Awaitable[float]]:
                return lambda: together(one, callers)

            found = await common.rounds(rounds, {name: rate(one) for name, one in sides.items()})
            report.claim(
                f"{callers} callers, tokens a second, of llama-server's",
                common.ratio(found["mesh"], found["llama-server"]),
                at_least=1.2 if callers == 4 else None,
            )
            report.numbers[f"{callers} callers"] = found


async def main(rounds: int) -> None:
    """Prints what was found."""
    report = common.Report("synapse_generation")
    async with common.folder() as where:
        for part in (alone, several):
            (where / part.__name__).mkdir()
            await part(report, where / part.__name__, rounds)
    report.finish()


if __name__ == "__main__":
    common.run(main(common.arguments(__doc__, rounds=5).rounds), common.loops()[-1])
