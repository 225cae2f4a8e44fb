"""Both forms of a connection, over real sockets: bytes of any cut in, packets out, and one end.

`PipeWire` is what Windows' named pipes use; here it runs on a Unix server's transport, which speaks the same
asyncio protocol. Named pipes themselves were not run.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct

import pytest

from bakemesh.protocol.worker import headers as h
from bakemesh.protocol.worker.ends import HostEnd
from bakemesh.protocol.worker.errors import PeerError
from bakemesh.workerpool.places import listen_pipe
from bakemesh.workerpool.wire import PipeWire, SocketWire, Wire, peer_pid
from support.waiting import eventually

NONCE = "ab" * 16
HELLO = {"v": 1, "nonce": NONCE, "engine": {"name": "x"}, "pid": 1, "max_frame": 64 << 20}


def frame(said: object) -> bytes:
    """A frame, of JSON or of bytes."""
    payload = said if isinstance(said, bytes) else json.dumps(said).encode()
    return struct.pack("<I", len(payload)) + payload


class Far:
    """A worker's end: a blocking socket in a thread of its own, so that both sides can fill it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.setblocking(True)

    async def send(self, data: bytes) -> None:
        await asyncio.to_thread(self.sock.sendall, data)

    async def read(self, size: int) -> bytes:
        def all_of_it() -> bytes:
            out = b""
            while len(out) < size and (part := self.sock.recv(size - len(out))):
                out += part
            return out

        return await asyncio.to_thread(all_of_it)


class Near:
    """The host's end, and what it told."""

    def __init__(self) -> None:
        self.end = HostEnd(NONCE)
        self.packets: list[object] = []
        self.lost: list[Exception | None] = []
        self.wire: Wire | None = None

    def attach(self, wire: Wire) -> None:
        wire.on_packet, wire.on_lost = self.packets.append, self.lost.append
        self.wire = wire


async def joined(kind: str, tmp_path) -> tuple[Near, Far]:
    """Both ends, with a connection between them."""
    near, loop = Near(), asyncio.get_running_loop()
    if kind == "socket":
        ours, theirs = socket.socketpair()
        near.attach(SocketWire(loop, ours, near.end, near.packets.append, near.lost.append))
        return near, Far(theirs)
    path = str(tmp_path / "s")
    server = await loop.create_unix_server(lambda: PipeWire(near.end, near.attach), path)
    theirs = socket.socket(socket.AF_UNIX)
    theirs.connect(path)
    await eventually(lambda: near.wire is not None)
    server.close()
    return near, Far(theirs)


@pytest.fixture(params=["socket", "pipe"])
async def ends(request, tmp_path):
    """A pair; both closed at the end."""
    near, far = await joined(request.param, tmp_path)
    yield near, far
    near.wire.close()
    far.sock.close()
    await asyncio.sleep(0)


async def test_packets_come_out_of_bytes_of_any_cut(ends):
    near, far = ends
    for byte in frame(HELLO):
        await far.send(bytes([byte]))
    await eventually(lambda: near.packets)
    assert near.packets[0].header.nonce == NONCE
    near.wire.send(near.end.ack())
    (size,) = struct.unpack("<I", await far.read(4))
    assert json.loads(await far.read(size))["accept"] is True


async def test_large_frames_go_out_and_come_in_whole(ends):
    near, far = ends
    await far.send(frame(HELLO))
    await eventually(lambda: near.packets)
    near.wire.send(near.end.ack())
    await far.read(struct.unpack("<I", await far.read(4))[0])
    data = os.urandom(1 << 20) * 3
    tokens = len(data) // 4
    asked = h.EmbedBatch(
        req_id="1", model_ref="m", pooling="mean", normalize=True, items=[{"id": "0", "n_tokens": tokens}]
    )
    near.wire.send(near.end.send(asked, data))
    await far.read(struct.unpack("<I", await far.read(4))[0])
    assert await far.read(struct.unpack("<I", await far.read(4))[0]) == data
    said = {"type": "VECTORS", "req_id": "1", "dims": tokens, "n": 1}
    await far.send(frame(said) + frame(data))
    await eventually(lambda: len(near.packets) == 2)
    assert near.packets[1].data == data


async def test_an_end_between_frames_is_clean_and_inside_one_is_told(ends):
    near, far = ends
    await far.send(frame(HELLO))
    await eventually(lambda: near.packets)
    far.sock.close()
    await eventually(lambda: near.lost)
    assert near.lost == [None]


async def test_an_end_inside_a_frame_is_a_peer_error(ends):
    near, far = ends
    await far.send(frame(HELLO)[:-3])
    far.sock.close()
    await eventually(lambda: near.lost)
    assert isinstance(near.lost[0], PeerError)
    assert not near.packets


async def test_a_violation_ends_it_once_and_nothing_comes_after(ends):
    near, far = ends
    await far.send(frame(HELLO) + frame({"type": "PONG", "req_id": "1", "rss_mb": 1, "models_loaded": 0}))
    await eventually(lambda: near.lost)
    assert len(near.lost) == 1
    assert isinstance(near.lost[0], PeerError)
    near.wire.close()
    assert len(near.lost) == 1


async def test_what_is_sent_after_the_end_is_let_fall(ends):
    near, far = ends
    await far.send(frame(HELLO))
    await eventually(lambda: near.packets)
    far.sock.close()
    near.wire.send(near.end.ack())
    await eventually(lambda: near.lost)
    near.wire.send([b"more"])


async def test_who_is_at_the_other_end_is_known_here_and_asked_as_macos_wants_it():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_pid(ours) == os.getpid()
        assert peer_pid(ours, "darwin") is None or isinstance(peer_pid(ours, "darwin"), int)


async def test_a_named_pipe_needs_windows_own_loop_and_says_so():
    with pytest.raises(OSError, match="ProactorEventLoop"):
        await listen_pipe(r"\\.\pipe\bakemesh-x", lambda: HostEnd(NONCE), lambda wire: None)
