"""A GGUF on its way into the library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bakemesh.artifacts import Cache, Staged
from bakemesh.protocol.inference.errors import Code
from bakemesh.synapse.models.errors import ModelRefused
from bakemesh.synapse.models.finding import Found
from bakemesh.synapse.models.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Ingest:
    """One file, staged in the cache."""

    cache: Cache
    work: Path
    found: Found
    staged: Staged
    config: Mapping[str, str]
    tell: Callable[[str, int, int], None]

    def run(self, weights: str) -> Manifest:
        """Raises ModelRefused, OSError."""
        raise ModelRefused(Code.ARTIFACT_INVALID, f"{self.found.model}: only fake models so far ({weights})")
