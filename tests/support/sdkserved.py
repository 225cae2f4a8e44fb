"""Our gateway with the handlers that the real axon of `realsdk_child` has, over the same classes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from bakemesh.edge import Axon
from bakemesh.protocol.axon import StreamingSynapse, Synapse, Tensor
from support import sdkclasses

KINDS: dict[str, Any] = sdkclasses.classes(Synapse, StreamingSynapse, Tensor)


async def replied(synapse: Any) -> Any:
    """Fills in what was asked."""
    synapse.reply = getattr(synapse, "text", None) or synapse.prompt
    return synapse


async def chat(synapse: Any) -> Any:
    """Works with the parts of a nested class."""
    synapse.best = max(synapse.turns, key=lambda turn: turn.weight)
    synapse.all_of_them = list(reversed(synapse.turns))
    return synapse


async def array(synapse: Any) -> Any:
    """Numpy in, numpy out."""
    synapse.doubled = Tensor.from_numpy(synapse.given.numpy() * 2)
    return synapse


async def boom(synapse: Any) -> Any:
    """Fails."""
    raise ValueError("handler exploded")


async def slow(synapse: Any) -> Any:
    """Waits."""
    await asyncio.sleep(synapse.seconds)
    return synapse


async def tok(synapse: Any) -> AsyncIterator[str]:
    """Text in parts."""
    for part in ("hel", "lö ", "wor", "ld"):
        yield part


async def same(synapse: Any) -> Any:
    """Nothing."""
    return synapse


async def listed(synapse: Any) -> tuple[bool, str]:
    """Nobody is served."""
    return True, "not registered"


def served() -> Axon:
    """All of it."""
    return (
        Axon()
        .attach(replied, synapse=KINDS["Echo"])
        .attach(replied, synapse=KINDS["Unhashed"])
        .attach(replied, synapse=KINDS["Allowed"], allow_unhashed_body=True)
        .attach(replied, synapse=KINDS["Required"])
        .attach(chat, synapse=KINDS["Chat"])
        .attach(array, synapse=KINDS["Array"])
        .attach(boom, synapse=KINDS["Boom"])
        .attach(slow, synapse=KINDS["Slow"])
        .attach(tok, synapse=KINDS["Tok"])
        .attach(same, listed, synapse=KINDS["Private"])
    )
