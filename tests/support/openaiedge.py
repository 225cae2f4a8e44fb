"""A gateway before a mesh of fake-engine models, with the built-in synapses and the OpenAI-style routes.

async with edge(tmp_path) as at, at.openai() as client:
    await client.embeddings.create(model="mini", input="one")

`at.module` is the synapse module, `at.key` a key that is known; `at.gateway` sends signed synapses.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
from openai import AsyncOpenAI

from bakemesh.apikeys import KnownKeys, add
from bakemesh.axon import app
from bakemesh.axon.apikeys import ApiKeys
from bakemesh.axon.builtin import attach_builtin
from bakemesh.axon.gateway import GatewayState
from bakemesh.axon.mesh import PATIENCE_S, Mesh, Models
from bakemesh.axon.openai import openai_routes
from bakemesh.axon.openapi import openapi_route
from bakemesh.axon.serving import serving
from bakemesh.axon.settings import GatewaySettings, Limits
from bakemesh.edge import Axon
from bakemesh.inference import Inference
from support.axon import ALICE, Gateway
from support.nats import server
from support.startup import RunningStartup
from support.synapse import synapse
from support.waiting import eventually

MODELS: dict[str, dict[str, Any]] = {
    "mini": {"kind": "embed", "dims": 16, "context": 64},
    "ranker": {"kind": "rerank"},
    "chat": {"kind": "generate"},
}


@dataclass
class Edge:
    """What `edge` gives."""

    gateway: Gateway
    inference: Inference
    mesh: Mesh
    keys: Path
    key: str
    module: RunningStartup | None

    @property
    def headers(self) -> dict[str, str]:
        """With the key."""
        return {"authorization": f"Bearer {self.key}"}

    @asynccontextmanager
    async def openai(self, key: str | None = None, **settings: Any) -> AsyncIterator[AsyncOpenAI]:
        """OpenAI's own client, which repeats nothing."""
        client = AsyncOpenAI(
            base_url=f"{self.gateway.url}/v1", api_key=key or self.key, max_retries=0, **settings
        )
        async with client:
            yield client

    async def post(self, path: str, body: Any, **how: Any) -> tuple[int, Mapping[str, str], Any]:
        """A POST with the key: status, headers, JSON."""
        given = (
            {"headers": self.headers} | ({"data": body} if isinstance(body, bytes) else {"json": body}) | how
        )
        async with self.gateway.session.post(f"{self.gateway.url}/v1/{path}", **given) as answer:
            return answer.status, answer.headers, await answer.json(content_type=None)


@asynccontextmanager
async def before(
    url: str,
    folder: Path,
    *,
    module: RunningStartup | None = None,
    axon: Axon | None = None,
    is_open: bool = False,
    models: Models | None = None,
    limits: Limits | None = None,
    name: str = "axon",
    **client: Any,
) -> AsyncIterator[Edge]:
    """A gateway before the mesh on the server `url`."""
    settings = GatewaySettings(port=0, limits=limits or Limits())
    state = GatewayState(settings, ALICE)
    state.open()
    keys = folder / "axon" / "api-keys"
    key = add(keys, "app", datetime.now(UTC))
    try:
        async with Inference.connect(url, name, patience_s=PATIENCE_S, **client) as inference:
            mesh = Mesh(inference, models)
            state.missing["mesh"] = mesh.problem
            served = axon or Axon()
            attach_builtin(served, mesh)
            extra = [
                *openai_routes(mesh, ApiKeys(KnownKeys(keys), open=is_open), state),
                openapi_route(served),
            ]
            async with (
                serving(app.build(served, state, extra), state) as (host, port),
                aiohttp.ClientSession(auto_decompress=False) as session,
            ):
                yield Edge(Gateway(host, port, state, session), inference, mesh, keys, key, module)
    finally:
        state.close()


@asynccontextmanager
async def edge(
    folder: Path,
    *flags: str,
    served: Mapping[str, Mapping[str, Any]] | None = None,
    config: Mapping[str, Mapping[str, str]] | None = None,
    **how: Any,
) -> AsyncIterator[Edge]:
    """A server, a synapse module and the gateway, which has heard of it."""
    async with (
        server(folder) as nats,
        synapse(folder, nats.url, served or MODELS, *flags, config=config) as module,
        before(nats.url, folder, module=module, **how) as at,
    ):
        await eventually(lambda: at.mesh.problem() is None, what="the gateway hears of the module")
        yield at
