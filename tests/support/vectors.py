"""The golden vectors of protocol/vectors/, read for the tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
VECTORS = ROOT / "protocol" / "vectors"


def vectors(name: str) -> Any:
    """The content of one file of vectors."""
    return json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))


def named(rows: list[dict[str, Any]], key: str = "name") -> dict[str, Any]:
    """Arguments of `pytest.mark.parametrize`: one row a test, called by its name."""
    return {"argvalues": rows, "ids": [str(row[key]) for row in rows]}


def unshown(value: Any) -> Any:
    """A value as JSON shows it, back to what msgpack carries: {"bin": hex} to bytes."""
    if isinstance(value, dict):
        if set(value) == {"bin"}:
            return bytes.fromhex(value["bin"])
        return {key: unshown(item) for key, item in value.items()}
    if isinstance(value, list):
        return [unshown(item) for item in value]
    return value
