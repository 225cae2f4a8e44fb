"""Tensors as the real SDK writes them, and some that nobody should open (protocol/axon-v1.md, section 8)."""

from __future__ import annotations

import base64
from typing import Any


def _map(code: bytes, shape: bytes, data: bytes, kind: bytes = b"\xc4\x00") -> bytes:
    """The msgpack of a buffer, written byte by byte: five pairs with bin keys."""
    return (
        b"\x85\xc4\x02nd\xc3\xc4\x04type" + code + b"\xc4\x04kind" + kind + b"\xc4\x05shape" + shape
        + b"\xc4\x04data\xc4" + bytes([len(data)]) + data
    )  # fmt: skip


def _text(code: str) -> bytes:
    return bytes([0xA0 + len(code)]) + code.encode()


ROWS: list[tuple[str, str, list[int], bytes]] = [
    (
        "float32, 2 by 3",
        "float32",
        [2, 3],
        _map(
            _text("<f4"), b"\x92\x02\x03", bytes.fromhex("000000000000803e0000003f0000403f0000803f0000a03f")
        ),
    ),
    ("float16", "float16", [2], _map(_text("<f2"), b"\x91\x02", bytes.fromhex("003c00c1"))),
    ("a scalar", "float64", [0], _map(_text("<f8"), b"\x90", bytes.fromhex("0000000000000a40"))),
    ("int64", "int64", [1], _map(_text("<i8"), b"\x91\x01", b"\xfe" + b"\xff" * 7)),
    ("int32, big-endian", "int32", [2], _map(_text(">i4"), b"\x91\x02", bytes.fromhex("0000000100000002"))),
    ("int16", "int16", [1], _map(_text("<i2"), b"\x91\x01", b"\xfd\xff")),
    ("int8", "int8", [1], _map(_text("|i1"), b"\x91\x01", b"\xfd")),
    ("uint8", "uint8", [2], _map(_text("|u1"), b"\x91\x02", b"\x00\xff")),
    ("bool", "bool", [2], _map(_text("|b1"), b"\x91\x02", b"\x01\x00")),
    ("empty", "float32", [0], _map(_text("<f4"), b"\x91\x00", b"")),
]

_FOUR = b"\x00" * 4
REFUSED: list[tuple[str, str, list[int], bytes]] = [
    ("objects", "float32", [1], _map(b"\xc4\x01O", b"\x91\x01", b"\x80\x04].", b"\xc4\x01O")),
    ("records", "float32", [1], _map(b"\x91\x92\xa1a\xa3<f4", b"\x91\x01", _FOUR, b"\xc4\x01V")),
    ("fewer bytes than the shape takes", "float32", [4], _map(_text("<f4"), b"\x91\x04", _FOUR)),
    ("another shape than its buffer's", "float32", [1000], _map(_text("<f4"), b"\x91\x01", _FOUR)),
    ("another type than its buffer's", "float32", [1], _map(_text("<i4"), b"\x91\x01", _FOUR)),
    ("a negative dimension", "float32", [-1], _map(_text("<f4"), b"\x91\xff", _FOUR)),
    (
        "empty, and larger than memory",
        "float32",
        [0, 1 << 62, 4],
        _map(_text("<f4"), b"\x93\x00\xcf\x40" + b"\x00" * 7 + b"\x04", b""),
    ),
    ("a bool of 2", "bool", [1], _map(_text("|b1"), b"\x91\x01", b"\x02")),
    ("complex", "complex64", [1], _map(_text("<c8"), b"\x91\x01", b"\x00" * 8)),
    ("no msgpack", "float32", [1], b"\xc1"),
]


def _shown(name: str, dtype: str, shape: list[int], raw: bytes) -> dict[str, Any]:
    tensor = {"buffer": base64.b64encode(raw).decode(), "dtype": dtype, "shape": shape}
    return {"name": name, "tensor": tensor}


def files() -> dict[str, Any]:
    """The vectors, by the name of their file."""
    return {
        "axon-tensors.json": {
            "tensors": [_shown(*row) for row in ROWS],
            "refused": [_shown(*row) for row in REFUSED],
        }
    }
