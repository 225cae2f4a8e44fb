"""/openapi.json: a document that is valid, and that the gateway lives by, as schemathesis tries it."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any, ClassVar

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from pydantic import BaseModel
from schemathesis import Case, GenerationMode
from schemathesis.checks import CHECKS

from bakemesh.axon.settings import Limits
from bakemesh.edge import Axon
from bakemesh.protocol.axon import Embedding, Rerank, Synapse, TextPrompt
from support.axon import signed
from support.openaiedge import Edge, edge

EXAMPLES = int(os.environ.get("BAKEMESH_EXAMPLES", "12"))
RIGHT = {"/v1/embeddings": "mini", "/v1/rerank": "ranker"}  # the others: "chat"


class Measured(BaseModel):
    length: int


class Measure(Synapse):
    """How long a text is."""

    Output: ClassVar = Measured
    text: str
    length: int | None = None


async def measure(synapse: Measure) -> Measured:
    return Measured(length=len(synapse.text))


SYNAPSES: dict[str, Synapse] = {
    "/Synapse": Synapse(),
    "/Measure": Measure(text=""),
    "/TextPrompt": TextPrompt(),
    "/Embedding": Embedding(),
    "/Rerank": Rerank(),
}


def try_all(at: Edge, mode: GenerationMode) -> dict[str, int]:
    """Every operation with made-up requests; how many were answered 200, by path."""
    schema = schemathesis.openapi.from_url(f"{at.gateway.url}/openapi.json")
    schema.config.update(base_url=at.gateway.url)
    good: dict[str, int] = {}
    for found in schema.get_all_operations():
        operation = found.ok()
        if mode is GenerationMode.NEGATIVE and operation.method != "post":
            continue  # there is nothing that could be wrong

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize="BAKEMESH_EXAMPLES" not in os.environ,  # a run that looks for more draws anew
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def one(case: Case) -> None:
            response = asked(at, case)
            case.validate_response(response, checks=CHECKED[mode])
            good[case.path] = good.get(case.path, 0) + (response.status_code == 200)

        one()
    return good


def asked(at: Edge, case: Case) -> Any:
    """Sends it: a synapse signed, the others with a key; three in four with a model that is there."""
    if case.path in SYNAPSES and isinstance(case.body, dict):
        body = json.dumps(case.body).encode()
        made = signed(SYNAPSES[case.path], body=body, timeout=10.0)
        return requests.post(at.gateway.url + made.path, data=made.body, headers=made.headers, timeout=30)
    if isinstance(case.body, dict) and "model" in case.body and len(json.dumps(case.body)) % 4:
        case.body["model"] = RIGHT.get(case.path, "chat")
    return case.call(headers=at.headers)


ALWAYS = {
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
}
CHECKED = {
    mode: [check for check in CHECKS.get_all() if check.__name__ in names]
    for mode, names in (
        (GenerationMode.POSITIVE, ALWAYS),
        (GenerationMode.NEGATIVE, ALWAYS | {"negative_data_rejection"}),
    )
}


@pytest.mark.timeout(300)
async def test_the_gateway_lives_by_its_document(tmp_path: Path) -> None:
    limits = Limits(hotkey_rate=0, request_s=10)
    async with edge(tmp_path, axon=Axon().attach(measure, allow_unhashed_body=True), limits=limits) as at:
        good = await asyncio.to_thread(try_all, at, GenerationMode.POSITIVE)
        assert set(good) >= {"/Measure", "/TextPrompt", "/Synapse", "/v1/chat/completions", "/v1/models"}
        for path in ("/Measure", "/Synapse", "/v1/models", "/v1/rerank", "/healthz", "/metrics"):
            assert good[path], (path, good)
        await asyncio.to_thread(try_all, at, GenerationMode.NEGATIVE)
        assert at.gateway.counted(verdict="failed") == 0
