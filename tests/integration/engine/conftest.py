"""Models made once a run; one worker a file, so that no refusal may harm what comes after it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support import models
from support.engine import need_engine, worker
from support.workerhost import Host


@pytest.fixture(scope="session", autouse=True)
def engine() -> None:
    """All of this folder needs llama.cpp."""
    need_engine()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sound models, by name."""
    made = tmp_path_factory.mktemp("models")
    models.bert(made / "mean.gguf")
    models.bert(made / "cls.gguf", "cls")
    models.bert(made / "rank.gguf", "rank", segments=1)
    models.bert(made / "rank-two-segments.gguf", "rank", segments=2)
    models.bert(made / "rank-without-head.gguf", "rank", segments=1, head=False)
    models.alphabet(made / "alphabet.gguf")
    models.babble(made / "babble.gguf")
    models.qwen3(made / "qwen3.gguf")
    models.qwen3(made / "qwen3-bare.gguf", head=False)
    return made


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    """A worker."""
    with worker() as made:
        yield made
