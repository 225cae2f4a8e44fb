"""The header of a GGUF file, read without trust: metadata, and where its tensors are. Pure of any engine.

Guarantees: nothing is reserved for a count that the file only claims; every length is checked against what is
left of the file before it is used; strings, arrays, keys and tensors have bounds far above any model's. What
is wrong is told with its place. Left out: weights.

Not read with the `gguf` package's reader: that makes arrays of every element, 13 s and 718 MB for the
262,144 words of a model of 253 MB, and it trusts the counts. Its constants are used.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

MOST_KEYS = MOST_TENSORS = 1 << 16
MOST_ITEMS = 1 << 24
LONGEST_KEY, LONGEST_NAME, LONGEST_STRING = 1 << 16, 256, 1 << 24
MOST_STRING_BYTES = 1 << 28  # of all together
_ALIGNMENT = 32
_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_SIZES = {number: np.dtype(kind).itemsize for number, kind in _SCALARS.items()} | {_BOOL: 1}


class HeaderBroken(Exception):
    """Raised when a file is no GGUF that can be read, with the place of what is wrong."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """`shape` as the file has it, the contiguous dimension first; `offset` in the file, `size`: bytes."""

    name: str
    type: GGMLQuantizationType
    shape: tuple[int, ...]
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Header:
    """`values`: numbers, texts, lists of texts, numpy arrays. `keys_begin` … `keys_end`: the bytes of all
    keys and values; `data`: where the tensors begin."""

    version: int
    values: dict[str, Any]
    tensors: dict[str, Tensor]
    keys_begin: int
    keys_end: int
    data: int
    alignment: int

    def text(self, key: str) -> str | None:
        """A text; None where there is none."""
        found = self.values.get(key)
        return found if isinstance(found, str) else None

    def whole(self, key: str) -> int | None:
        """A whole number; None where there is none."""
        found = self.values.get(key)
        return found if isinstance(found, int) and not isinstance(found, bool) else None

    def flag(self, key: str, default: bool) -> bool:
        """A flag, or the default where there is none."""
        found = self.values.get(key)
        return found if isinstance(found, bool) else default

    def texts(self, key: str) -> list[str] | None:
        """A list of texts; None where there is none."""
        found = self.values.get(key)
        return found if isinstance(found, list) else None

    def numbers(self, key: str) -> list[Any] | None:
        """A list of numbers; None where there is none."""
        found = self.values.get(key)
        return found.tolist() if isinstance(found, np.ndarray) else None


def read(path: Path) -> Header:
    """Raises HeaderBroken, OSError."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size < 24:
            raise HeaderBroken(f"{size} bytes are no GGUF file")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
            return _Reader(whole, size).header()


class _Reader:
    """Walks through the bytes, once."""

    def __init__(self, whole: mmap.mmap, size: int) -> None:
        self._bytes, self._size, self._at, self._strings = whole, size, 0, 0

    def header(self) -> Header:
        if (magic := self._take(4, "the magic number")) != b"GGUF":
            raise HeaderBroken(f"it begins with {magic!r}, not with GGUF")
        version = self._number("<I", "the version")
        if version & 0xFFFF == 0:
            raise HeaderBroken("it was written for big-endian machines")
        if version not in (2, 3):
            raise HeaderBroken(f"its version is {version}; 2 and 3 are read")
        tensor_count = self._count(MOST_TENSORS, "tensors")
        key_count = self._count(MOST_KEYS, "keys")
        begin = self._at
        values: dict[str, Any] = {}
        for _ in range(key_count):
            key = self._string(LONGEST_KEY, "a key")
            if key in values:
                raise HeaderBroken(f"the key {key!r:.100} is there twice")
            values[key] = self._value(self._number("<I", f"the type of {key!r:.100}"), f"{key!r:.100}")
        end = self._at
        alignment = values.get("general.alignment", _ALIGNMENT)
        if not isinstance(alignment, int) or not 8 <= alignment <= 1 << 16 or alignment & (alignment - 1):
            raise HeaderBroken(f"general.alignment {alignment!r:.40} is no power of two from 8 to 65536")
        listed = [self._tensor() for _ in range(tensor_count)]
        data = (self._at + alignment - 1) // alignment * alignment
        tensors: dict[str, Tensor] = {}
        for name, kind, shape, offset in listed:
            if name in tensors:
                raise HeaderBroken(f"the tensor {name!r:.100} is there twice")
            tensors[name] = self._placed(name, kind, shape, offset, data, alignment)
        return Header(version, values, tensors, begin, end, data, alignment)

    # -- parts

    def _value(self, kind: int, what: str, *, inner: bool = False) -> Any:
        if kind == _STRING:
            return self._string(LONGEST_STRING, what)
        if kind == _BOOL:
            return self._take(1, what) != b"\0"
        if kind in _SCALARS:
            return np.frombuffer(self._take(_SIZES[kind], what), _SCALARS[kind])[0].item()
        if kind == _ARRAY and not inner:
            return self._array(what)
        raise HeaderBroken(f"{what} has the type {kind}, which is none that is read here")

    def _array(self, what: str) -> Any:
        kind = self._number("<I", f"the type of {what}")
        count = self._count(MOST_ITEMS, f"items of {what}")
        if kind == _STRING:
            self._room(count * 8, what)
            return [self._string(LONGEST_STRING, what) for _ in range(count)]
        if kind == _BOOL:
            return np.frombuffer(self._take(count, what), np.bool_)
        if kind not in _SCALARS:
            raise HeaderBroken(f"{what} is a list of the type {kind}, which is none that is read here")
        return np.frombuffer(self._take(count * _SIZES[kind], what), _SCALARS[kind])

    def _tensor(self) -> tuple[str, int, tuple[int, ...], int]:
        name = self._string(LONGEST_NAME, "the name of a tensor")
        dimensions = self._number("<I", f"the dimensions of {name!r:.100}")
        if not 1 <= dimensions <= 4:
            raise HeaderBroken(f"the tensor {name!r:.100} has {dimensions} dimensions")
        shape = tuple(self._number("<Q", f"the shape of {name!r:.100}") for _ in range(dimensions))
        kind = self._number("<I", f"the type of {name!r:.100}")
        return name, kind, shape, self._number("<Q", f"the place of {name!r:.100}")

    def _placed(
        self, name: str, kind: int, shape: tuple[int, ...], offset: int, data: int, alignment: int
    ) -> Tensor:
        try:
            known = GGMLQuantizationType(kind)
        except ValueError:
            raise HeaderBroken(f"the tensor {name!r:.100} has the type {kind}, which is not known") from None
        block, bytes_a_block = GGML_QUANT_SIZES[known]
        elements = 1
        for each in shape:
            elements *= each
        if not 0 < elements <= 1 << 48 or shape[0] % block:
            raise HeaderBroken(f"the tensor {name!r:.100} has the shape {shape}")
        size = elements // block * bytes_a_block
        if offset % alignment or data + offset + size > self._size:
            raise HeaderBroken(
                f"the tensor {name!r:.100} ends at byte {data + offset + size} of {self._size}: "
                "the file is cut off"
            )
        return Tensor(name, known, shape, data + offset, size)

    # -- bytes

    def _string(self, longest: int, what: str) -> str:
        length = self._number("<Q", f"the length of {what}")
        self._strings += length
        if length > longest or self._strings > MOST_STRING_BYTES:
            raise HeaderBroken(f"{what}: a text of {length} bytes; {longest} are read at most")
        try:
            return self._take(length, what).decode()
        except UnicodeDecodeError:
            raise HeaderBroken(f"{what} is no UTF-8") from None

    def _count(self, most: int, what: str) -> int:
        found = self._number("<Q", f"the number of {what}")
        if found > most:
            raise HeaderBroken(f"{found} {what}; {most} are read at most")
        return found

    def _number(self, kind: str, what: str) -> int:
        found: int = struct.unpack(kind, self._take(struct.calcsize(kind), what))[0]
        return found

    def _take(self, length: int, what: str) -> bytes:
        self._room(length, what)
        found = self._bytes[self._at : self._at + length]
        self._at += length
        return found

    def _room(self, length: int, what: str) -> None:
        if length > self._size - self._at:
            raise HeaderBroken(
                f"{what} would need {length} bytes at byte {self._at} of {self._size}: the file is cut off"
            )
