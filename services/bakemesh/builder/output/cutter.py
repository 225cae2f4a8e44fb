"""Where a chunk of output ends and when it goes: pure, time comes in as `now` (monotonic seconds).

Guarantees: the chunks of a stream joined are the bytes fed, nothing added or lost; a chunk holds at most
`max_bytes`, exactly that many where the buffer got full (`partial`); chunks of one stream that are neither
full nor final are at least `interval_s` apart, the first of them at least so long after the attempt's begin
(0: every feed goes at once); a stream that wrote anything ends with exactly one `finalchunk`, which does not
wait; a silent stream has no chunk at all. Memory: at most `max_bytes` a stream, and what a single feed
brings.

Left out: text. Chunks are cut by size and time, never at a line's end or a character's.
Source: protocol/builder-v1.md, "Data".
"""

from __future__ import annotations

from dataclasses import dataclass

# Bytes objects of a few bytes each cost ten times what they carry; so many are joined into one.
_PIECES = 1024


class StreamClosed(Exception):
    """Raised when bytes come for a stream whose last chunk is already out."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"stream {stream!r} is closed: its last chunk is out, no byte can follow")
        self.stream = stream


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of one stream's output, ready to be journaled."""

    stream: str
    data: bytes
    finalchunk: bool = False
    partial: bool = False  # cut because the buffer was full


@dataclass(slots=True)
class _Stream:
    last: float  # when its latest chunk went; at first the begin of the attempt
    pieces: list[bytes | memoryview]
    size: int = 0
    since: int = 0  # order in which the oldest buffered byte came, across streams
    wrote: bool = False
    closed: bool = False


class Cutter:
    """Cuts the streams of one attempt of a step."""

    def __init__(self, max_bytes: int, interval_s: float, *, begun: float | None = None) -> None:
        """`begun`: when the attempt began; without it each stream's cadence counts from its first byte."""
        if max_bytes < 1:
            raise ValueError(f"max_bytes must be 1 or more, not {max_bytes}")
        if interval_s < 0:
            raise ValueError(f"interval_s must be 0 or more, not {interval_s}")
        self.max_bytes, self.interval_s = max_bytes, interval_s
        self._begun = begun
        self._streams: dict[str, _Stream] = {}
        self._arrivals = 0

    @property
    def streams(self) -> tuple[str, ...]:
        """Streams that wrote and whose last chunk is not out yet."""
        return tuple(name for name, state in self._streams.items() if state.wrote and not state.closed)

    @property
    def next_due(self) -> float | None:
        """When `due` has something next; None while nothing is buffered."""
        times = [state.last + self.interval_s for state in self._streams.values() if state.size]
        return min(times, default=None)

    def feed(self, stream: str, data: bytes, now: float) -> list[Chunk]:
        """Takes bytes; returns the chunks that go now. Raises StreamClosed after `close`."""
        state = self._state(stream, now)
        if state.closed:
            raise StreamClosed(stream)
        if not data:
            return []
        state.wrote = True
        if not state.size:
            self._mark(state)
        chunks: list[Chunk] = []
        if state.size + len(data) < self.max_bytes:
            self._append(state, data)
        else:
            self._fill(stream, state, data, chunks)
            state.last = now
        if state.size and now >= state.last + self.interval_s:
            chunks.append(self._cut(stream, state, now))
        return chunks

    def due(self, now: float) -> list[Chunk]:
        """The chunks whose time has come, the one with the oldest byte first."""
        ready = [
            (state.since, name, state)
            for name, state in self._streams.items()
            if state.size and now >= state.last + self.interval_s
        ]
        return [self._cut(name, state, now) for _, name, state in sorted(ready, key=lambda entry: entry[0])]

    def close(self, stream: str, now: float) -> list[Chunk]:
        """The stream's last chunk, with `finalchunk`; nothing for a silent stream or one that is closed."""
        state = self._state(stream, now)
        if state.closed:
            return []
        state.closed = True
        return [self._cut(stream, state, now, final=True)] if state.wrote else []

    def _state(self, stream: str, now: float) -> _Stream:
        state = self._streams.get(stream)
        if state is None:
            state = _Stream(now if self._begun is None else self._begun, [])
            self._streams[stream] = state
        return state

    def _mark(self, state: _Stream) -> None:
        self._arrivals += 1
        state.since = self._arrivals

    def _append(self, state: _Stream, data: bytes | memoryview) -> None:
        if len(state.pieces) >= _PIECES:
            state.pieces = [b"".join(state.pieces)]
        state.pieces.append(data)
        state.size += len(data)

    def _fill(self, stream: str, state: _Stream, data: bytes, chunks: list[Chunk]) -> None:
        """Cuts full chunks until what is left of `data` is less than one."""
        view, start = memoryview(data), 0
        while state.size + len(view) - start >= self.max_bytes:
            stop = start + self.max_bytes - state.size
            state.pieces.append(data if stop - start == len(data) else view[start:stop])
            chunks.append(Chunk(stream, b"".join(state.pieces), partial=True))
            state.pieces, state.size, start = [], 0, stop
            self._mark(state)
        if start < len(view):
            # A short rest must not keep a long feed alive.
            rest = view[start:] if len(view) <= self.max_bytes else bytes(view[start:])
            self._append(state, rest)

    def _cut(self, stream: str, state: _Stream, now: float, *, final: bool = False) -> Chunk:
        data = b"".join(state.pieces)
        state.pieces, state.size, state.last = [], 0, now
        return Chunk(stream, data, finalchunk=final)
