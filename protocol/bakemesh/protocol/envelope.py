"""One NATS payload: a msgpack map that is understood without headers.

    {"v": 1, "type": str, "id": 16 bytes, "created": µs since the epoch, "from": "<service>@<NodeID>",
     "entries": {…}}

Entry keys are case-insensitive: written in the contract's case and matched without. Two keys of one message
that differ only in case are an error. Left out on purpose: what the entries mean (see `message`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgpack

from bakemesh.protocol.errors import MessageError, VersionRefused

VERSION = 1
ID_BYTES = 16
# A map or list that says it is longer is refused at its first byte: hostile ones cost nobody's loop a second.
MOST_IN_A_MAP, MOST_IN_A_LIST = 1 << 16, 1 << 18
LARGEST = 2**63 - 1  # of every number in a message, times included
_packb = msgpack.Packer(use_bin_type=True, autoreset=True).pack
_unpackb = msgpack.unpackb


class Envelope(NamedTuple):
    """A decoded payload; `entries` keep the case in which they were written."""

    type: str
    id: bytes
    created: int
    sender: str
    entries: dict[Any, Any]

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
    """The envelope in `payload`.

    Raises MessageError (VersionRefused for another `v`) and nothing else, whatever the bytes.
    """
    return Envelope(*fields_of(payload))


def fields_of(payload: bytes | bytearray | memoryview) -> tuple[str, bytes, int, str, dict[Any, Any]]:
    """What `unpack` gives, as a bare tuple: for decoding, where every message pays for its wrapping."""
    try:
        fields = _unpackb(
            payload, strict_map_key=False, max_map_len=MOST_IN_A_MAP, max_array_len=MOST_IN_A_LIST
        )
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise MessageError(f"not a msgpack map: {error or type(error).__name__}") from error
    if type(fields) is dict:
        get = fields.get
        version, kind, id = get("v"), get("type"), get("id")  # noqa: A001
        created, sender, entries = get("created"), get("from"), get("entries")
        if (
            type(version) is int
            and version == VERSION
            and type(kind) is str
            and kind
            and type(id) is bytes
            and len(id) == ID_BYTES
            and type(created) is int
            and 0 <= created <= LARGEST
            and type(sender) is str
            and type(entries) is dict
        ):
            return kind, id, created, sender, entries
    raise _wrong(fields)


def _wrong(fields: Any) -> MessageError:
    """Why these are not the fields of an envelope: the first that is wrong."""
    if type(fields) is not dict:
        return MessageError(f"not a msgpack map but {type(fields).__name__}")
    get = fields.get
    version, kind = get("v"), get("type")
    if type(version) is not int or version != VERSION:
        shown = version if type(version) in (int, str) else type(version).__name__
        return VersionRefused(
            f"protocol version {str(shown)[:40]}; this side speaks {VERSION}",
            type=kind[:200] if type(kind) is str else None,
        )
    if type(kind) is not str or not kind:
        return MessageError("type must be text that is not empty")
    id, created = get("id"), get("created")  # noqa: A001
    if type(id) is not bytes or len(id) != ID_BYTES:
        return MessageError(f"id must be {ID_BYTES} bytes", type=kind[:200])
    if type(created) is not int or not 0 <= created <= LARGEST:
        return MessageError("created must be µs since the epoch, an int from 0 to 2^63-1", type=kind[:200])
    if type(get("from")) is not str:
        return MessageError("from must be text", type=kind[:200])
    return MessageError("entries must be a map", type=kind[:200])


def fold(entries: Mapping[Any, Any], *, type: str | None = None) -> dict[str, str]:  # noqa: A002
    """Maps each lower-cased entry key to the key as written.

    Raises MessageError for a key that is not text, and for two that differ only in case.
    """
    folded: dict[str, str] = {}
    for key in entries:
        if not isinstance(key, str):
            raise MessageError(f"entry keys must be text, not {key.__class__.__name__}", type=type)
        lower = key.lower()
        if lower in folded:
            reason = f"the entries {folded[lower][:80]!r} and {key[:80]!r} differ only in case"
            raise MessageError(reason, type=type, entry=key[:80])
        folded[lower] = key
    return folded
