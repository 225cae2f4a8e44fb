"""Texts to ids, as the model's engine would have them. No engine takes part.

Guarantees: ids are those of llama.cpp's own tokenizer for the kinds that `kinds` lists (proven on their real
vocabularies by tests); an item that is too long is an error that names both counts, or is cut where that was
asked for; special tokens that stand in a text are text, except where `special` says that they are to be
parsed (a rendered chat). Safe to call from several threads.

Ids leave as bytes: i32, little-endian.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Mapping, Sequence
from typing import Protocol

from bakemesh.synapse.models.errors import TextRefused, TooManyTokens
from bakemesh.synapse.models.manifest import TokenizerFacts


class Encoder(Protocol):
    """A vocabulary: texts to ids, without special tokens."""

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text."""


class Tokenizer:
    """Of one model. `limit`: most tokens of an item, special ones included."""

    def __init__(self, encode: Encoder, facts: TokenizerFacts, limit: int) -> None:
        self._encode, self._facts, self.limit = encode, facts, limit
        self._control = _pattern(facts.control)

    def embed_ids(self, texts: Sequence[str], *, truncate: bool = False) -> tuple[bytes, list[int]]:
        """Ids of all texts, special ones around each, and how many each has.

        Raises TooManyTokens, TextRefused for a text of no tokens.
        """
        before, behind = list(self._facts.before), list(self._facts.behind)
        room = self.limit - len(before) - len(behind)
        ids, counts = array("i"), []
        for item, found in enumerate(self._encode(texts)):
            if len(found) > room:
                if not truncate:
                    raise TooManyTokens(len(found) + self.limit - room, self.limit, item)
                found = found[:room]
            whole = [*before, *found, *behind]
            if not whole:
                raise TextRefused(f"item {item} has no tokens: an empty text has no vector in this model")
            ids.extend(whole)
            counts.append(len(whole))
        return _bytes(ids), counts

    def plain_ids(self, text: str) -> bytes:
        """Ids of a text without special tokens, however many."""
        return _bytes(array("i", self._encode([text])[0]))

    def pair_ids(
        self, query: str, documents: Sequence[str], *, truncate: bool = False
    ) -> tuple[int, list[int], bytes]:
        """For a reranker: the query's tokens, each document's tokens, and all ids, the query's first; without
        special tokens (the engine puts them around each pair), for which there is room.

        Raises TooManyTokens, TextRefused.
        """
        asked, *found = self._encode([query, *documents])
        if not asked:
            raise TextRefused("the query has no tokens")
        room = self.limit - self._facts.pair - len(asked)
        ids, counts = array("i", asked), []
        for item, each in enumerate(found):
            if len(each) > room:
                if not truncate or room < 1:
                    raise TooManyTokens(len(each) + self.limit - room, self.limit, item, "query and document")
                each = each[:room]
            if not each:
                raise TextRefused(f"document {item} has no tokens")
            ids.extend(each)
            counts.append(len(each))
        return len(asked), counts, _bytes(ids)

    def prompt_ids(self, text: str, *, special: bool = False) -> bytes:
        """Ids of a prompt, with what the model wants before and behind it.

        `special`: the text is a rendered chat, whose special tokens are parsed. Raises TooManyTokens where
        no token could be generated behind it.
        """
        found = self._parsed(text) if special else self._encode([text])[0]
        whole = array("i", [*self._facts.before, *found, *self._facts.behind])
        if not whole:
            raise TextRefused("the prompt has no tokens")
        if len(whole) >= self.limit:
            raise TooManyTokens(len(whole), self.limit - 1, what="prompt", whole=True)
        return _bytes(whole)

    def _parsed(self, text: str) -> list[int]:
        """The text cut at its special tokens; what is between is tokenized by itself, as in llama.cpp."""
        pieces = self._control.split(text) if self._control is not None else [text]
        between = [piece for piece in pieces[::2] if piece]
        encoded = iter(self._encode(between) if between else ())
        ids: list[int] = []
        for number, piece in enumerate(pieces):
            if number % 2:
                ids.append(self._facts.control[piece])
            elif piece:
                ids.extend(next(encoded))
        return ids


def _pattern(control: Mapping[str, int]) -> re.Pattern[str] | None:
    """Matches any of them, longer ones first."""
    if not control:
        return None
    return re.compile(
        "(" + "|".join(map(re.escape, sorted(control, key=lambda each: (-len(each), each)))) + ")"
    )


def _bytes(ids: array[int]) -> bytes:
    if sys.byteorder == "big":
        ids.byteswap()
    return ids.tobytes()


def each_byte(texts: Sequence[str]) -> list[list[int]]:
    """The fake format's Encoder: UTF-8, a byte a token; what has no UTF-8 is replaced."""
    return [list(text.encode("utf-8", "replace")) for text in texts]
