"""What stands in examples/, imported by its path: tests use what users are given, and not a copy of it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[2] / "examples"


def load(path: str) -> ModuleType:
    """The program at `path` below examples/, as a module."""
    spec = importlib.util.spec_from_file_location(f"examples_{Path(path).stem}", FOLDER / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
