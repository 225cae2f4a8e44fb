"""A kept prompt: the next one starts behind what both have in common, and its text is the cold one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bakemesh.worker.engines.base import Options
from support import models
from support.engine import generate, load
from support.workerhost import Host

pytestmark = pytest.mark.engine


def prompts() -> list[list[int]]:
    """Conversations that go on, go back and part at every kind of place."""
    rng = np.random.default_rng(5)
    base = [models.BOS, *rng.integers(259, len(models.CHARACTERS), 400).tolist()]
    other = [models.BOS, *rng.integers(259, len(models.CHARACTERS), 90).tolist()]
    return [
        base[:200],
        base[:260],
        base,
        base[:128],
        base[:129],
        base[:128],
        [*base[:193], *other[1:]],
        base[:400],
        other,
        [*other, *base[1:64]],
        base[:1],
    ]


def test_text_after_a_kept_prefix_is_the_text_from_cold(host: Host, folder: Path) -> None:
    warm = load(host, folder / "babble.gguf")
    for ids in prompts():
        cold = load(host, folder / "babble.gguf")
        assert generate(host, warm, ids, 40)["text"] == generate(host, cold, ids, 40)["text"]
        host.ask("UNLOAD", model_ref=cold)


def test_only_what_is_new_is_read(folder: Path) -> None:
    from bakemesh.worker.engines.llama import make
    from bakemesh.worker.engines.llama.model import PREFILL_TOKENS

    engine = make()
    path = folder / "babble.gguf"
    with path.open("rb") as file:
        model = engine.load(file.fileno(), str(path), "gguf", {})
    context = model.generation()._context
    read: list[int] = []
    decode = context.decode

    def counting() -> int:
        read.append(int(context.batch.raw.n_tokens))
        return int(decode())

    context.decode = counting

    def tokens_read(ids: list[int]) -> int:
        read.clear()
        data = np.asarray(ids, np.int32).data
        engine.generate(model, data, Options(max_tokens=1), None, lambda: False)
        return sum(read)

    first = prompts()[2][: 4 * PREFILL_TOKENS]
    assert tokens_read(first) == len(first)
    assert tokens_read([*first, 300, 301]) == 2
    assert tokens_read([*first[: 2 * PREFILL_TOKENS + 3], 302]) == 4
    assert tokens_read(first[: 2 * PREFILL_TOKENS]) == PREFILL_TOKENS  # the last token is always computed
    assert tokens_read([302, *first]) == len(first) + 1
    engine.unload(model)
