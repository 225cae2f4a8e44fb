"""Runs `inspecting` in a process of its own, and believes it little.

Guarantees: it ends, with what was found or with ModelRefused, whatever the file does to the process that
reads it; a process that says nothing for `silence_s` is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

from bakemesh.protocol.inference.errors import Code
from bakemesh.synapse.models.errors import ModelRefused

COMMAND = (sys.executable, "-m", "bakemesh.synapse.models.inspecting")
SILENCE_S = 300.0
_LONGEST_LINE = 1 << 24


def inspect(
    asked: dict[str, Any],
    tell: Callable[[str, int, int], None],
    *,
    command: tuple[str, ...] = COMMAND,
    silence_s: float = SILENCE_S,
) -> dict[str, Any]:
    """What the process found; `tell` hears of its progress. Raises ModelRefused."""
    name = asked["file"]
    with tempfile.TemporaryFile() as errors, _process(command, errors) as process:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(asked).encode() + b"\n")
            process.stdin.close()
        for line in _lines(process, silence_s, name):
            said = json.loads(line)
            if "progress" in said:
                tell(*said["progress"])
            elif "refused" in said:
                code, message = said["refused"]
                raise ModelRefused(Code(code), f"{name}: {message}")
            else:
                found: dict[str, Any] = said["found"]
                return found
        process.wait()
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - 500))
        last = errors.read().decode("utf-8", "replace").strip()
        raise ModelRefused(
            Code.ARTIFACT_INVALID,
            f"{name}: the process that read it ended with {process.returncode}: {last}",
        )


@contextlib.contextmanager
def _process(command: tuple[str, ...], errors: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=environment,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def _lines(process: subprocess.Popen[bytes], silence_s: float, name: str) -> Iterator[bytes]:
    assert process.stdout is not None
    fd, rest = process.stdout.fileno(), b""
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        until = time.monotonic() + silence_s
        while True:
            if not selector.select(max(0.0, until - time.monotonic())):
                raise ModelRefused(
                    Code.ARTIFACT_INVALID, f"{name}: reading it came to nothing in {silence_s:.0f} s"
                )
            if not (piece := os.read(fd, 1 << 16)):
                return
            *whole, rest = (rest + piece).split(b"\n")
            if len(rest) > _LONGEST_LINE:
                raise ModelRefused(Code.ARTIFACT_INVALID, f"{name}: more is said of it than is believed")
            if whole:
                until = time.monotonic() + silence_s
            yield from whole
