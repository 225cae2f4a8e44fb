"""One NATS payload: a msgpack map that is understood without headers.

    {"v": 1, "type": str, "id": 16 bytes, "created": µs since epoch, "from": "<service>@<NodeID>", "entries": {...}}

Entry keys are case-insensitive: they are written in the seed's case and matched without. Two keys of one message
that differ only in case are an error. Left out on purpose: what the entries mean (see `message`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgpack

from bakemesh.protocol.errors import MessageError, VersionRefused

VERSION = 1
ID_BYTES = 16
_FIELDS = ("v", "type", "id", "created", "from", "entries")
_packb = msgpack.Packer(use_bin_type=True, autoreset=True).pack


@dataclass(frozen=True, slots=True)
class Envelope:
    """A decoded payload; `entries` keep the case in which they were written."""

    type: str
    id: bytes
    created: int
    sender: str
    entries: Mapping[str, Any]

    @property
    def msg_id(self) -> str:
        """The `Nats-Msg-Id` of this message: its id in hex."""
        return self.id.hex()


def pack(type: str, id: bytes, created: int, sender: str, entries: Mapping[str, Any]) -> bytes:  # noqa: A002
    """The bytes of one message. Raises MessageError where an entry holds what msgpack cannot carry."""
    try:
        packed: bytes = _packb(
            {"v": VERSION, "type": type, "id": id, "created": created, "from": sender, "entries": entries}
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise MessageError(f"cannot be written as msgpack: {error}", type=type) from error
    return packed


def unpack(payload: bytes | bytearray | memoryview) -> Envelope:
    """The envelope in `payload`. Raises MessageError (VersionRefused for another `v`), never anything else."""
    try:
        fields = msgpack.unpackb(payload, raw=False, strict_map_key=False)
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise MessageError(f"not a msgpack map: {error or type(error).__name__}") from error
    if type(fields) is not dict:
        raise MessageError(f"not a msgpack map but {type(fields).__name__}")
    version = fields.get("v")
    kind = fields.get("type")
    if type(version) is not int or version != VERSION:
        shown = kind if isinstance(kind, str) else None
        raise VersionRefused(f"protocol version {version!r}; this side speaks {VERSION}", type=shown)
    if type(kind) is not str or not kind:
        raise MessageError(f"type must be text, not {kind!r:.80}")
    id, created, sender = fields.get("id"), fields.get("created"), fields.get("from")  # noqa: A001
    entries = fields.get("entries")
    if type(id) is not bytes or len(id) != ID_BYTES:
        raise MessageError(f"id must be {ID_BYTES} bytes", type=kind)
    if type(created) is not int or created < 0:
        raise MessageError("created must be µs since the epoch, an int", type=kind)
    if type(sender) is not str:
        raise MessageError("from must be text", type=kind)
    if type(entries) is not dict:
        raise MessageError("entries must be a map", type=kind)
    return Envelope(kind, id, created, sender, entries)


def fold(entries: Mapping[Any, Any], *, type: str | None = None) -> dict[str, str]:  # noqa: A002
    """Maps each lower-cased entry key to the key as written.

    Raises MessageError for a key that is not text, and for two that differ only in case.
    """
    folded: dict[str, str] = {}
    for key in entries:
        if not isinstance(key, str):
            raise MessageError(f"entry keys must be text, not {key!r:.80}", type=type)
        lower = key.lower()
        if lower in folded:
            raise MessageError(f"the entries {folded[lower]!r:.80} and {key!r:.80} differ only in case", type=type, entry=key[:80])
        folded[lower] = key
    return folded
