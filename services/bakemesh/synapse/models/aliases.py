"""The aliases of a library, in a file: written anew beside itself, then renamed.

A file that cannot be read is not written over: the library says so, and somebody looks at it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from bakemesh.protocol.inference.errors import Code
from bakemesh.synapse.models.errors import ModelRefused
from bakemesh.synapse.models.manifest import Manifest

ALIAS = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VERSION = 1


class AliasesDamaged(Exception):
    """Raised when the file of aliases is there and is none of ours."""


def check_alias(alias: str) -> None:
    """Raises ModelRefused for what cannot be an alias: it becomes a token of a subject."""
    if ALIAS.fullmatch(alias) is None:
        raise ModelRefused(
            Code.BAD_REQUEST, f"{alias!r:.80} is no alias: 1 to 64 letters, digits, _ and - are meant"
        )


def load(path: Path) -> dict[str, Manifest]:
    """All aliases; none where there is no file. Raises AliasesDamaged, OSError."""
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise AliasesDamaged(
            f"{path} is no JSON ({error}); restore it, or remove it and ingest anew"
        ) from error
    try:
        if found["version"] != _VERSION:
            raise AliasesDamaged(f"{path} has version {found['version']!r}; this software reads {_VERSION}")
        return {alias: Manifest.from_json(each) for alias, each in found["models"].items()}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise AliasesDamaged(f"{path}: {error}; restore it, or remove it and ingest anew") from error


def save(path: Path, models: Mapping[str, Manifest]) -> None:
    """Raises OSError."""
    said = {"version": _VERSION, "models": {alias: models[alias].to_json() for alias in sorted(models)}}
    beside = path.with_name(f".{path.name}.new")
    with beside.open("w", encoding="utf-8") as out:
        json.dump(said, out, ensure_ascii=False, indent=1)
        out.flush()
        os.fsync(out.fileno())
    beside.replace(path)
