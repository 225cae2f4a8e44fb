"""A worker's stdout and stderr: drained for ever, the last bytes kept, tagged by stream.

Guarantees: a pipe is never left full (a worker that floods it is not held up, nor is the loop: at most 64 KiB
are read at a time); memory is capped. Left out: writing it anywhere.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque

_READ = 64 << 10


class Ring:
    """The last `cap` bytes that came, whole chunks of two streams in their order."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._chunks: deque[tuple[str, bytes]] = deque()
        self._size = 0

    def put(self, stream: str, chunk: bytes) -> None:
        """What a stream wrote."""
        chunk = chunk[-self._cap :]
        self._chunks.append((stream, chunk))
        self._size += len(chunk)
        while self._size > self._cap:
            over = self._size - self._cap
            name, first = self._chunks.popleft()
            if len(first) > over:
                self._chunks.appendleft((name, first[over:]))
            self._size -= min(len(first), over)

    def tail(self, most: int) -> str:
        """The last lines, `[stdout] ` or `[stderr] ` before each, at most `most` bytes of UTF-8."""
        lines: list[str] = []
        open_: dict[str, bytes] = {}
        for stream, chunk in self._chunks:
            *whole, open_[stream] = (open_.get(stream, b"") + chunk).split(b"\n")
            lines += [_tagged(stream, line) for line in whole]
        lines += [_tagged(stream, rest) for stream, rest in open_.items() if rest]
        text = "\n".join(lines).encode()
        if len(text) <= most:
            return text.decode()
        kept = text[len(text) - most :]
        begin = kept.find(b"\n") + 1  # a cut line has lost its tag
        return kept[begin:].decode(errors="ignore")


def _tagged(stream: str, line: bytes) -> str:
    text = line.removesuffix(b"\r").decode(errors="replace")
    return f"[{stream}] {text}"


class Drain:
    """Reads a pipe into a ring until it ends. Owns the descriptor."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, stream: str, ring: Ring) -> None:
        self._loop, self._fd, self._stream, self._ring = loop, fd, stream, ring
        self.ended = asyncio.Event()
        os.set_blocking(fd, False)
        loop.add_reader(fd, self._readable)

    def _readable(self) -> None:
        try:
            chunk = os.read(self._fd, _READ)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if chunk:
            self._ring.put(self._stream, chunk)
        else:
            self.close()

    def close(self) -> None:
        """Reads no more; again: nothing. What is there already is taken."""
        if self.ended.is_set():
            return
        self.ended.set()
        self._loop.remove_reader(self._fd)
        try:
            while chunk := os.read(self._fd, _READ):
                self._ring.put(self._stream, chunk)
                if len(chunk) < _READ:
                    break
        except OSError:
            pass
        os.close(self._fd)
