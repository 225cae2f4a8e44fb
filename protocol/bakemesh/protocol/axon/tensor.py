"""Tensors as the real SDK's synapses carry them: `{buffer, dtype, shape}`, and numpy arrays in and out.

`buffer` is the base64 of a msgpack map with *bin* keys, `{nd: true, type, kind, shape, data}`. It is read by
checks of our own: the library the real SDK uses unpickles arrays of objects, which runs the sender's code.
Guarantees: kind `O` and `V`, complex numbers, a wrong length, a shape that is negative or too large are
refused before memory is taken for them; `numpy()` gives a view of the bytes, not a copy. numpy is imported
when an array is asked for. Source: protocol/axon-v1.md, section 8.
"""

from __future__ import annotations

import base64
import binascii
from math import prod
from typing import TYPE_CHECKING, Any, Self

import msgpack
from pydantic import BaseModel, ConfigDict, model_validator

from bakemesh.protocol.axon.errors import InvalidTensor

if TYPE_CHECKING:
    from numpy import generic
    from numpy.typing import NDArray

# Name, numpy's type code, bytes an element.
DTYPES: dict[str, tuple[str, int]] = {
    "float16": ("f2", 2),
    "float32": ("f4", 4),
    "float64": ("f8", 8),
    "int8": ("i1", 1),
    "int16": ("i2", 2),
    "int32": ("i4", 4),
    "int64": ("i8", 8),
    "uint8": ("u1", 1),
    "bool": ("b1", 1),
}
MOST_DIMENSIONS = 32
_MOST_BYTES = 1 << 62  # of an array that has as many elements as its dimensions other than 0 say
_KEYS = frozenset({b"nd", b"type", b"kind", b"shape", b"data"})


class Tensor(BaseModel):
    """A tensor on its way. `shape` of a scalar is `[0]`, as the real SDK writes it."""

    model_config = ConfigDict(extra="ignore")

    buffer: str | None = None
    dtype: str
    shape: list[int]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        self.parts()
        return self

    @classmethod
    def from_numpy(cls, array: NDArray[Any]) -> Tensor:
        """The tensor of an array. Raises InvalidTensor for a dtype that is not in DTYPES."""
        import numpy

        name = array.dtype.name
        if name not in DTYPES:
            raise InvalidTensor(f"dtype {name} is none of {', '.join(DTYPES)}")
        if array.ndim > MOST_DIMENSIONS:
            raise InvalidTensor(f"it has {array.ndim} dimensions, {MOST_DIMENSIONS} are allowed")
        flat = numpy.ascontiguousarray(array)
        packed = msgpack.packb(
            {
                b"nd": True,
                b"type": array.dtype.str,
                b"kind": b"",
                b"shape": list(array.shape),
                b"data": flat.tobytes(),
            },
            use_bin_type=True,
        )
        shape = list(array.shape) or [0]
        return cls.model_construct(buffer=base64.b64encode(packed).decode(), dtype=name, shape=shape)

    def parts(self) -> tuple[str, tuple[int, ...], bytes]:
        """numpy's type, the shape and the bytes, all of which fit one another. Raises InvalidTensor."""
        name = self.dtype.removeprefix("torch.")
        if name not in DTYPES:
            raise InvalidTensor(f"dtype {self.dtype[:40]!r} is none of {', '.join(DTYPES)}")
        code, size = DTYPES[name]
        kind, shape, data = _unpacked(self.buffer)
        if kind[1:] != code or kind[0] not in "<>|=":
            raise InvalidTensor(f"the buffer holds {kind[:20]!r}, the tensor says {name}")
        if prod(each or 1 for each in shape) * size > _MOST_BYTES:  # numpy refuses it though it is empty
            raise InvalidTensor(f"no array has the shape {list(shape)[:8]}")
        if prod(shape) * size != len(data):
            raise InvalidTensor(
                f"shape {list(shape)[:8]} of {name} takes {prod(shape) * size} bytes, there are {len(data)}"
            )
        if name == "bool" and data.translate(None, b"\x00\x01"):
            raise InvalidTensor("a bool is the byte 0 or 1")
        declared = tuple(self.shape)
        if declared != shape and not (shape == () and declared in ((0,), ())):
            raise InvalidTensor(f"the tensor says shape {list(declared)[:8]}, its buffer {list(shape)[:8]}")
        return kind, shape, data

    def numpy(self) -> NDArray[generic]:
        """The array: a view of the bytes that cannot be written."""
        import numpy

        kind, shape, data = self.parts()
        return numpy.frombuffer(data, dtype=numpy.dtype(kind)).reshape(shape)


def _unpacked(buffer: str | None) -> tuple[str, tuple[int, ...], bytes]:
    if buffer is None:
        raise InvalidTensor("it has no buffer")
    try:
        raw = base64.b64decode(buffer, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidTensor(f"its buffer is not base64: {error}") from None
    try:
        found = msgpack.unpackb(
            raw, raw=True, strict_map_key=False, max_map_len=8, max_array_len=MOST_DIMENSIONS
        )
    except Exception as error:  # noqa: BLE001 - msgpack raises many kinds for bytes that are none
        raise InvalidTensor(f"its buffer is not msgpack: {type(error).__name__}") from None
    if not isinstance(found, dict) or set(found) != _KEYS or found[b"nd"] is not True:
        raise InvalidTensor("its buffer holds no array")
    if found[b"kind"] != b"":
        raise InvalidTensor(f"arrays of kind {found[b'kind']!r:.20} are never opened")
    kind, shape, data = found[b"type"], found[b"shape"], found[b"data"]
    if not isinstance(kind, bytes) or len(kind) != 3 or not isinstance(data, bytes):
        raise InvalidTensor("its buffer holds no plain array")
    if not isinstance(shape, list) or not all(type(each) is int and each >= 0 for each in shape):
        raise InvalidTensor("its shape is no list of whole numbers from 0 on")
    return kind.decode("latin-1"), tuple(shape), data
