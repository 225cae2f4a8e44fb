"""Every verb of a real module with fake-engine workers, over a real server."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bakemesh.protocol.inference.answers import Vectors
from bakemesh.protocol.inference.requests import Embed
from bakemesh.worker.engines.fake import vector
from support.nats import server
from support.synapse import Caller, calling, synapse

MODELS = {
    "mini": {"kind": "embed", "dims": 16, "context": 4096},
    "rank": {"kind": "rerank", "context": 4096},
    "chat": {"kind": "generate", "context": 4096},
}


@pytest.fixture
async def caller(tmp_path: Path) -> AsyncIterator[Caller]:
    async with server(tmp_path) as nats, synapse(tmp_path, nats.url, MODELS), calling(nats.url) as made:
        yield made


async def test_embed_gives_a_vector_a_text(caller: Caller) -> None:
    asked = await caller.ask("Embed", "mini", Embed(texts=["hello", "wide world"]))
    (answer,) = asked.messages
    assert isinstance(answer, Vectors)
    assert (answer.first, answer.n, answer.dims, answer.final, answer.ntokens) == (0, 2, 16, True, 15)
    numbers = struct.unpack("<32f", answer.data)
    assert numbers[:16] == pytest.approx(list(vector(list(b"hello"), "mean", True, 16)))
    assert numbers[16:] == pytest.approx(list(vector(list(b"wide world"), "mean", True, 16)))
