"""The synapse classes of the recorded exchanges (tests/fixtures/axon), as the real axon had them."""

from __future__ import annotations

from typing import ClassVar

from bakemesh.protocol.axon import StreamingSynapse, Synapse


class Echo(Synapse):
    required_hash_fields: ClassVar = ("text", "n")
    text: str = ""
    n: int = 0
    reply: str | None = None


class Required(Synapse):
    required_hash_fields: ClassVar = ("prompt", "roles", "n", "temperature", "flags")
    prompt: str
    roles: list[str]
    n: int
    temperature: float
    flags: dict[str, bool]
    reply: str | None = None


class Boom(Synapse):
    kind: str = "value"


class Private(Synapse):
    text: str = ""


class Tok(StreamingSynapse):
    required_hash_fields: ClassVar = ("prompt",)
    prompt: str = ""
    completion: str = ""
