"""A real worker on llama.cpp, asked by the stranger's host; without an engine its tests are skipped.

Where BAKEMESH_ENGINE is `required` they fail instead.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bakemesh.workerpool.settings import OUR_WORKER
from support.workerhost import Host, i32

REQUIRED = os.environ.get("BAKEMESH_ENGINE") == "required"


def need_engine() -> None:
    """Skips the test where llama.cpp is not installed; fails it where it is required."""
    if importlib.util.find_spec("llama_cpp") is not None:
        return
    reason = "llama.cpp is not installed: make engine"
    if REQUIRED:
        pytest.fail(f"BAKEMESH_ENGINE=required, and {reason}")
    pytest.skip(reason)


def worker(**env: str) -> Host:
    """A worker process with the llama engine, to be entered."""
    return Host(engine="llama", env=env)


def memory_kib(pid: int, name: str) -> int:
    """A line of /proc/PID/status."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def limited(most_kib: int) -> tuple[str, ...]:
    """The command of a worker that may not have more address space than that."""
    # One arena: each further one takes 64 MiB of what the limit counts, or not, as threads happen to meet.
    script = f'ulimit -v {most_kib}; exec env MALLOC_ARENA_MAX=1 "$@"'
    return ("/bin/sh", "-c", script, "sh", *OUR_WORKER)


def try_load(host: Host, path: Path, **config: str) -> dict[str, Any]:
    """The answer to a LOAD of a GGUF file with its right digest."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    got, _ = host.try_load(path, digest, config, format="gguf")
    return got


def load(host: Host, path: Path, **config: str) -> str:
    """Loads it; its model_ref."""
    got = try_load(host, path, **config)
    assert got["type"] == "LOADED", got
    return str(got["model_ref"])


def vectors(
    host: Host, ref: str, items: Sequence[Sequence[int]], pooling: str = "mean", normalize: bool = True
) -> NDArray[np.float32]:
    """Rows of an EMBED_BATCH that is answered."""
    got, data = host.embed(ref, *items, pooling=pooling, normalize=normalize)
    assert got["type"] == "VECTORS", got
    assert data is not None
    return np.frombuffer(data, "<f4").reshape(got["n"], got["dims"])


def rerank(
    host: Host, ref: str, query: Sequence[int], documents: Sequence[Sequence[int]]
) -> tuple[dict[str, Any], bytes | None]:
    """The answer to a RERANK."""
    return host.ask(
        "RERANK",
        i32(*query, *(each for document in documents for each in document)),
        model_ref=ref,
        query_n_tokens=len(query),
        candidates=[{"n_tokens": len(document)} for document in documents],
    )


def generate(host: Host, ref: str, ids: Sequence[int], max_tokens: int = 64, **fields: Any) -> dict[str, Any]:
    """The answer to a GENERATE."""
    got, _ = host.ask("GENERATE", i32(*ids), model_ref=ref, max_tokens=max_tokens, **fields)
    return got


def stream(
    host: Host, ref: str, ids: Sequence[int], max_tokens: int = 64, **fields: Any
) -> tuple[list[str], dict[str, Any]]:
    """The pieces and the end of a GENERATE_STREAM."""
    host.ask_only("GENERATE_STREAM", i32(*ids), model_ref=ref, max_tokens=max_tokens, **fields)
    pieces: list[str] = []
    while (got := host.recv())["type"] == "TOKEN":
        assert got["index"] == len(pieces)
        pieces.append(got["text"])
    return pieces, got
