"""Every text that a schema's grammar lets through is JSON that satisfies the schema, whatever the model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from bakemesh.worker.engines.base import Options
from support import models

pytestmark = pytest.mark.engine
SCHEMAS: list[Any] = [
    True,
    {"type": "object"},
    {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 4},
    {"type": "array", "prefixItems": [{"type": "null"}, {"type": "boolean"}], "items": False},
    {"type": "array", "maxItems": 0},
    {"type": "array", "maxItems": 1},
    {"type": "string", "minLength": 3, "maxLength": 5},
    {"type": "string", "maxLength": 0},
    {"type": ["string", "null"], "minLength": 1},
    *({"type": "string", "format": each} for each in ("date", "time", "date-time", "uuid")),
    {"type": "integer", "minimum": -12, "exclusiveMaximum": 103},
    {"type": "number", "minimum": 0, "maximum": 1},
    {"type": "number", "maximum": -3},
    {"type": "number"},
    {"enum": ["a\"b\\c", 'é\n\t"', 7, None, {"k": [1.5]}, "\u0001\u007f"]},
    {"enum": [1, "one", None], "type": ["string", "null"]},
    {"const": {"deep": [True, {"a": "\\"}]}},
    {"anyOf": [{"type": "integer", "minimum": 5}, {"const": "x"}]},
    {"type": "object", "additionalProperties": {"type": "boolean"}},
    {"type": "object", "additionalProperties": False},
    {
        "type": "object",
        "properties": {"a": {"const": 0}, "b": {"type": "boolean"}, "c\"": {"const": 1}, "d": {"const": 2}},
        "required": ["b"],
        "additionalProperties": False,
    },
    {"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}}},
    {
        "$defs": {
            "cat": {"type": "object", "properties": {"kind": {"const": "cat"}}, "required": ["kind"]},
            "dog": {"type": "object", "properties": {"kind": {"const": "dog"}}, "required": ["kind"]},
            "tree": {
                "type": "object",
                "properties": {"pet": {"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}]},
                               "left": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}},
                "required": ["pet", "left"],
            },
        },
        "allOf": [{"$ref": "#/$defs/tree"}],
    },
]  # fmt: skip


@pytest.fixture(scope="module")
def model(folder: Path) -> Iterator[Any]:
    """A vocabulary; nothing is computed with the model itself."""
    from bakemesh.worker.engines.llama import make

    engine = make()
    path = folder / "babble.gguf"
    with path.open("rb") as file:
        made = engine.load(file.fileno(), str(path), "gguf", {})
    yield made
    engine.unload(made)


def written(model: Any, schema: Any, seed: int) -> str:
    """A text of the schema's grammar, chosen by chance; the longer it is the more it wants to end."""
    from bakemesh.worker.engines.llama.sampling import Sampler

    rng = np.random.default_rng(seed)
    bytes_of_no_character = slice(models.CHARACTERS.index("<0x80>"), models.CHARACTERS.index("<0xFF>") + 1)
    ends = [models.CHARACTERS.index(each) for each in '"}]0']
    options = Options(max_tokens=1, json_schema=json.dumps(schema), temperature=1.0, seed=seed)
    sampler = Sampler(model.library, model.vocab, model.n_vocab, options)
    out = b""
    try:
        for count in range(2000):
            logits = rng.standard_normal(model.n_vocab).astype(np.float32) * 3
            logits[bytes_of_no_character] -= (
                60  # such bytes would be U+FFFD in a text; only where a constant needs them
            )
            logits[ends] += count / 4
            logits[models.EOS] += count / 4
            token = sampler.next(logits)
            if token == models.EOS:
                return out.decode()
            sampler.accept(token)
            out += model.piece(token)
    finally:
        sampler.close()
    raise AssertionError(f"no end: {out[:200]!r}")


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: json.dumps(schema)[:50])
def test_texts_satisfy_their_schema(model: Any, schema: Any) -> None:
    texts = {written(model, schema, seed) for seed in range(25)}
    for text in texts:
        jsonschema.validate(
            json.loads(text),
            schema,
            cls=jsonschema.Draft202012Validator,
            format_checker=jsonschema.FormatChecker(["date", "uuid"]),  # its time has no zone
        )
