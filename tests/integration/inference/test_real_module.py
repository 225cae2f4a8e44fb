"""The client against real modules with fake-engine workers: every verb, errors, kills."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bakemesh.inference import (
    BadRequest,
    EngineCrashed,
    Inference,
    InferenceError,
    ModuleRestarted,
    NodeGone,
    Text,
    Token,
    TooManyTokens,
    Usage,
)
from bakemesh.worker.engines import fake
from support.nats import server
from support.startup import RunningStartup
from support.synapse import fake_model, synapse
from support.waiting import eventually

MODELS: dict[str, dict[str, Any]] = {
    "mini": {"kind": "embed", "dims": 16, "context": 64},
    "ranker": {"kind": "rerank"},
    "chat": {"kind": "generate"},
}


def rows_of(texts: list[str], pooling: str = "mean", normalize: bool = True) -> np.ndarray:
    """What the fake engine makes of them."""
    return np.array([fake.vector(list(each.encode()), pooling, normalize, 16) for each in texts], np.float32)


@asynccontextmanager
async def real(
    folder: Path, *nodes: str, config: dict[str, dict[str, str]] | None = None, flags: tuple[str, ...] = ()
) -> AsyncIterator[tuple[Inference, dict[str, RunningStartup]]]:
    """Modules on these nodes, and a client that has heard of all of them."""
    async with AsyncExitStack() as stack:
        nats = await stack.enter_async_context(server(folder))
        modules = {
            node: await stack.enter_async_context(
                synapse(folder, nats.url, MODELS, *flags, node_id=node, config=config)
            )
            for node in nodes or ("alpha",)
        }
        client = await stack.enter_async_context(Inference.connect(nats.url, "app"))
        await eventually(lambda: len(client.nodes) == len(modules), what="a Status of each")
        yield client, modules


async def test_every_verb(tmp_path: Path) -> None:
    async with real(tmp_path) as (client, _):
        usage = Usage()
        texts = [f"text number {n}" for n in range(3000)]
        found = await client.embed(texts, model="mini", usage=usage, work_class="bulk")
        assert (found == rows_of(texts)).all()
        assert usage.prompt == sum(len(each) for each in texts)
        plain = await client.embed(["ab"], model="mini", pooling="cls", normalize=False)
        assert (plain == rows_of(["ab"], "cls", False)).all()
        assert (await client.embed([[97, 98]], model="mini") == rows_of(["ab"])).all()
        scores = await client.rerank("ab", ["c", "de", "f"], "ranker")
        expected = [fake.score(b"ab", each) for each in (b"c", b"de", b"f")]
        assert scores == pytest.approx(np.array(expected, np.float32))
        whole = await client.generate("abc", "chat")
        assert (whole.text, whole.finish_reason, whole.n_prompt, whole.node_id) == (
            "97 98 99 ",
            "stop",
            3,
            "alpha",
        )
        parts = [
            part async for part in client.chat_stream([("user", "a"), ("user", "b")], "chat", max_tokens=2)
        ]
        assert "".join(part.text for part in parts[:-1]) == parts[-1].text == "97 98 "
        assert all(isinstance(part, Token) for part in parts[:-1])
        assert {(each.alias, each.kind, each.dims) for each in await client.models()} >= {
            ("mini", "embed", 16)
        }
        (health,) = await client.health()
        assert (health.node_id, health.state, health.bytes_in_flight) == ("alpha", "ok", 0)
        assert await client.probe("mini") == "ok"
        seen: list[str] = []
        path = fake_model(tmp_path, "second", kind="embed", dims=8)
        done = await client.ingest(path, "second", progress=lambda each: seen.append(each.stage))
        assert done.digest.startswith("sha256:")
        assert seen
        assert (await client.embed(["x"], model="second", deadline_s=20)).shape == (1, 8)


async def test_errors_are_typed_and_name_the_calls_own_item(tmp_path: Path) -> None:
    async with real(tmp_path) as (client, _):
        texts = ["short"] * 1500
        texts[1300] = "long" * 30
        with pytest.raises(TooManyTokens, match=r"120 tokens.*at most 64.*item 1300 of the call") as raised:
            await client.embed(texts, model="mini")
        assert raised.value.details == {"have": 120, "most": 64, "item": 1300}
        cut = await client.embed(texts, model="mini", truncate=True)
        assert (cut[1300] == rows_of([texts[1300][:64]])[0]).all()
        with pytest.raises(BadRequest):
            await client.embed(["x"], model="chat")
        with pytest.raises(InferenceError):
            await client.generate("x", "mini")


async def test_a_crash_is_told_with_its_cause_and_costs_nobody_else(tmp_path: Path) -> None:
    config = {"mini": {"abort_on_item": "120"}}
    async with real(tmp_path, config=config) as (client, _):
        with pytest.raises(EngineCrashed) as raised:
            await client.embed(["fine", "x"], model="mini")
        assert raised.value.details["stage"]
        assert not raised.value.safe_to_retry
        assert (await client.embed(["fine"], model="mini") == rows_of(["fine"])).all()


async def test_a_module_killed_under_load_gives_each_call_one_end(tmp_path: Path) -> None:
    """Two nodes, one killed and started again, over and over: every result is right, every error typed."""
    config = {"mini": {"slow_ms": "3"}, "chat": {"slow_ms": "3"}}
    ends: Counter[str] = Counter()
    async with real(tmp_path, "alpha", "beta", config=config) as (client, modules):
        stop = asyncio.Event()

        async def calls(seed: int) -> None:
            random_ = random.Random(seed)
            while not stop.is_set():
                text = f"{seed} {random_.random()}"
                try:
                    if random_.random() < 0.7:
                        found = await client.embed([text, text[::-1]], model="mini", deadline_s=30)
                        assert (found == rows_of([text, text[::-1]])).all()
                    else:
                        parts = [part async for part in client.stream(text, "chat", deadline_s=30)]
                        told = "".join(f"{byte} " for byte in text.encode())
                        assert isinstance(parts[-1], Text)
                        assert parts[-1].text == "".join(part.text for part in parts[:-1]) == told
                    ends["done"] += 1
                except (ModuleRestarted, EngineCrashed) as error:
                    ends[error.code] += 1

        callers = [asyncio.create_task(calls(seed)) for seed in range(6)]
        for _ in range(3):
            before = ends["done"]
            await eventually(lambda before=before: ends["done"] > before + 20, what="some calls done")
            await modules["alpha"].kill9()
            await modules["alpha"].start()
        before = ends["done"]
        await eventually(lambda: ends["done"] > before + 20, what="calls go on")
        stop.set()
        async with asyncio.timeout(60):
            await asyncio.gather(*callers)
        assert client._running.in_flight == 0
        for health in await client.health():
            assert health.bytes_in_flight == 0


async def test_two_nodes_share_the_work_and_a_killed_one_s_is_done_by_the_other(tmp_path: Path) -> None:
    config = {"mini": {"slow_ms": "20"}}
    async with real(tmp_path, "alpha", "beta", config=config) as (client, modules):
        usage = Usage()
        await asyncio.gather(*(client.embed([f"x{n}"], model="mini", usage=usage) for n in range(60)))
        assert usage.nodes.total() == 60
        assert min(usage.nodes["alpha"], usage.nodes["beta"]) > 15
        held = [asyncio.create_task(client.embed([f"y{n}"], model="mini")) for n in range(100)]
        await eventually(lambda: client._running.in_flight > 50)
        await modules["alpha"].kill9()
        for n, each in enumerate(held):
            assert (await each == rows_of([f"y{n}"])).all()
        with pytest.raises(NodeGone):
            await client.embed(["x"], model="mini", node="alpha")
