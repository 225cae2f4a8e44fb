"""A GGUF on its way into the library: read elsewhere, kept here."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bakemesh.artifacts import Cache, Staged
from bakemesh.synapse.models import isolating
from bakemesh.synapse.models.finding import Found
from bakemesh.synapse.models.inspecting import VOCABULARY, WEIGHTS
from bakemesh.synapse.models.manifest import Manifest
from bakemesh.synapse.models.templates import LONGEST_TEMPLATE, problem_of
from bakemesh.synapse.models.weights import fast_bf16


@dataclass(frozen=True, slots=True)
class Ingest:
    """One file, staged in the cache. `work`: a folder on the cache's disk for what is made of it."""

    cache: Cache
    work: Path
    found: Found
    staged: Staged
    config: Mapping[str, str]
    tell: Callable[[str, int, int], None]

    def run(self, weights: str) -> Manifest:
        """Raises ModelRefused, OSError."""
        with tempfile.TemporaryDirectory(dir=self.work) as folder:
            into = Path(folder)
            read = isolating.inspect(
                {
                    "path": str(self.staged.path),
                    "file": self.found.model.name,
                    "beside": None if self.found.tokenizer is None else str(self.found.tokenizer),
                    "config": dict(self.config),
                    "into": str(into),
                    "bf16": weights == "fastest" and fast_bf16(),
                },
                self.tell,
            )
            return self._manifest(read, into)

    def _manifest(self, read: dict[str, Any], into: Path) -> Manifest:
        entries = {
            **read,
            "source": self.staged.digest,
            "digest": self.staged.digest,
            "bytes": self.staged.size,
            "format": "gguf",
            "template_problem": None,
        }
        template = entries["template"] = self._template() or read["template"]
        entries["tokenizer"] = {**read["tokenizer"], "digest": self._keep(into / VOCABULARY)}
        if entries.pop("converted"):
            entries["bytes"] = (into / WEIGHTS).stat().st_size
            entries["digest"] = self._keep(into / WEIGHTS)
            entries["weights"] = f"bf16 of {read['weights']}"
        if template is not None:
            entries["template_problem"] = problem_of(template, read["texts"])
        return Manifest.from_json(entries)

    def _template(self) -> str | None:
        """What lies beside the model goes before what is in it."""
        path = self.found.template
        if path is None:
            return None
        with path.open("rb") as file:
            return file.read(LONGEST_TEMPLATE + 1).decode("utf-8", "replace")

    def _keep(self, file: Path) -> str:
        with self.cache.stage(file) as staged:
            staged.keep()
            staged_path = self.cache.path(staged.digest)
            assert staged_path is not None
            staged_path.chmod(0o440)  # ours alone: the other link is about to go
            return staged.digest
