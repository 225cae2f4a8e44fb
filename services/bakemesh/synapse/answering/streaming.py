"""Whether the caller of a stream is still there: at least one message a second asks for an answer that only
the server gives, where nobody listens any more; then the request is cancelled.

`due` decides; `Streams` looks at all of them in one task. Left out: the tokens (`generate`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from bakemesh.bus import Bus
from bakemesh.bus.errors import BusError
from bakemesh.protocol.inference.answers import Alive
from bakemesh.synapse.answering.request import Request

ASK_EVERY_S: Final = 0.7
LOOK_EVERY_S: Final = 0.2


def due(now: float, asked: float) -> bool:
    """Whether the next message is to ask, where the last that did was at `asked`."""
    return now - asked >= ASK_EVERY_S


class Stream:
    """One request's. `state`: what an Alive says of it. A context manager."""

    def __init__(self, streams: Streams, request: Request, bus: Bus, state: Callable[[], str]) -> None:
        self.request, self.state = request, state
        self._streams = streams
        self._clock = asyncio.get_running_loop().time
        self._asked = self._clock()
        self._presence = bus.presence(request.reply, request.cancel)

    def reply(self) -> str:
        """What goes out as the reply of a message that is sent now: mostly nothing."""
        now = self._clock()
        if not due(now, self._asked):
            return ""
        self._asked = now
        return self._presence.reply

    def look(self) -> None:
        """Says that the request is alive, where nothing else asked for a while."""
        if reply := self.reply():
            try:
                self.request.part(Alive(request=self.request.id, state=self.state()), reply)
            except BusError:
                self._asked = 0.0  # the link is away: again as soon as it is back

    def __enter__(self) -> Stream:
        self._streams.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._streams.discard(self)
        self._presence.close()


class Streams:
    """Those that run."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._open: set[Stream] = set()
        self._some = asyncio.Event()

    def of(self, request: Request, state: Callable[[], str]) -> Stream:
        """The stream of a request; enter it."""
        return Stream(self, request, self._bus, state)

    def add(self, stream: Stream) -> None:
        """It runs from now on."""
        self._open.add(stream)
        self._some.set()

    def discard(self, stream: Stream) -> None:
        """It has ended."""
        self._open.discard(stream)
        if not self._open:
            self._some.clear()

    async def run(self) -> None:
        """Looks at them, for ever."""
        while True:
            await self._some.wait()
            for stream in tuple(self._open):
                stream.look()
            await asyncio.sleep(LOOK_EVERY_S)
