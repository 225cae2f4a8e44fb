"""What the link to an engine worker costs: a request that computes nothing, and a tensor of 1 MiB.

Peers, over the same kind of socket: a blocking echo that reads and writes the same JSON in frames, and the
same with 1 MiB behind it, received into the same memory each time. Ours: the real worker loop, asked by a
blocking host, and through the pool on asyncio. The engine computes nothing: its vectors are there before they
are asked for. Told too: how long from a worker's kill -9 to the next answer.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import socket
import statistics
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import common

from bakemesh.protocol.worker import headers as h
from bakemesh.protocol.worker.ends import HostEnd, WorkerEnd
from bakemesh.protocol.worker.frames import MAX_FRAME
from bakemesh.worker.engines.base import Cancelled, Emit, Generated, ModelFacts, Options
from bakemesh.worker.requests import Desk
from bakemesh.worker.serving import Server
from bakemesh.worker.transport import SocketChannel, connect
from bakemesh.workerpool import Artifact, ModelKey, Pool, Settings, Share, WorkerPoolError
from bakemesh.workerpool.settings import OUR_WORKER

DIMS = 1 << 18
TENSOR = bytes(4 * DIMS)  # 1 MiB
NONCE = "5" * 32
BARE = """
import socket, struct, sys
sock = socket.socket(socket.AF_UNIX)
sock.connect(sys.argv[sys.argv.index("--socket") + 1])
text = b'{"type":"HELLO"}'
sock.sendall(struct.pack("<I", len(text)) + text)
sock.recv(1)
"""
PONG = {"type": "PONG", "req_id": "", "rss_mb": 80.5, "models_loaded": 1}


class StillEngine:
    """Answers what it has, whatever it is asked."""

    name, version, build_flags = "still", "1", {"computes": "nothing"}
    types = h.ADDED_TYPES
    formats, switches = ("fake",), ()
    facts = ModelFacts(
        architecture="still", dims=DIMS, n_vocab=99, n_ctx_train=64, pooling="mean", rank_head=False
    )

    @property
    def dims(self) -> int:
        """It is its own model."""
        return DIMS

    def load(self, path_fd: int, path: str, format: str, config: Mapping[str, str]) -> StillEngine:  # noqa: A002
        """See Engine."""
        return self

    def embed(
        self, model: Any, pooling: str, normalize: bool, counts: Sequence[int], ids: memoryview
    ) -> memoryview:
        """See Engine."""
        return memoryview(TENSOR)

    def rerank(self, model: Any, query_n: int, counts: Sequence[int], ids: memoryview) -> memoryview:
        """See Engine."""
        return memoryview(TENSOR)[: 4 * len(counts)]

    def generate(
        self, model: Any, ids: memoryview, options: Options, emit: Emit | None, cancelled: Cancelled
    ) -> Generated:
        """See Engine."""
        return Generated(text="", n_prompt=len(ids), n_gen=0, finish_reason="stop")

    def info(self, model: Any) -> ModelFacts:
        """See Engine."""
        return self.facts

    def unload(self, model: Any) -> None:
        """See Engine."""


# -- the processes


def serve_worker(path: str, nonce: str) -> None:
    """The real worker loop over the still engine."""
    engine = StillEngine()
    said = {"name": engine.name, "version": engine.version, "build_flags": engine.build_flags}
    hello = h.Hello(
        v=1, nonce=nonce, engine=said, pid=os.getpid(), max_frame=MAX_FRAME, types=tuple(engine.types)
    )
    Server(connect(path), WorkerEnd(hello), Desk(engine)).run()


def serve_echo(path: str) -> None:
    """Reads a request's JSON, writes the JSON of an answer with its req_id, as long as the real one."""
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    answers = {"PING": dict(PONG), "MODEL_INFO": {"type": "MODEL", "req_id": "", **_facts()}}
    while head := _exactly(sock, 4):
        asked = json.loads(_exactly(sock, *struct.unpack("<I", head)))
        answer = answers[asked["type"]]
        answer["req_id"] = asked["req_id"]
        text = json.dumps(answer, separators=(",", ":")).encode()
        sock.sendall(struct.pack("<I", len(text)) + text)


def serve_tensor(path: str) -> None:
    """Reads a request's JSON, writes the JSON of an answer, and 1 MiB."""
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    while head := _exactly(sock, 4):
        asked = json.loads(_exactly(sock, *struct.unpack("<I", head)))
        answer = {"type": "VECTORS", "req_id": asked["req_id"], "dims": DIMS, "n": 1, "ids": ["0"]}
        text = json.dumps(answer, separators=(",", ":")).encode()
        sock.sendall(struct.pack("<I", len(text)) + text + struct.pack("<I", len(TENSOR)))
        sock.sendall(TENSOR)


def _facts() -> dict[str, Any]:
    facts = StillEngine.facts
    return {name: getattr(facts, name) for name in facts.__slots__ if getattr(facts, name) is not None}


def _exactly(sock: socket.socket, count: int) -> bytes:
    got = bytearray()
    while len(got) < count:
        more = sock.recv(count - len(got))
        if not more:
            return b""
        got += more
    return bytes(got)


# -- the sides


class Child:
    """A role of this bench at the other end of a socket."""

    def __init__(self, where: Path, name: str) -> None:
        path = where / f"{name}.sock"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen(1)
            argv = [sys.executable, sys.argv[0], "--role", name, str(path), NONCE]
            self.pid = os.posix_spawn(sys.executable, argv, os.environ)
            listener.settimeout(common.READY_S)
            self.sock, _ = listener.accept()
        self.sock.setblocking(True)

    def close(self) -> None:
        """Ends it."""
        self.sock.close()
        os.waitpid(self.pid, 0)


def blocking_echo(child: Child, request: dict[str, Any]) -> Callable[[], None]:
    """One round trip of the peer: as few calls as it can be done with."""
    sock, asked = child.sock, dict(request)
    number = 0

    def trip() -> None:
        nonlocal number
        number += 1
        asked["req_id"] = str(number)
        text = json.dumps(asked, separators=(",", ":")).encode()
        sock.sendall(struct.pack("<I", len(text)) + text)
        size = struct.unpack("<I", _exactly(sock, 4))
        assert json.loads(_exactly(sock, *size))["req_id"] == asked["req_id"]

    return trip


def blocking_ping(child: Child) -> Callable[[], None]:
    """One PING to the real worker; what the host does is the peer's, so that the worker alone differs."""
    end, channel = HostEnd(NONCE), SocketChannel(child.sock)
    while end.hello is None:
        end.fed(channel.recv_into(end.room()))
        for _ in end.packets():
            pass
    channel.send(end.ack())
    return blocking_echo(child, {"type": "PING", "req_id": ""})


def bare_tensor(child: Child) -> Callable[[], None]:
    """The same request and answer, and 1 MiB into the same memory again and again."""
    room = memoryview(bytearray(TENSOR))
    asked = {
        "type": "EMBED_BATCH",
        "req_id": "",
        "model_ref": "still:0",
        "pooling": "mean",
        "normalize": True,
        "items": [{"id": "0", "n_tokens": 1}],
    }
    trip = blocking_echo(child, asked)

    def move() -> None:
        trip()
        _exactly(child.sock, 4)
        left = room
        while left:
            left = left[child.sock.recv_into(left) :]

    return move


def p50_us(trip: Callable[[], None], count: int) -> float:
    """The median of so many, after some that warm up."""
    for _ in range(50):
        trip()
    took = []
    for _ in range(count):
        began = time.perf_counter_ns()
        trip()
        took.append(time.perf_counter_ns() - began)
    return statistics.median(took) / 1000


async def p50_us_of(ask: Callable[[], Any], count: int) -> float:
    """The same of something that is awaited."""
    for _ in range(50):
        await ask()
    took = []
    for _ in range(count):
        began = time.perf_counter_ns()
        await ask()
        took.append(time.perf_counter_ns() - began)
    return statistics.median(took) / 1000


async def killed_to_serving(pool: Pool, key: ModelKey, share: Share) -> float:
    """Milliseconds from a worker's kill -9 to the next answer."""
    pid = pool.health().lanes[0].pid
    assert pid is not None
    began = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    while True:
        with contextlib.suppress(WorkerPoolError):  # the one that the kill met
            await pool.embed(key, share)
        if pool.health().lanes[0].pid != pid:
            return (time.perf_counter() - began) * 1000


def started_to_hello(where: Path, command: Sequence[str]) -> float:
    """Milliseconds from the start of this command to the whole of its HELLO; it is killed then."""
    path = where / "hello.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1)
        listener.settimeout(common.READY_S)
        argv = [*command, "--socket", str(path), "--nonce", NONCE]
        began = time.perf_counter()
        pid = os.posix_spawn(argv[0], argv, os.environ)
        try:
            sock, _ = listener.accept()
            with sock:
                _exactly(sock, *struct.unpack("<I", _exactly(sock, 4)))
                return (time.perf_counter() - began) * 1000
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            path.unlink()


def starts(where: Path) -> dict[str, Callable[[], Any]]:
    """Everybody who is started."""
    commands = {
        "bare": (sys.executable, "-c", BARE),
        "fake engine": (*OUR_WORKER, "--engine", "fake"),
    }
    if importlib.util.find_spec("llama_cpp") is not None:
        commands["llama engine"] = (*OUR_WORKER, "--engine", "llama")

    def measured(command: Sequence[str]) -> Callable[[], Any]:
        async def once() -> float:
            return started_to_hello(where, command)

        return once

    return {name: measured(command) for name, command in commands.items()}


async def main(count: int, rounds: int) -> None:
    """Prints what was found."""
    report = common.Report("worker_link")
    async with common.folder() as where:
        echo, worker, tensor = (Child(where, name) for name in ("echo", "worker", "tensor"))
        file = where / "model"
        file.write_bytes(b"still")
        settings = Settings(
            runtime_dir=where / "run", command=(sys.executable, sys.argv[0], "--role", "worker"), budget=None
        )
        try:
            async with Pool(settings) as pool:
                key = (await pool.load(Artifact(path=file, digest="", format="fake"), UNVERIFIED)).key
                one = Share([1], bytes(4))
                few = max(20, count // 10)
                sync: dict[str, tuple[Callable[[], None], int]] = {
                    "echo": (blocking_echo(echo, {"type": "PING", "req_id": ""}), count),
                    "worker": (blocking_ping(worker), count),
                    "echo of MODEL_INFO": (
                        blocking_echo(echo, {"type": "MODEL_INFO", "req_id": "", "model_ref": "llama:0"}),
                        count,
                    ),
                    "bare tensor": (bare_tensor(tensor), few),
                }
                waiting: dict[str, tuple[Callable[[], Any], int]] = {
                    "pool": (lambda: pool.info(key), count),
                    "pool's tensor": (lambda: pool.embed(key, one), few),
                }
                found = await common.rounds(
                    rounds,
                    {name: _sync(*each) for name, each in sync.items()}
                    | {name: _waited(*each) for name, each in waiting.items()},
                )
        finally:
            for each in (echo, worker, tensor):
                each.close()
        hellos = await common.rounds(2 * rounds + 1, starts(where))
        # Of a worker as it is shipped: the still one above imports this whole bench first.
        async with Pool(replace(settings, command=(*OUR_WORKER, "--engine", "fake"))) as pool:
            key = (await pool.load(Artifact(path=file, digest="", format="fake"), UNVERIFIED)).key
            kills = [await killed_to_serving(pool, key, one) for _ in range(rounds)]
    ratio = common.ratio
    report.claim(
        "empty request, the worker alone, in echoes", ratio(found["worker"], found["echo"]), at_most=1.5
    )
    report.claim(
        "empty request, through the pool, in echoes",
        ratio(found["pool"], found["echo of MODEL_INFO"]),
        at_most=3,
    )
    report.claim(
        "1 MiB of vectors through the pool, rate of the bare socket's",
        ratio(found["bare tensor"], found["pool's tensor"]),
        at_least=0.7,
    )
    # Told: the tensor by itself, above the same exchange without one. A difference, so it scatters.
    moving = {
        side: [whole - empty for whole, empty in zip(found[tensor], found[bare], strict=True)]
        for side, tensor, bare in (
            ("ours", "pool's tensor", "pool"),
            ("peer", "bare tensor", "echo of MODEL_INFO"),
        )
    }
    report.claim("the same, the exchange around it taken off", ratio(moving["peer"], moving["ours"]))
    report.claim(
        "start to HELLO, fake engine, of a bare interpreter's",
        ratio(hellos["fake engine"], hellos["bare"]),
        at_most=4,
    )
    for name, took in hellos.items():
        report.claim(f"start to HELLO, {name}, ms", statistics.median(took))
    report.claim("kill -9 to the next answer, ms (no model to load)", statistics.median(kills))
    report.numbers = {"p50_us": found, "started_to_hello_ms": hellos, "killed_to_serving_ms": kills}
    report.finish()


UNVERIFIED = {"allow_unverified": "yes"}


def _sync(trip: Callable[[], None], count: int) -> Callable[[], Any]:
    async def measured() -> float:
        return p50_us(trip, count)

    return measured


def _waited(ask: Callable[[], Any], count: int) -> Callable[[], Any]:
    async def measured() -> float:
        return await p50_us_of(ask, count)

    return measured


if __name__ == "__main__":
    if "--socket" in sys.argv:  # as the pool starts it
        told = dict(zip(sys.argv, sys.argv[1:], strict=False))
        serve_worker(told["--socket"], told["--nonce"])
        sys.exit(0)
    args = common.arguments(__doc__, count=1000, rounds=9)
    if args.role == "worker":
        serve_worker(*args.operands)
    elif args.role == "echo":
        serve_echo(args.operands[0])
    elif args.role == "tensor":
        serve_tensor(args.operands[0])
    else:
        common.run(main(args.count, args.rounds), common.loops()[-1])
