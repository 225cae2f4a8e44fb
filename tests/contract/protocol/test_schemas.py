"""The JSON Schemas: what they take, what they refuse, and that nobody forgot to write them again."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from typing import Any

import jsonschema
import pytest

from bakemesh.protocol import message, schemas
from support.vectors import ROOT, named, unshown, vectors

SCHEMAS = ROOT / "protocol" / "schemas"
MESSAGES = [*vectors("messages"), *vectors("inference-messages")]
REGISTERED = [row for row in MESSAGES if row["decoded"]["type"] in message.types()]


def as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_json(item) for item in value]
    return value


def schema(type_: str) -> dict[str, Any]:
    assert f"{type_}.json" in schemas.files()
    found: dict[str, Any] = json.loads((SCHEMAS / f"{type_}.json").read_text(encoding="utf-8"))
    return found


def test_files_are_what_the_models_say() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "protocol" / "generate.py"), "--check"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("type_", sorted(message.types()))
def test_a_schema_is_valid_and_of_its_type(type_: str) -> None:
    found = schema(type_)
    jsonschema.Draft202012Validator.check_schema(found)
    assert found["title"] == found["properties"]["type"]["const"] == type_
    for key, entry in found["properties"]["entries"]["properties"].items():
        assert "x-msgpack" in entry, key


@pytest.mark.parametrize("row", **named(REGISTERED))
def test_a_golden_message_fits_its_schema_and_no_other(row: dict[str, Any]) -> None:
    decoded = as_json(unshown(row["decoded"]))
    jsonschema.validate(decoded, schema(decoded["type"]))
    for entry in schema(decoded["type"])["properties"]["entries"]["required"]:
        less = {**decoded, "entries": {k: v for k, v in decoded["entries"].items() if k != entry}}
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(less, schema(decoded["type"]))
    other = next(type_ for type_ in message.types() if type_ != decoded["type"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(decoded, schema(other))


@pytest.mark.parametrize(
    ("entry", "value"),
    [("serial", 0), ("pct", 101), ("pct", -2), ("final", 2), ("summary", 5), ("attempt", 0), ("kind", "")],
)
def test_a_schema_knows_the_ranges(entry: str, value: object) -> None:
    decoded = next(row for row in REGISTERED if row["name"] == "status: step begins")["decoded"]
    decoded = as_json(unshown(decoded))
    found = schema(decoded["type"])
    jsonschema.validate(decoded, found)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**decoded, "entries": {**decoded["entries"], entry: value}}, found)
