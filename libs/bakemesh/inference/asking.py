"""What callers give, made into messages: texts or ids, prompts or turns, the entries of every request.

Everything that is wrong already here is BadRequest, before anything is sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from bakemesh.inference.cutting import PER_ITEM, text_size
from bakemesh.inference.errors import refused
from bakemesh.protocol import names
from bakemesh.protocol.errors import NameRefused
from bakemesh.protocol.inference.errors import Code
from bakemesh.protocol.inference.requests import WorkRequest
from bakemesh.protocol.message import Message
from bakemesh.protocol.subjects import NO_KEY

Ids: TypeAlias = "Sequence[int] | NDArray[np.integer[Any]]"
Items: TypeAlias = "str | Sequence[str] | Sequence[Ids]"
Turn: TypeAlias = "Mapping[str, Any] | tuple[str, str]"
M = TypeVar("M", bound=Message)

_I32 = np.dtype("<i4")
BYTES_A_TOKEN = 4  # of text, roughly: for comparing work, not for counting it
SPECIALS = 2


@dataclass(frozen=True, slots=True)
class Given:
    """Items of an embedding: texts, or ids with their counts. `sizes`: bytes of each in a request."""

    texts: list[str] | None
    ids: list[bytes]
    sizes: list[int]

    def entries(self, items: range) -> dict[str, Any]:
        """The entries of a request for these."""
        if self.texts is not None:
            return {"texts": self.texts[items.start : items.stop]}
        part = self.ids[items.start : items.stop]
        return {"data": b"".join(part), "counts": [len(each) // 4 for each in part]}

    def tokens(self, items: range) -> float:
        """About how many tokens they have."""
        each = 4 if self.texts is None else BYTES_A_TOKEN
        return sum(self.sizes[items.start : items.stop]) / each + SPECIALS * len(items)


def items_of(given: Items) -> Given:
    """Raises BadRequest for what is neither texts nor ids."""
    if isinstance(given, str):
        given = [given]
    items = list(given)
    if all(isinstance(item, str) for item in items):
        texts = [str(item) for item in items]
        return Given(texts, [], [text_size(text, item) for item, text in enumerate(texts)])
    if any(isinstance(item, str) for item in items):
        raise refused(Code.BAD_REQUEST, "texts and token ids in one call; give one kind")
    ids = [ids_of(each, f"item {item}") for item, each in enumerate(items)]
    return Given(None, ids, [len(each) + PER_ITEM for each in ids])


def ids_of(given: Any, what: str) -> bytes:
    """Token ids as i32. Raises BadRequest for what is no row of them."""
    try:
        array = np.asarray(given)
    except ValueError:
        array = np.empty((0, 0))
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        told = f"{what}: expected text, or a row of token ids (whole numbers), not {type(given).__name__}"
        raise refused(Code.BAD_REQUEST, told)
    if int(array.min()) < 0 or int(array.max()) > 2**31 - 1:
        raise refused(Code.BAD_REQUEST, f"{what}: token ids are from 0 to 2^31 - 1")
    return array.astype(_I32).tobytes()


def turns_of(messages: Sequence[Turn]) -> list[dict[str, Any]]:
    """Turns of `role` and `content`. Raises BadRequest."""
    turns: list[dict[str, Any]] = []
    for number, turn in enumerate(messages):
        found = {"role": turn[0], "content": turn[1]} if isinstance(turn, tuple) else dict(turn)
        if not isinstance(found.get("role"), str) or "content" not in found:
            raise refused(Code.BAD_REQUEST, f"message {number}: expected the keys role and content")
        turns.append(found)
    if not turns:
        raise refused(Code.BAD_REQUEST, "no messages; a chat has one at least")
    return turns


def schema_of(schema: str | Mapping[str, Any] | None) -> str | None:
    """A JSON Schema as text."""
    return schema if schema is None or isinstance(schema, str) else json.dumps(schema)


def alias_of(model: str) -> str:
    """Raises BadRequest for what cannot be an alias."""
    try:
        if names.check("alias", model) != NO_KEY:
            return model
    except NameRefused as error:
        raise refused(Code.BAD_REQUEST, f"model: {error}") from None
    raise refused(Code.BAD_REQUEST, f"model: {model!r} stands for none; give an alias")


def message_of(cls: type[M], entries: Mapping[str, Any]) -> M:
    """The message. Raises BadRequest, naming the entry that is wrong."""
    try:
        return cls.model_validate(entries, by_alias=True, by_name=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        entry = ".".join(str(part) for part in first["loc"])[:80]
        raise refused(Code.BAD_REQUEST, f"{entry}: {first['msg']}", entry=entry) from None


def again(message: WorkRequest) -> Callable[[int, int], Message]:
    """Makes the message as it goes out, from the milliseconds that are left and the attempt."""
    return lambda left_ms, attempt: message.with_values(deadlinems=left_ms, attempt=attempt)
