"""Vocabularies out of the cache: Hugging Face tokenizers, which run in Rust and never abort."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bakemesh.artifacts import Cache
from bakemesh.protocol.inference.errors import Code
from bakemesh.synapse.models.errors import ModelRefused, TextRefused
from bakemesh.synapse.models.tokenizing import Encoder

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def open_vocabulary(cache: Cache, digest: str) -> Encoder:
    """The Encoder of a tokenizer.json in the cache. Raises ModelRefused where it is damaged or gone."""
    path = cache.path(digest)
    if path is None or not cache.verify(digest):
        raise ModelRefused(Code.ARTIFACT_INVALID, f"the tokenizer {digest} is gone or broken; ingest it anew")
    return encoder(load(path))


def load(path: Path) -> Tokenizer:
    """A tokenizer.json. Raises ValueError for what is none."""
    # Its threads would take the lanes' cores, and a process that has them cannot be forked in peace.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:
        raise ValueError(f"{path.name} is no tokenizer: {error}"[:500]) from error


def encoder(tokenizer: Tokenizer) -> Encoder:
    """Its Encoder: no special tokens are added, and none is parsed."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True

    def encode(texts: Sequence[str]) -> list[list[int]]:
        try:
            found = tokenizer.encode_batch_fast(_sound(texts), add_special_tokens=False)
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # Rust's, and no Exception
                raise
            raise TextRefused(f"the tokenizer fails on a text: {error}"[:300]) from error
        return [each.ids for each in found]

    return encode


def _sound(texts: Sequence[str]) -> list[str]:
    """Texts as UTF-8 can say them: half of a surrogate pair has no bytes."""
    return [
        text if text.isascii() else text.encode("utf-8", "replace").decode() if _broken(text) else text
        for text in texts
    ]


def _broken(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
