"""A message as a crank gets it: plain data, read without case. Pure.

Left out: how it came (`triggers`, `durable`, `ready`, `deliver`), and when it is through (`mailbox`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bakemesh.protocol.message import Received


class Entries(Mapping[str, Any]):
    """A message's entries. Keys are found whatever their case, and listed as they were written."""

    __slots__ = ("_entries", "_folded")

    def __init__(self, entries: Mapping[str, Any]) -> None:
        self._entries = entries
        self._folded: dict[str, str] | None = None

    def __getitem__(self, key: str) -> Any:
        try:
            return self._entries[key]
        except KeyError:
            if self._folded is None:
                self._folded = {each.lower(): each for each in self._entries}
            if (written := self._folded.get(key.lower())) is not None:
                return self._entries[written]
            there = ", ".join(map(repr, self._entries)) or "none"
            raise KeyError(f"no entry {key!r}; there is {there}") from None

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and (
            key in self._entries or any(each.lower() == key.lower() for each in self._entries)
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return repr(dict(self._entries))


@dataclass(frozen=True, slots=True)
class CrankMessage:
    """What woke the crank.

    `trigger`: the name of the trigger; `sender` and `node_id`: who sent it, from where (the sender is the
    party of its subject, which on a mesh with authentication nobody else can say); `created`: µs since the
    epoch, by the sender's clock; `id`: the message's own, the same however often it comes.
    """

    trigger: str
    type: str
    entries: Entries
    sender: str
    node_id: str
    created: int
    id: str


def message_for(trigger: str, received: Received, sender: str, node_id: str) -> CrankMessage:
    """A received message, as `trigger` gives it."""
    return CrankMessage(
        trigger,
        received.type,
        Entries(received.message.entries()),
        sender,
        node_id,
        received.created,
        received.id.hex(),
    )


def delay_s(created_us: int, now_us: int, after_ms: int) -> float:
    """How long a stored message is still held back by its trigger's `after_ms`: counted from when it was
    posted, so that messages behind each other do not add up; never longer than from now, whatever the clocks.
    """
    left = created_us / 1000 + after_ms - now_us / 1000
    return min(max(left, 0.0), float(after_ms)) / 1000
