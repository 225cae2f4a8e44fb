"""The Echo synapse of the axon benches, as a user's file for `bakemesh axon`."""

from __future__ import annotations

from typing import ClassVar

from bakemesh.edge import Axon
from bakemesh.protocol.axon import Synapse


class Echo(Synapse):
    """The same fields as the peer's."""

    required_hash_fields: ClassVar = ("text", "n")
    text: str = ""
    n: int = 0
    reply: str | None = None


class Required(Synapse):
    """Inputs without defaults, which need dummies in headers."""

    required_hash_fields: ClassVar = ("prompt", "roles", "n", "temperature", "flags")
    prompt: str
    roles: list[str]
    n: int
    temperature: float
    flags: dict[str, bool]
    reply: str | None = None


async def echo(synapse: Echo) -> Echo:
    """Says it again."""
    synapse.reply = synapse.text
    return synapse


axon = Axon().attach(echo)
