"""Every input that a fuzzer found worth keeping, and every one that once broke something, replayed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.targets import TARGETS

FILES = sorted(path for path in (Path(__file__).parent / "corpus").glob("*/*"))


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_every_target_has_a_corpus_that_is_small(target: str) -> None:
    own = [path.stat().st_size for path in FILES if path.parent.name == target]
    assert len(own) >= 5
    assert sum(own) < 100_000


@pytest.mark.parametrize("path", FILES, ids=[f"{path.parent.name}/{path.name}" for path in FILES])
def test_replay(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())
