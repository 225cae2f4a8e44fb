"""Puts answers together again: rows where they belong, scores in order, tokens without a gap.

Guarantees: a whole is whole: every row once, of one width, every token in order; anything else is
AnswerBroken, never a silent hole. What is told twice counts once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bakemesh.inference.errors import AnswerBroken
from bakemesh.protocol.inference.answers import Scores, Token, Vectors

Array = NDArray[np.float32]
_F32 = np.dtype("<f4")


class Rows:
    """The rows of all items of a call, filled by its requests."""

    def __init__(self, items: int) -> None:
        self._items = items
        self._array: Array | None = None
        self._dims_from = ""

    def at(self, node_id: str, dims: int) -> Array:
        """The array, made by the first who knows how wide it is. Raises AnswerBroken for another width."""
        if self._array is None:
            self._array = np.empty((self._items, dims), np.float32)
            self._dims_from = node_id
        elif self._array.shape[1] != dims:
            raise AnswerBroken(
                f"rows of {dims} numbers from node {node_id}, of {self._array.shape[1]} from node "
                f"{self._dims_from}: the alias names different models there",
                node_id,
            )
        return self._array

    def result(self) -> Array:
        """All of them."""
        return np.empty((0, 0), np.float32) if self._array is None else self._array


class Part:
    """The rows of one request: those of `items` of the call."""

    def __init__(self, rows: Rows, items: range) -> None:
        self._rows, self._items = rows, items
        self._begin(b"")

    def _begin(self, request: bytes) -> None:
        self._request, self._filled, self.tokens = request, bytearray(len(self._items)), 0

    def add(self, vectors: Vectors, node_id: str) -> None:
        """Puts them where they belong. Raises AnswerBroken for sizes that contradict, and where the last one
        leaves rows out.
        """
        if vectors.request != self._request:
            self._begin(vectors.request)  # it was repeated: what the other one gave does not count
        first, n, dims = vectors.first, vectors.n, vectors.dims
        if first + n > len(self._items):
            told = f"rows {first} to {first + n - 1} of a request with {len(self._items)} items"
            raise AnswerBroken(told, node_id)
        if len(vectors.data) != n * dims * 4:
            raise AnswerBroken(f"{n} rows of {dims} numbers in {len(vectors.data)} bytes", node_id)
        if n and 0 in self._filled[first : first + n]:
            begin = self._items.start + first
            array = self._rows.at(node_id, dims)
            array[begin : begin + n] = np.frombuffer(vectors.data, _F32).reshape(n, dims)
            self._filled[first : first + n] = b"\1" * n
            self.tokens += vectors.ntokens
        if vectors.final and 0 in self._filled:
            missing = self._filled.count(0)
            raise AnswerBroken(f"{missing} of {len(self._items)} rows did not come", node_id)


def scores_of(scores: Scores, documents: int, node_id: str) -> Array:
    """The scores of a request with so many documents. Raises AnswerBroken."""
    if scores.n != documents or len(scores.data) != 4 * documents:
        told = f"{scores.n} scores in {len(scores.data)} bytes for {documents} documents"
        raise AnswerBroken(told, node_id)
    return np.frombuffer(scores.data, _F32).astype(np.float32)


class Stream:
    """The order of a stream's tokens."""

    def __init__(self) -> None:
        self.next = 0

    def takes(self, token: Token, node_id: str) -> bool:
        """Whether it is the next one; one that was there already is not. Raises AnswerBroken for a gap."""
        if token.index > self.next:
            missing = f"token {self.next} of the stream did not come, {token.index} did"
            raise AnswerBroken(missing, node_id)
        if token.index < self.next:
            return False
        self.next += 1
        return True
