"""Real models behind OpenAI's own client: sentences that mean the same lie close, JSON fits its schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import minilm, smollm
from support.engine import need_engine
from support.nats import server
from support.openaiedge import before
from support.startup import startup
from support.waiting import eventually

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]


async def test_embeddings_a_chat_and_json_by_schema(tmp_path: Path) -> None:
    need_engine()
    models = [f"--model=mini={minilm.once() / minilm.FILE}", f"--model=small={smollm.gguf()}"]
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "big": {"type": "boolean"}},
        "required": ["city", "big"],
        "additionalProperties": False,
    }
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "city", "schema": schema}}
    turns: Any = [{"role": "user", "content": "Name a city in France, and whether it is big."}]
    flags = [*models, "--model=small.ctx_size=2048", "--workers=1"]
    async with (
        server(tmp_path) as nats,
        startup(tmp_path, nats.url, "alpha", None, *flags, program="bakemesh.synapse"),
        before(nats.url, tmp_path) as at,
        at.openai() as client,
    ):
        await eventually(lambda: at.mesh.problem() is None, within=60, what="the gateway hears of the module")
        texts = ["The cat sits outside.", "A cat is sitting in the garden.", "Shares fell on Monday."]
        found = await client.embeddings.create(model="mini", input=texts)
        cat, garden, shares = (np.array(each.embedding) for each in found.data)
        assert cat @ garden > 0.5 > cat @ shares
        said = await client.chat.completions.create(
            model="small", messages=turns, max_tokens=12, temperature=0
        )
        stream = await client.chat.completions.create(
            model="small", messages=turns, max_tokens=12, temperature=0, stream=True
        )
        pieces = [piece.choices[0].delta.content or "" async for piece in stream]
        assert "".join(pieces) == said.choices[0].message.content
        bound = await client.chat.completions.create(
            model="small", messages=turns, max_tokens=100, response_format=wanted, seed=3
        )
        assert set(json.loads(bound.choices[0].message.content or "")) == {"city", "big"}
