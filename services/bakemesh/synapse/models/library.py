"""The models of a node: files in its cache, manifests under their aliases.

Guarantees: an alias names a model that was read whole and understood, or does not exist; a file that is none
harms nobody (GGUF files and tokenizers are read in a process of their own, bounded in time and memory; no
engine opens anything here); what was told as ingested is there after a crash. Safe to call from threads;
ingesting blocks, for minutes where a model is large. Left out: loading (a worker does).
"""

from __future__ import annotations

import dataclasses
import shutil
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from bakemesh.artifacts import ArtifactBroken, Cache
from bakemesh.protocol.inference.errors import Code
from bakemesh.synapse.models import aliases, fake, finding
from bakemesh.synapse.models.errors import ModelRefused
from bakemesh.synapse.models.ingesting import Ingest
from bakemesh.synapse.models.manifest import Manifest
from bakemesh.synapse.models.model import Model, bytes_encoder
from bakemesh.synapse.models.vocabulary import open_vocabulary
from bakemesh.synapse.models.weights import fast_bf16

Progress = Callable[[str, int, int], None]  # stage (hash, copy, read, convert), bytes done, bytes in all

FILE, WORK = "models.json", "ingesting"
_SHARE = "min_placement_share"
_MOST_KEYS, _LONGEST_VALUE = 64, 4096


class Library:
    """`folder` has the aliases and is this library's alone. Raises AliasesDamaged, OSError."""

    def __init__(self, folder: Path, cache: Cache) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file, self._work, self._cache = folder / FILE, folder / WORK, cache
        shutil.rmtree(self._work, ignore_errors=True)
        self._work.mkdir(mode=0o700)
        self._lock = threading.Lock()
        self._manifests = aliases.load(self._file)
        self._models = {alias: self._model(alias, each) for alias, each in self._manifests.items()}

    def get(self, alias: str) -> Model | None:
        """The model of that alias."""
        return self._models.get(alias)

    def all(self) -> list[Model]:
        """Every model, by alias."""
        return [model for _, model in sorted(self._models.items())]

    def ingest(
        self,
        path: Path,
        alias: str,
        *,
        weights: str = "asis",
        config: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> Manifest:
        """Takes a file, or a folder with one model, in under `alias`, which may be there already.

        `weights`: `fastest` makes bf16 of them where this CPU runs that fastest. `config`: runtime keys of
        its LOAD, and `min_placement_share`, which is the manifest's. Raises ModelRefused, OSError.
        """
        aliases.check_alias(alias)
        known = _checked(config or {})
        share = _share(known.pop(_SHARE, None))
        if weights not in ("asis", "fastest"):
            raise ModelRefused(Code.BAD_REQUEST, f"weights {weights!r:.40}: asis or fastest is meant")
        found = finding.find(path)
        tell = progress or _nothing
        try:
            with self._cache.stage(
                found.model, hashing=partial(tell, "hash"), copying=partial(tell, "copy")
            ) as staged:
                if found.fake:
                    manifest = fake.manifest(staged.path, found.model.name, staged.digest, staged.size, known)
                else:
                    manifest = Ingest(self._cache, self._work, found, staged, known, tell).run(weights)
                manifest = dataclasses.replace(manifest, min_placement_share=share)
                staged.keep()
        except ArtifactBroken as broken:
            raise ModelRefused(Code.ARTIFACT_INVALID, str(broken)) from broken
        with self._lock:
            self._save({**self._manifests, alias: manifest})
        return manifest

    def remove(self, alias: str) -> bool:
        """Forgets the alias, and the files that no other one needs; whether it was there. Raises OSError."""
        with self._lock:
            gone = self._manifests.get(alias)
            if gone is None:
                return False
            self._save({name: each for name, each in self._manifests.items() if name != alias})
            kept = {digest for each in self._manifests.values() for digest in _digests(each)}
            for digest in _digests(gone) - kept:
                self._cache.drop(digest)
        return True

    def _save(self, manifests: dict[str, Manifest]) -> None:
        aliases.save(self._file, manifests)
        models = {
            alias: self._models[alias]
            if self._manifests.get(alias) == each and alias in self._models
            else self._model(alias, each)
            for alias, each in manifests.items()
        }
        self._manifests, self._models = manifests, models

    def _model(self, alias: str, manifest: Manifest) -> Model:
        if manifest.digest != manifest.source and not fast_bf16():
            # The state came from another machine: here the file as it came is faster.
            manifest = manifest.as_it_came(self._cache.size(manifest.source) or 0)
        path = self._cache.path(manifest.digest) or self._cache.folder / "absent"
        facts = manifest.tokenizer
        if facts.digest is None:
            return Model(alias, manifest, path, bytes_encoder)
        return Model(alias, manifest, path, partial(open_vocabulary, self._cache, facts.digest))


def _digests(manifest: Manifest) -> set[str]:
    found = {manifest.digest, manifest.source}
    return found | {manifest.tokenizer.digest} if manifest.tokenizer.digest else found


def _checked(config: Mapping[str, str]) -> dict[str, str]:
    if len(config) > _MOST_KEYS:
        raise ModelRefused(Code.CONFIG_INVALID, f"{len(config)} runtime keys; {_MOST_KEYS} are read at most")
    for key, value in config.items():
        if not isinstance(key, str) or not isinstance(value, str) or len(key) + len(value) > _LONGEST_VALUE:
            raise ModelRefused(Code.CONFIG_INVALID, f"config.{key!s:.80}: a text is meant, not {value!r:.80}")
    return dict(config)


def _share(value: str | None) -> float | None:
    if value is None:
        return None
    try:
        share = float(value)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ModelRefused(
            Code.CONFIG_INVALID, f"config.{_SHARE} {value!r:.40}: a number from 0 to 1 is meant"
        )
    return share


def _nothing(stage: str, done: int, total: int) -> None:
    del stage, done, total
