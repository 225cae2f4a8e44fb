"""A host of engine workers as a stranger would write it: from the seed alone, on json, struct and a socket.

It shares no code with ours, so that a worker that passes here speaks the protocol and not our reading of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

WAIT_S = 60.0
MAX_FRAME = 64 << 20


def i32(*ids: int) -> bytes:
    """Token ids as they go on the wire."""
    return struct.pack(f"<{len(ids)}i", *ids)


def f32(data: bytes) -> tuple[float, ...]:
    """Numbers as they come."""
    return struct.unpack(f"<{len(data) // 4}f", data)


class Host:
    """One worker process and its connection. `with Host() as host:` waits for HELLO and acknowledges it."""

    def __init__(
        self,
        *,
        max_frame: int = MAX_FRAME,
        engine: str = "fake",
        ack: bool = True,
        ack_header: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
        command: Sequence[str] = (sys.executable, "-m", "bakemesh.worker"),
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="wk-", dir="/tmp"))
        self.path = self.folder / "w.sock"
        self.nonce = secrets.token_hex(16)
        self._engine, self._ack, self._command = engine, ack, command
        self._ack_header = ack_header or {"v": 1, "accept": True, "max_frame": max_frame}
        self._env = {**os.environ, "SYNAPSE_WORKER_ID": "w1", **(env or {})}
        self._n = 0
        self.hello: dict[str, Any] = {}

    def __enter__(self) -> Self:
        listener = socket.socket(socket.AF_UNIX)
        listener.settimeout(WAIT_S)
        listener.bind(str(self.path))
        listener.listen(1)
        with open(self.folder / "out", "wb") as out, open(self.folder / "err", "wb") as err:
            argv = [
                *self._command,
                "--socket",
                str(self.path),
                "--nonce",
                self.nonce,
                "--engine",
                self._engine,
            ]
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=self._env
            )
        try:
            self.sock, _ = listener.accept()
        except TimeoutError:
            self.process.kill()
            raise AssertionError(f"the worker did not come: {self.errors()}") from None
        finally:
            listener.close()
        self.sock.settimeout(WAIT_S)
        if self._ack:
            self.hello = self.recv()
            self.send(self._ack_header)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sock.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder)

    # -- the wire

    def send(self, header: dict[str, Any], *raw: bytes) -> None:
        """A header and its raw frames."""
        for payload in (json.dumps(header).encode(), *raw):
            self.sock.sendall(struct.pack("<I", len(payload)))
            self.sock.sendall(payload)

    def recv_frame(self) -> bytes:
        """The next frame. EOFError at a clean end."""
        size = self._exactly(4)
        if not size:
            raise EOFError
        return self._exactly(*struct.unpack("<I", size))

    def recv(self) -> dict[str, Any]:
        """The next control frame."""
        got = json.loads(self.recv_frame())
        assert isinstance(got, dict)
        return got

    def ended(self) -> bool:
        """Waits for the end of the connection; whether it was one between frames."""
        try:
            return not self._exactly(4)
        except ConnectionResetError:
            return True

    def _exactly(self, size: int) -> bytes:
        found = bytearray(size)
        view, at = memoryview(found), 0
        while at < size:
            count = self.sock.recv_into(view[at:])
            if not count:
                assert not at, f"the connection ended after {at} of {size} bytes"
                return b""
            at += count
        return bytes(found)

    # -- requests

    def ask(self, kind: str, *raw: bytes, **fields: Any) -> tuple[dict[str, Any], bytes | None]:
        """One request and its answer, under its own req_id."""
        req_id = self.ask_only(kind, *raw, **fields)
        got = self.recv()
        assert got.get("req_id") == req_id, got
        return got, self.recv_frame() if got["type"] in ("VECTORS", "SCORES") else None

    def ask_only(self, kind: str, *raw: bytes, **fields: Any) -> str:
        """Sends a request; its req_id."""
        self._n += 1
        req_id = f"q{self._n}"
        extra = {"raw_frames": len(raw)} if kind == "GENERATE_STREAM" else {}
        self.send({"type": kind, "req_id": req_id, **extra, **fields}, *raw)
        return req_id

    def file(self, content: bytes = b"a model") -> tuple[Path, str]:
        """A file to load, and its digest."""
        path = self.folder / f"model-{len(list(self.folder.iterdir()))}"
        path.write_bytes(content)
        return path, hashlib.sha256(content).hexdigest()

    def load(self, **config: str) -> str:
        """Loads a file; its model_ref."""
        path, digest = self.file()
        got, _ = self.try_load(path, digest, config)
        assert got["type"] == "LOADED", got
        return str(got["model_ref"])

    def try_load(
        self,
        path: Path | str,
        digest: str,
        config: dict[str, Any] | None = None,
        format: str = "fake",  # noqa: A002
    ) -> tuple[dict[str, Any], bytes | None]:
        """The answer to a LOAD."""
        return self.ask(
            "LOAD",
            artifact_path=str(path),
            artifact_digest=digest,
            format=format,
            runtime_config=config or {},
        )

    def embed(self, ref: str, *items: Sequence[int], **fields: Any) -> tuple[dict[str, Any], bytes | None]:
        """The answer to an EMBED_BATCH of these items."""
        given = {
            "model_ref": ref, "pooling": "mean", "normalize": True,
            "items": [{"id": str(n), "n_tokens": len(each)} for n, each in enumerate(items)],
        }  # fmt: skip
        return self.ask("EMBED_BATCH", i32(*(id_ for each in items for id_ in each)), **(given | fields))

    # -- the process

    def wait(self) -> int:
        """Its exit code."""
        return self.process.wait(WAIT_S)

    def errors(self) -> str:
        """What it wrote to stderr."""
        return (self.folder / "err").read_text(errors="replace")

    def output(self) -> bytes:
        """What it wrote to stdout."""
        return (self.folder / "out").read_bytes()
