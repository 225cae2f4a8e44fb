r"""Server-sent events, both ways, without I/O.

    data: first line        a text with a newline is several `data:` lines of one event, joined again
    data: second line

    data: [DONE]            the end; a text that is just that goes in two events
    event: error            what went wrong, and the end

Guarantees of the decoder: it gives the same events however the bytes are cut, also within a character or
between \r and \n; an event is never larger than `limit`. `\r` and `\r\n` in a text arrive as `\n`: the format
has no other way to say them. Source: the HTML standard, "Server-sent events".
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
    return f"{head}{lines}\n\n".encode("utf-8", "surrogatepass" if name == ERROR else "replace")


class Decoder:
    """Takes bytes as they come and gives the events that are complete."""

    def __init__(self, limit: int = LARGEST) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._after_cr = False
        self._begun = False
        self._data: list[bytes] = []
        self._size = 0
        self._name = ""

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that this chunk completes. Raises DeserializationFailed for one above the limit."""
        if not chunk:
            return []
        if self._after_cr:  # the \n of a \r\n that was cut in two
            self._after_cr = False
            if chunk[0] == 0x0A:
                chunk = chunk[1:]
        self._rest += chunk
        if not self._begun and len(self._rest) >= 3:
            self._begun = True
            if self._rest.startswith(b"\xef\xbb\xbf"):
                del self._rest[:3]
        events: list[Event] = []
        at = 0
        for end in _LINE_END.finditer(self._rest):
            if not self._begun and b"\xef\xbb\xbf".startswith(bytes(self._rest[:3])):
                break  # it may be the start of a byte order mark
            self._line(bytes(self._rest[at : end.start()]), events)
            at = end.end()
            if end.group() == b"\r" and at == len(self._rest):
                self._after_cr = True
        del self._rest[:at]
        if len(self._rest) + self._size > self._limit:
            raise DeserializationFailed(f"an event is larger than {self._limit} bytes")
        return events

    def _line(self, line: bytes, events: list[Event]) -> None:
        if not line:
            if self._data:
                events.append(Event(b"\n".join(self._data), self._name or "message"))
            self._data, self._size, self._name = [], 0, ""
            return
        key, colon, value = line.partition(b":")
        if colon and value.startswith(b" "):
            value = value[1:]
        if key == b"data":
            self._data.append(value)
            self._size += len(value) + 1
            if self._size > self._limit:
                raise DeserializationFailed(f"an event is larger than {self._limit} bytes")
        elif key == b"event":
            self._name = value.decode("utf-8", "replace")
