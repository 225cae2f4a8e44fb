"""The golden messages of protocol/vectors/: what is valid, what is read tolerantly, what is refused.

Entries are written here as they go on the wire, not made by the models, so that the vectors test the models
and not themselves. Bytes are shown as {"bin": "<hex>"}. The other vectors (subjects, recipe ids, guards,
lifecycle, admission) are written by hand in their files.
"""

from __future__ import annotations

from typing import Any

from golden import axon, axon_tensors
from golden.bakes import BAKES
from golden.inference import INFERENCE, INFERENCE_REFUSED
from golden.nodes import NODES
from golden.refused import BAD_ENTRIES, TOLERATED, bad_bytes, envelope, packed

VALID = [*BAKES, *NODES]


def shown(value: Any) -> Any:
    """A decoded value as JSON shows it: bytes as {"bin": hex}, keys as text."""
    if isinstance(value, bytes):
        return {"bin": value.hex()}
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shown(item) for item in value]
    return value


def files() -> dict[str, Any]:
    """The generated vectors, by the name of their file."""
    valid, inference = _valid(VALID, 1), _valid(INFERENCE, 5001)
    tolerated = [
        {
            "name": name,
            "type": type_,
            "hex": packed(envelope(type_, sent, 1000 + number)).hex(),
            "entries": shown(read),
        }
        for number, (name, type_, sent, read) in enumerate(TOLERATED)
    ]
    refused: list[dict[str, Any]] = [
        {"name": name, "hex": raw.hex()} for name, raw in bad_bytes() if len(raw) < 10_000
    ]
    refused += _refused(BAD_ENTRIES, 2000)
    return {
        "messages.json": valid,
        "messages-tolerated.json": tolerated,
        "messages-refused.json": refused,
        "inference-messages.json": inference,
        "inference-refused.json": _refused(INFERENCE_REFUSED, 6000),
        **axon.files(),
        **axon_tensors.files(),
    }


def _valid(messages: list[tuple[str, str, dict[str, Any]]], first: int) -> list[dict[str, Any]]:
    out = []
    for number, (name, type_, entries) in enumerate(messages, first):
        whole = envelope(type_, entries, number)
        out.append({"name": name, "hex": packed(whole).hex(), "decoded": shown(whole)})
    return out


def _refused(messages: list[tuple[str, str, dict[str, Any], str | None]], first: int) -> list[dict[str, Any]]:
    return [
        {"name": name, "hex": packed(envelope(type_, entries, number)).hex(), "type": type_, "entry": entry}
        for number, (name, type_, entries, entry) in enumerate(messages, first)
    ]
