"""What the server sends, cut into messages: takes the place of the client library's parser.

The library's parser searches a growing buffer with a regular expression for each message, copies each payload
twice, reads headers that nobody asks for, and awaits a coroutine a message: most of what receiving a small
message costs. This one walks over the bytes as they were read. Messages of a subscription that was handed
over (`handover`) go to their function at once, as an `Arrived`; those of any other go to the library as
before, and so does every line that is no message (PING, INFO, -ERR …). Guarantees: a message is handed on
once, whole, in order, however the bytes were split; `reset` (a lost link) forgets a part of one. Left out:
what the library's parser judges of other lines; that stays with it.
"""

from __future__ import annotations

from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import ProtocolError
from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser

from bakemesh.bus.handover import HandOver
from bakemesh.protocol.numerals import whole

_CRLF = b"\r\n"
_VERSION = b"NATS/1.0"
_LONGEST_LINE = 2**20  # an INFO names every server of a cluster


class Arrived(Msg):
    """A message as it is handed over."""

    def __init__(self, subject: str, reply: str, data: bytes, headers: dict[str, str] | None) -> None:
        self.subject, self.reply, self.data, self.headers = subject, reply, data, headers


def read_headers(raw: bytes) -> dict[str, str] | None:
    """The headers in a block, None for none. Names are taken as written; one that is no token is left out.
    A status line is `Status` and `Description`.
    """
    first, *lines = raw.decode("utf-8", "replace").split("\r\n")
    found: dict[str, str] = {}
    code, _, text = first[len(_VERSION) :].strip().partition(" ")
    if whole(code) is not None:
        found["Status"] = code
        if text:
            found["Description"] = text
    for line in lines:
        name, colon, value = line.partition(":")
        if colon and name.isascii() and name and " " not in (name := name.strip()) and "\t" not in name:
            found[name] = value.strip()
    return found or None


class FrameParser(Parser):
    """Parses for one client. `parse` takes what was read, `reset` begins anew."""

    def __init__(self, client: Client) -> None:
        self._pieces: list[bytes] = []  # of a message that is not whole yet
        self._missing = 0  # its bytes that are still to come, 0: not known
        self._life = 0
        super().__init__(client)

    def reset(self) -> None:
        """Forgets what is not whole."""
        super().reset()
        self._pieces, self._missing = [], 0
        self._life += 1

    async def parse(self, data: bytes = b"") -> None:
        """Hands on every message that is whole with `data`. Raises ProtocolError."""
        if self._pieces:
            self._pieces.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return
            data = b"".join(self._pieces)
            self._pieces, self._missing = [], 0
        client: Any = self.nc
        subscriptions, life = client._subs, self._life
        at, size, count, load = 0, len(data), 0, 0
        while at < size:
            eol = data.find(_CRLF, at)
            if eol < 0:
                if size - at > _LONGEST_LINE:
                    raise ProtocolError("nats: a line without an end")
                self._pieces = [data[at:]]
                break
            begin = eol + 2
            try:
                if data.startswith(b"MSG ", at):
                    head = 0
                    words = data[at + 4 : eol].split()
                elif data.startswith(b"HMSG ", at):
                    words = data[at + 5 : eol].split()
                    head = int(words.pop(-2))
                else:
                    await self._line(data[at:begin])
                    if life != self._life:  # the link is being made again: the rest is of the old one
                        return
                    at = begin
                    continue
                number, end = int(words[1]), begin + int(words[-1])
            except (ValueError, IndexError):
                raise ProtocolError(f"nats: malformed message: {data[at : at + 80]!r}") from None
            if end + 2 > size:
                self._pieces, self._missing = [data[at:]], end + 2 - size
                break
            at = end + 2
            subscription = subscriptions.get(number)
            if subscription is None:
                continue
            queue = subscription._pending_queue
            raw = data[begin : begin + head] if head else None
            payload = data[begin + head : end]
            reply = words[2] if len(words) == 4 else b""
            if type(queue) is HandOver:
                count += 1
                load += end - begin - head
                msg = Arrived(
                    words[0].decode(), reply.decode(), payload, None if raw is None else read_headers(raw)
                )
                try:
                    queue.take(msg)
                except Exception:  # noqa: BLE001 - logged by `failed`
                    queue.failed(msg)
            else:
                await client._process_msg(number, words[0], reply, payload, raw)
                if life != self._life:
                    return
        client.stats["in_msgs"] += count
        client.stats["in_bytes"] += load

    async def _line(self, line: bytes) -> None:
        """A line that is no message: the library's."""
        self.buf = bytearray(line)
        await super().parse()
        if self.buf or self.state != AWAITING_CONTROL_LINE:
            raise ProtocolError(f"nats: unknown protocol: {line[:80]!r}")
