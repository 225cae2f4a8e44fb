"""A synapse whose answer comes in parts. Source: the bittensor-synapse document, "StreamingSynapse"."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, ClassVar, TypeAlias

from bakemesh.protocol.axon.errors import DeserializationFailed
from bakemesh.protocol.axon.reading import read
from bakemesh.protocol.axon.synapse import Synapse

StreamItem: TypeAlias = Any


class StreamingSynapse(Synapse):
    """Its handler yields parts. `Item`: the type of a part, `str` unless told otherwise; another one travels
    as its JSON.
    """

    Item: ClassVar[type[Any]] = str

    @classmethod
    def process_chunk(cls, chunk: bytes) -> StreamItem:
        """The payload of one event as an Item. Raises DeserializationFailed."""
        if cls.Item is not str:
            return read(cls.Item, chunk)
        try:
            return chunk.decode()
        except UnicodeDecodeError as error:
            raise DeserializationFailed(f"a chunk is not UTF-8: {error}") from None


Parts: TypeAlias = AsyncIterator[Any]
