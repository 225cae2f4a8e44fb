"""The short way for small, plain messages, where msgspec is installed (`bakemesh[fast]`); the same bytes,
the same answers.

Only for types whose entries are scalars (`scalars.describe`): a value of any other kind could be read or
written differently by two libraries. Every type gets a `Plan`: its entries as a msgspec struct, which reads
and checks them in one go. Guarantees: what is written is byte for byte what `envelope.pack` writes; a message
is read here only if the long way reads the same from it. Whatever is not plainly right (an unknown entry,
another case, a wrong value, broken bytes) is left to the long way, which alone says what is wrong. Without
msgspec there are no plans, and everything goes the long way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from bakemesh.protocol.envelope import ID_BYTES, LARGEST, VERSION
from bakemesh.protocol.scalars import Scalar

Payload = bytes | bytearray | memoryview

installed = False

_LONG_MAP = 0xDE  # msgpack: a map with its count in the two bytes that follow
_SHORT_MAPS = tuple(bytes([0x80 | count]) for count in range(16))  # with its count in the same byte

try:
    import msgspec
except ImportError:  # the long way does
    pass
else:
    _Id = Annotated[bytes, msgspec.Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
    _Created = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
    _Version = Annotated[int, msgspec.Meta(ge=VERSION, le=VERSION)]
    _Type = Annotated[str, msgspec.Meta(min_length=1)]
    _HEAD = [("v", _Version), ("type", _Type), ("id", _Id), ("created", _Created)]
    _SENDER = ("sender", str, msgspec.field(name="from"))

    def _envelope(entries: Any) -> Any:
        return msgspec.defstruct("Envelope", [*_HEAD, _SENDER, ("entries", entries)], gc=False)

    _Written = _envelope(Any)
    _write = msgspec.msgpack.Encoder().encode
    installed = True


class Plan:
    """How the messages of one type are read and written."""

    def __init__(self, entries: Sequence[Scalar]) -> None:
        fields = [(each.name, _kind(each), _field(each)) for each in entries]
        reading = msgspec.defstruct("Entries", fields, kw_only=True, forbid_unknown_fields=True, gc=False)
        # `write` takes what a model holds as it is, and leaves out what is None.
        written = [(each.name, Any, msgspec.field(name=each.key, default=None)) for each in entries]
        self._decode = msgspec.msgpack.Decoder(_envelope(reading)).decode
        self._asdict = msgspec.structs.asdict
        self._struct: Any = msgspec.defstruct("Entries", written, kw_only=True, omit_defaults=True, gc=False)
        self._flags = tuple(each.name for each in entries if each.kind is bool)
        self._checks = tuple((each.name, each.check) for each in entries if each.check is not None)

    def read(self, payload: Payload) -> tuple[Any, dict[str, Any]]:
        """The envelope, and every value by name: None for one that was not there.

        Raises ValueError where something is not plainly right.
        """
        found = self._decode(payload)
        values = self._asdict(found.entries)
        for name in self._flags:
            values[name] = values[name] == 1
        for name, check in self._checks:
            values[name] = check(values[name])
        return found, values

    def write(
        self,
        kind: str,
        id: bytes,  # noqa: A002
        created: int,
        sender: str,
        values: dict[str, Any],
    ) -> bytes:
        """The bytes of a message. Raises TypeError, ValueError, OverflowError: the long way is to try."""
        entries = self._struct(**values)
        for name in self._flags:
            setattr(entries, name, 1 if values[name] else 0)
        packed = _write(entries)
        if packed[0] == _LONG_MAP and packed[1] == 0 and packed[2] < len(_SHORT_MAPS):
            # msgspec leaves room for a count of more than 15 where the type has that many entries.
            packed = _SHORT_MAPS[packed[2]] + packed[3:]
        return _write(_Written(VERSION, kind, id, created, sender, msgspec.Raw(packed)))


def plan(entries: Sequence[Scalar] | None) -> Plan | None:
    """The plan of a type with these entries; None where there is no short way."""
    return Plan(entries) if entries is not None and installed else None


def _field(entry: Scalar) -> Any:
    """How it is read. Which entries were there must show by their values: so a nil is not plainly right, nor
    is it where an entry with another default than None is absent. `write` leaves neither behind.
    """
    default = None if entry.default is None and not entry.required else msgspec.NODEFAULT
    return msgspec.field(name=entry.key, default=default)


def _kind(entry: Scalar) -> Any:
    kind: Any = entry.kind
    if kind is bool:
        kind = Annotated[int, msgspec.Meta(ge=0, le=1)] | bool
    if entry.least is not None:
        kind = Annotated[kind, msgspec.Meta(ge=entry.least)]
    if entry.most is not None:
        kind = Annotated[kind, msgspec.Meta(le=entry.most)]
    if entry.shortest is not None:
        kind = Annotated[kind, msgspec.Meta(min_length=entry.shortest)]
    return list[kind] if entry.many else kind
