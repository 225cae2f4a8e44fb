"""Clients of inference for tests, beside modules of a stranger's hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bakemesh.bus.server import EmbeddedServer
from bakemesh.inference import Inference
from support.nats import server
from support.stranger_module import Stranger, stranger, vector_of
from support.waiting import eventually


@dataclass
class World:
    """A server, modules by NodeID, and a client that has heard of all of them."""

    nats: EmbeddedServer
    modules: dict[str, Stranger]
    client: Inference

    @property
    def module(self) -> Stranger:
        """The first one."""
        return next(iter(self.modules.values()))

    def asked(self) -> list[str]:
        """Types of requests, of all modules."""
        return [asked.type for module in self.modules.values() for asked in module.asked]


@asynccontextmanager
async def small(folder: Path, max_payload: int) -> AsyncIterator[EmbeddedServer]:
    """A server that takes less than ours do."""
    running = EmbeddedServer(folder / "nats-small", "small")
    running.config = replace(running.config, max_payload=max_payload)
    try:
        await running.start()
        yield running
    finally:
        await running.stop()


@asynccontextmanager
async def world(
    folder: Path,
    *nodes: str,
    max_payload: int | None = None,
    heard: bool = True,
    client: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[World]:
    """Modules on `nodes` (default: alpha), each with `settings`, and a client. `heard`: wait until it knows
    them."""
    async with AsyncExitStack() as stack:
        nats = await stack.enter_async_context(
            server(folder) if max_payload is None else small(folder, max_payload)
        )
        modules = {
            node: await stack.enter_async_context(stranger(nats.url, node, **settings))
            for node in nodes or ("alpha",)
        }
        inference = await stack.enter_async_context(Inference.connect(nats.url, "app", **(client or {})))
        if heard:
            for module in modules.values():
                await module.say()
            await eventually(
                lambda: len(inference.nodes) == len(modules), what="the client hears of all modules"
            )
        yield World(nats, modules, inference)


def vectors_of(items: list[Any]) -> np.ndarray:
    """What a stranger's module gives for them."""
    return np.array([vector_of(item) for item in items], np.float32)
