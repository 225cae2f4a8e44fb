"""Reads a model's file, in a process of its own (see `isolating`).

    stdin    {"path", "file", "beside", "config", "into", "bf16"}
    stdout   {"progress": [stage, done, total]}*, then {"found": {…}} or {"refused": [code, message]}

Into the folder `into` it writes the vocabulary (VOCABULARY) and, where `bf16` asks for it and there is
something to convert, the weights (WEIGHTS). A file that would keep it busy or fill the memory meets the
limits that it sets to itself first.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bakemesh.protocol.inference.errors import Code
from bakemesh.synapse.models import judging, kinds, weights
from bakemesh.synapse.models.errors import ModelRefused
from bakemesh.synapse.models.header import HeaderBroken, read
from bakemesh.synapse.models.manifest import TokenizerFacts

VOCABULARY, WEIGHTS = "tokenizer.json", "weights.gguf"
MOST_MEMORY = 4 << 30  # a vocabulary of 262,144 words takes 0.9 GiB
MOST_CPU_S = 1800
_TELL_EVERY_S = 0.2

Tell = Callable[[str, int, int], None]


def main() -> None:
    """One file, then the end."""
    _limit()
    asked = json.loads(sys.stdin.readline())
    told = 0.0

    def tell(stage: str, done: int, total: int) -> None:
        nonlocal told
        if done == total or time.monotonic() - told >= _TELL_EVERY_S:
            told = time.monotonic()
            _say({"progress": [stage, done, total]})

    try:
        _say({"found": inspect(asked, tell)})
    except ModelRefused as refused:
        _say({"refused": [str(refused.code), refused.message]})
    except HeaderBroken as broken:
        _say({"refused": [str(Code.ARTIFACT_INVALID), str(broken)]})
    except MemoryError:
        _say({"refused": [str(Code.ARTIFACT_INVALID), f"it takes more than {MOST_MEMORY >> 30} GiB to read"]})


def inspect(asked: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """What Manifest is made of. Raises ModelRefused, HeaderBroken, OSError."""
    from bakemesh.synapse.models import building

    path, into = Path(asked["path"]), Path(asked["into"])
    size = path.stat().st_size
    tell("read", 0, size)
    header = read(path)
    judged = judging.judge(header, asked["config"], asked["file"])
    vocabulary = kinds.vocabulary(header)
    beside = Path(asked["beside"]) if asked["beside"] else None
    built = building.beside(beside, vocabulary) if beside else building.build(vocabulary)
    built.save(str(into / VOCABULARY), pretty=False)
    tell("read", size, size)
    facts = TokenizerFacts(
        model=vocabulary.model,
        pre=vocabulary.pre,
        source="tokenizer.json" if beside else "gguf",
        before=vocabulary.before,
        behind=vocabulary.behind,
        pair=vocabulary.pair,
        control=vocabulary.control,
    )
    converted = asked["bf16"] and weights.to_bf16(path, header, into / WEIGHTS, tell)
    begin, end = (
        "" if token is None else vocabulary.tokens[token] for token in (vocabulary.bos, vocabulary.eos)
    )
    return {
        **judging.entries(judged),
        "tokenizer": dataclasses.asdict(facts),
        "texts": {"bos_token": begin, "eos_token": end},
        "converted": bool(converted),
    }


def _limit() -> None:
    try:
        import resource
    except ImportError:
        return  # the parent's clock still stands
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, MOST_CPU_S),
        (resource.RLIMIT_DATA, MOST_MEMORY),
    ):
        _, hard = resource.getrlimit(kind)
        least = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (least, hard))


def _say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
