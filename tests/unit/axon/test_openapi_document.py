"""/openapi.json as a document: whole, and about what is served."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, ClassVar

import jsonschema
from pydantic import BaseModel, ConfigDict

from bakemesh.axon.openai.requests import Body, ChatRequest, CompletionRequest, Sampled
from bakemesh.axon.openapi import document
from bakemesh.edge import Axon
from bakemesh.protocol.axon import Synapse, TextPrompt


class Length(BaseModel):
    length: int


class Measure(Synapse):
    """How long a text is.

    In characters.
    """

    Output: ClassVar = Length
    text: str
    length: int | None = None


class Strange:
    pass


class Odd(Synapse):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    what: Strange | None = None


def refs(found: Any) -> Iterator[str]:
    if isinstance(found, dict):
        for key, value in found.items():
            if key == "$ref":
                yield value
            else:
                yield from refs(value)
    elif isinstance(found, list):
        for each in found:
            yield from refs(each)


def axon() -> Axon:
    served = Axon()
    for kind in (Measure, Odd, TextPrompt):

        async def serve(synapse: Any) -> None:
            del synapse

        served.attach(serve, synapse=kind)
    return served


def test_every_reference_leads_somewhere_and_every_schema_is_one() -> None:
    found = document(axon())
    schemas = found["components"]["schemas"]
    for ref in refs(found):
        assert ref.startswith("#/components/schemas/")
        assert ref.rpartition("/")[2] in schemas
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    json.dumps(found)


def test_it_names_every_route_and_no_other() -> None:
    found = document(axon())
    assert set(found["paths"]) == {
        "/Synapse", "/Measure", "/Odd", "/TextPrompt", "/v1/embeddings", "/v1/completions",
        "/v1/chat/completions", "/v1/rerank", "/v1/models", "/v1/models/{model}", "/healthz", "/readyz",
        "/metrics", "/openapi.json",
    }  # fmt: skip
    alone = document(axon(), openai=False)
    assert not [path for path in alone["paths"] if path.startswith("/v1")]
    assert "key" not in alone["components"]["securitySchemes"]
    names = [operation["operationId"] for path in found["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names))


def test_a_synapse_is_told_from_its_class() -> None:
    found = document(axon())
    operation = found["paths"]["/Measure"]["post"]
    assert operation["summary"] == "How long a text is."
    sent = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    schema = found["components"]["schemas"][sent]
    assert schema["required"] == ["text"]
    answered = operation["responses"]["200"]["content"]["application/json"]["schema"]["anyOf"]
    assert "#/components/schemas/Length" in [each["$ref"] for each in answered]
    assert "text/event-stream" in found["paths"]["/TextPrompt"]["post"]["responses"]["200"]["content"]
    assert "text/event-stream" not in operation["responses"]["200"]["content"]


def test_a_class_without_a_schema_is_an_object() -> None:
    operation = document(axon())["paths"]["/Odd"]["post"]
    assert operation["requestBody"]["content"]["application/json"]["schema"] == {"type": "object"}


def test_what_is_not_supported_is_told_by_the_one_value_that_is() -> None:
    schemas = document(axon())["components"]["schemas"]
    for kind in (ChatRequest, CompletionRequest):
        told: dict[str, Any] = schemas[kind.__name__]["properties"]
        assert set(told) >= kind.FIXED
        assert told["n"]["anyOf"][0] == {"const": 1, "type": "integer"}


def test_every_field_that_is_fixed_is_a_field() -> None:
    def below(kind: type[Body]) -> Iterator[type[Body]]:
        for each in kind.__subclasses__():
            yield each
            yield from below(each)

    for kind in below(Body):
        assert set(kind.model_fields) >= kind.FIXED, kind
    assert Sampled in set(below(Body))
