"""The short way for small, plain messages, where msgspec is installed (`bakemesh[fast]`); the same bytes,
the same answers.

Only for types whose entries are scalars (`Message.plain`): a value of any other kind could be read or written
differently by two libraries. Guarantees: what is written is byte for byte what `envelope.pack` writes; a
message is read here only if the long way reads the same from it. Whatever is not plainly right (an unknown
entry, another case, a wrong value, broken bytes) is left to the long way, which alone says what is wrong.
Without msgspec everything goes the long way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bakemesh.protocol.envelope import ID_BYTES, LARGEST, VERSION

# Writes a map as msgpack; None: there is no short way.
write: Callable[[Any], bytes] | None = None
# Gives type, id, created, sender and entries; raises ValueError where it is not plainly right.
read: Callable[[bytes | bytearray | memoryview], Any] | None = None

try:
    import msgspec
except ImportError:  # the long way does
    pass
else:
    from typing import Annotated

    _Id = Annotated[bytes, msgspec.Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
    _Created = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
    _Version = Annotated[int, msgspec.Meta(ge=VERSION, le=VERSION)]
    _Type = Annotated[str, msgspec.Meta(min_length=1)]

    class _Envelope(msgspec.Struct, gc=False):
        v: _Version
        type: _Type
        id: _Id
        created: _Created
        sender: str = msgspec.field(name="from")
        entries: dict[Any, Any] = msgspec.field()

    write, read = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(_Envelope).decode
