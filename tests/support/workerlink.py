"""Two ends of the engine-worker protocol without a connection, and bytes by hand."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from typing import Any

from bakemesh.protocol.worker import headers as h
from bakemesh.protocol.worker.ends import HostEnd, WorkerEnd
from bakemesh.protocol.worker.packets import Packet

NONCE = "00112233445566778899aabbccddeeff"
ENGINE = {"name": "fake", "version": "1", "build_flags": {}}


def hello(**changes: Any) -> h.Hello:
    """A HELLO that is taken."""
    given: dict[str, Any] = {
        "v": 1, "nonce": NONCE, "engine": ENGINE, "pid": 1, "max_frame": 1 << 20, "types": h.ADDED_TYPES,
    }  # fmt: skip
    return h.Hello(**(given | changes))


def frame(payload: bytes) -> bytes:
    """A frame, made by hand."""
    return struct.pack("<I", len(payload)) + payload


def framed(header: dict[str, Any], *raw: bytes) -> bytes:
    """A header and its raw frames, made by hand."""
    return b"".join(frame(each) for each in (json.dumps(header).encode(), *raw))


def feed(end: HostEnd | WorkerEnd, data: bytes, step: int = 1 << 30) -> list[Any]:
    """Gives bytes to an end, `step` at a time; what it gives out."""
    out: list[Any] = []
    at = 0
    while at < len(data):
        room = end.room()
        count = min(len(room), step, len(data) - at)
        assert count > 0, "an end always has room once it was asked for packets"
        room[:count] = data[at : at + count]
        end.fed(count)
        at += count
        out += end.packets()
    return out


def joined(pieces: Iterable[bytes | memoryview]) -> bytes:
    """Pieces as the bytes they are."""
    return b"".join(bytes(memoryview(each).cast("B")) for each in pieces)


def connected(max_frame: int = 1 << 20, **changes: Any) -> tuple[HostEnd, WorkerEnd]:
    """Both ends after the handshake."""
    host, worker = HostEnd(NONCE, max_frame), WorkerEnd(hello(**changes))
    feed(host, joined(worker.greeting()))
    feed(worker, joined(host.ack()))
    return host, worker


def answers(found: Iterable[Any]) -> list[dict[str, Any]]:
    """The headers of what a worker's end answered by itself."""
    return [json.loads(joined(each)[4:]) for each in found if not isinstance(each, Packet)]
