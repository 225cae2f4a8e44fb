"""Real vocabularies: GGUF files without weights, and chat templates, from llama-cpp-python's source archive.

The version is the engine's own, so that what is compared is what runs.
"""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path

from support import packages

PACKAGE = "llama-cpp-python==0.3.36"
_MODELS = "vendor/llama.cpp/models/"


def folder() -> Path:
    """Where they are, fetched once a machine. Raises SubprocessError."""
    return packages.once("llama-cpp-vocabularies-0.3.36", _make)


def gguf(name: str) -> Path:
    """A vocabulary: `bert-bge`, `gpt-2`, …"""
    return folder() / f"ggml-vocab-{name}.gguf"


def templates() -> list[Path]:
    """Chat templates of many models."""
    return sorted(folder().glob("*.jinja"))


def _make(into: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        (archive,) = packages.download(Path(place), PACKAGE, source=True)
        with tarfile.open(archive) as packed:
            for member in packed:
                if _MODELS in member.name and member.isfile() and member.name.endswith((".gguf", ".jinja")):
                    file = packed.extractfile(member)
                    assert file is not None
                    (into / Path(member.name).name).write_bytes(file.read())
