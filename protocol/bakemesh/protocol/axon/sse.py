r"""Server-sent events, both ways, without I/O.

    data: first line        a text with a newline is several `data:` lines of one event, joined again
    data: second line

    data: [DONE]            the end; a text that is just that goes in two events
    event: error            what went wrong, and the end

Guarantees of the decoder: it gives the same events however the bytes are cut, also within a character or
between \r and \n; it keeps no more than a line and an event of `limit` bytes together, and looks at no byte
twice however small the pieces are. `\r` and `\r\n` in a text arrive as `\n`, since the format has no other
way to say them; as two, where a text ends with the one and the next begins with the other. Source: the HTML
standard, "Server-sent events".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bakemesh.protocol.axon.errors import DeserializationFailed

DONE = "[DONE]"
DONE_EVENT = b"data: [DONE]\n\n"
ERROR = "error"
LARGEST = 1 << 20
_NEWLINE = re.compile(r"\r\n|\r|\n")
_MARK = b"\xef\xbb\xbf"  # one may stand before the first line
_LINE_END = re.compile(rb"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Event:
    """An event; `data` are the bytes without `data: `, lines joined by a newline."""

    data: bytes
    name: str = "message"

    @property
    def done(self) -> bool:
        """Whether it is the end of the stream."""
        return self.name == "message" and self.data == b"[DONE]"


def encode(text: str, name: str | None = None) -> bytes:
    """One text as one event, or as two where it would read as the end."""
    if text == DONE and name is None:
        return encode(text[:3]) + encode(text[3:])
    head = f"event: {name}\n" if name is not None else ""
    lines = "\n".join(f"data: {line}" for line in _NEWLINE.split(text))
    return f"{head}{lines}\n\n".encode("utf-8", "replace")


class Decoder:
    """Takes bytes as they come and gives the events that are complete. What remains of an event that did not
    end is no event.
    """

    def __init__(self, limit: int = LARGEST) -> None:
        self._limit = limit
        self._rest = bytearray()  # a line that has not ended
        self._seen = 0  # bytes of it in which no end was found
        self._begun = False
        self._after_cr = False
        self._failed = False
        self._data = bytearray()
        self._has_data = False
        self._name = ""

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that this chunk completes. Raises DeserializationFailed for one above the limit, once
        those before it are given; after that the stream is of no use, and every call raises.
        """
        if self._failed:
            raise DeserializationFailed(f"an event is larger than {self._limit} bytes")
        self._rest += chunk
        if not self._begun:
            if len(self._rest) < len(_MARK) and _MARK.startswith(bytes(self._rest)):
                return []  # it may be the start of a byte order mark
            self._begun = True
            if self._rest.startswith(_MARK):
                del self._rest[: len(_MARK)]
        if self._after_cr and self._rest:  # the \n of a \r\n that was cut in two
            self._after_cr = False
            if self._rest[0] == 0x0A:
                del self._rest[:1]
        events: list[Event] = []
        at = 0
        for end in _LINE_END.finditer(self._rest, self._seen):
            if not self._has_room(end.start() - at):
                return self._fail(events)
            self._line(bytes(self._rest[at : end.start()]), events)
            at = end.end()
            self._after_cr = at == len(self._rest) and end.group() == b"\r"
        del self._rest[:at]
        self._seen = len(self._rest)
        return events if self._has_room(self._seen) else self._fail(events)

    def _line(self, line: bytes, events: list[Event]) -> None:
        if not line:
            if self._has_data:
                events.append(Event(bytes(self._data), self._name or "message"))
            self._reset()
            return
        key, colon, value = line.partition(b":")
        if colon and value.startswith(b" "):
            value = value[1:]
        if key == b"data":
            if self._has_data:
                self._data += b"\n"
            self._data += value
            self._has_data = True
        elif key == b"event":
            self._name = value.decode("utf-8", "replace")

    def _reset(self) -> None:
        self._data = bytearray()
        self._has_data = False
        self._name = ""

    def _has_room(self, size: int) -> bool:
        """Whether a line of this size may be added. It counts whole, so that it makes no difference in how
        many pieces it comes.
        """
        return size + len(self._data) <= self._limit

    def _fail(self, events: list[Event]) -> list[Event]:
        self._failed = True
        self._rest = bytearray()
        self._reset()
        return events or self.feed(b"")
