"""The serving loop on one end of a socket pair, with engines that misbehave."""

from __future__ import annotations

import json
import socket
import struct
import threading
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bakemesh.protocol.worker.ends import WorkerEnd
from bakemesh.worker.engines.base import EngineError, Generated, GenerationCancelled
from bakemesh.worker.engines.fake import FakeEngine
from bakemesh.worker.requests import Desk
from bakemesh.worker.serving import Server
from bakemesh.worker.transport import SocketChannel
from support.workerhost import i32
from support.workerlink import framed, hello

BATCH: dict[str, Any] = {"pooling": "mean", "normalize": True, "items": [{"id": "a", "n_tokens": 1}]}


class Odd(FakeEngine):
    """Does in `embed` and `generate` what the test says."""

    def __init__(self, act: Callable[..., Any]) -> None:
        super().__init__()
        self.act = act
        self.unloaded: list[Any] = []

    def embed(
        self, model: Any, pooling: str, normalize: bool, counts: Sequence[int], ids: memoryview
    ) -> memoryview:
        """See the test."""
        return self.act()  # type: ignore[no-any-return]

    def generate(self, model: Any, ids: memoryview, options: Any, emit: Any, cancelled: Any) -> Generated:
        """See the test."""
        return self.act(emit, cancelled)  # type: ignore[no-any-return]

    def unload(self, model: Any) -> None:
        """Counts."""
        self.unloaded.append(model)


class Talk:
    """A server in a thread, and the host's side of its connection."""

    def __init__(self, act: Callable[..., Any], folder: Path) -> None:
        self.sock, theirs = socket.socketpair()
        self.sock.settimeout(30)
        self.engine = Odd(act)
        self.server = Server(SocketChannel(theirs), WorkerEnd(hello()), Desk(self.engine))
        self.failed: list[BaseException] = []

        def run() -> None:
            try:
                self.server.run()
            except Exception as error:  # noqa: BLE001  # looked at by the test
                self.failed.append(error)
            finally:
                theirs.close()

        self.thread = threading.Thread(target=run)
        self.thread.start()
        assert self.recv()["type"] == "HELLO"
        self.send({"type": "HELLO_ACK", "v": 1, "accept": True, "max_frame": 1 << 20})
        (folder / "m").write_bytes(b"m")
        load = {"artifact_path": str(folder / "m"), "artifact_digest": "", "format": "fake"}
        config = {"allow_unverified": "yes"}
        self.send({"type": "LOAD", "req_id": "l", **load, "runtime_config": config})
        self.ref = self.recv()["model_ref"]

    def send(self, header: dict[str, Any], *raw: bytes) -> None:
        """A packet."""
        self.sock.sendall(framed(header, *raw))

    def recv(self) -> Any:
        """A control frame."""
        (size,) = struct.unpack("<I", self.sock.recv(4, socket.MSG_WAITALL))
        return json.loads(self.sock.recv(size, socket.MSG_WAITALL))

    def embed(self) -> Any:
        """The header of an answer."""
        self.send({"type": "EMBED_BATCH", "req_id": "e", "model_ref": self.ref, **BATCH}, i32(1))
        return self.recv()

    def stream(self) -> None:
        """Asks for one."""
        given = {"req_id": "g", "model_ref": self.ref, "max_tokens": 9, "raw_frames": 1}
        self.send({"type": "GENERATE_STREAM", **given}, i32(1))

    def close(self) -> None:
        """Ends the conversation and the thread."""
        self.sock.close()
        self.thread.join(30)
        assert not self.thread.is_alive()


@pytest.fixture
def talk(tmp_path: Path) -> Any:
    """Makes conversations, and ends them."""
    made: list[Talk] = []

    def make(act: Callable[..., Any]) -> Talk:
        made.append(Talk(act, tmp_path))
        return made[-1]

    yield make
    for each in made:
        each.close()


def raising(error: BaseException) -> Callable[..., Any]:
    """An act that fails."""

    def act(*_: Any) -> Any:
        raise error

    return act


@pytest.mark.parametrize(
    ("act", "code", "word"),
    [
        (raising(EngineError("oom", "no room")), "oom", "no room"),
        (raising(EngineError("made_up", "?")), "inference_failed", "?"),
        (raising(MemoryError()), "oom", "EMBED_BATCH"),
        (raising(ZeroDivisionError("by zero")), "inference_failed", "ZeroDivisionError: by zero"),
        (raising(ValueError("x" * 2_000_000)), "inference_failed", "xxx"),
        (lambda: memoryview(array("f", [1.0] * 7)), "inference_failed", "28 bytes; 32"),
        (raising(ValueError("\ud800")), "inference_failed", "ValueError"),
    ],
)
def test_whatever_an_engine_raises_is_one_requests_error(talk: Any, act: Any, code: str, word: str) -> None:
    at = talk(act)
    for _ in range(2):
        got = at.embed()
        assert (got["type"], got["req_id"], got["code"]) == ("ERR", "e", code)
        assert word in got["msg"]


def test_an_engine_may_have_nothing_to_give_when_it_is_cancelled(talk: Any) -> None:
    def act(emit: Any, cancelled: Any) -> Generated:
        while not cancelled():
            pass
        raise GenerationCancelled

    at = talk(act)
    at.stream()
    at.send({"type": "CANCEL", "req_id": "c", "target": "g"})
    assert (at.recv()["code"], at.embed()["type"]) == ("cancelled", "ERR")


def test_a_host_that_breaks_the_protocol_meanwhile_is_found_and_no_exception_crosses_the_engine(
    talk: Any,
) -> None:
    seen: list[bool] = []

    def act(emit: Any, cancelled: Any) -> Generated:
        while not cancelled():
            pass
        seen.extend((cancelled(), cancelled()))
        emit("nobody hears this")
        return Generated(text="", n_prompt=1, n_gen=0, finish_reason="cancelled")

    at = talk(act)
    at.stream()
    at.send({"type": "PING", "req_id": "p"})
    assert at.sock.recv(1) == b""
    at.thread.join(30)
    assert seen == [True, True]
    assert "PING" in str(at.failed[0])


def test_stop_while_busy_answers_first(talk: Any) -> None:
    begun, go = threading.Event(), threading.Event()

    def act() -> memoryview:
        begun.set()
        go.wait(30)
        return memoryview(array("f", [0.5] * 8))

    at = talk(act)
    at.send({"type": "EMBED_BATCH", "req_id": "e", "model_ref": at.ref, **BATCH}, i32(1))
    begun.wait(30)
    at.server.stop()
    go.set()
    assert at.recv()["type"] == "VECTORS"
    at.sock.recv(4 + 32, socket.MSG_WAITALL)
    assert at.sock.recv(1) == b""
    assert not at.failed


def test_a_host_that_is_gone_when_the_answer_comes_is_a_good_end(talk: Any) -> None:
    begun, go = threading.Event(), threading.Event()

    def act() -> memoryview:
        begun.set()
        go.wait(30)
        return memoryview(array("f", [0.5] * 8))

    at = talk(act)
    at.send({"type": "EMBED_BATCH", "req_id": "e", "model_ref": at.ref, **BATCH}, i32(1))
    begun.wait(30)
    at.sock.close()
    go.set()
    at.thread.join(30)
    assert not at.failed
