"""One request, from its admission to its end: what its caller iterates over.

Parts come in order and each once; the end comes once, after all parts or as one Failed. Left out: everything
that decides (`core`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar

from bakemesh.protocol.inference.errors import ErrorObject
from bakemesh.synapse.scheduling.asks import Ask, Failed
from bakemesh.synapse.scheduling.lines import Ticket
from bakemesh.workerpool.call import Call
from bakemesh.workerpool.models import ModelKey, Sampling

Part = TypeVar("Part")


class Request(Generic[Part]):
    """An async iterator of parts, or told of by `listen`. `leave` is called where its caller goes away before
    the end."""

    __slots__ = (
        "_error",
        "_leave",
        "_news",
        "_parts",
        "_waiter",
        "arrived",
        "ask",
        "begin_by",
        "begun",
        "call",
        "counts",
        "delivered",
        "extra",
        "held",
        "ids",
        "kind",
        "max_tokens",
        "model",
        "number",
        "over",
        "prefix",
        "running",
        "sampling",
        "seen",
        "session",
        "size",
        "stream",
        "tickets",
        "timer",
    )

    def __init__(
        self, number: int, kind: str, model: ModelKey, ask: Ask, arrived: float, leave: Callable[[Any], None]
    ) -> None:
        self.number, self.kind, self.model, self.ask, self.arrived = number, kind, model, ask, arrived
        self.counts: Any = ()
        self.ids: Any = b""
        self.extra = 0  # tokens that each item costs beside its own
        self.prefix: bytes | memoryview = b""  # ids that go before each run's
        self.max_tokens, self.stream = 0, True  # of a generation, as the next two
        self.sampling: Sampling | None = None
        self.session: bytes | None = None
        self.begin_by, self.size = 0.0, 0
        self.begun = self.seen = self.over = False
        self.running = 0  # runs that hold items of it
        self.delivered = 0  # items whose result was handed on
        self.held: dict[int, tuple[int, Any]] = {}  # results that came before their turn: first → (n, part)
        self.tickets: list[Ticket] = []
        self.timer: asyncio.TimerHandle | None = None
        self.call: Call | None = None  # of a generation that runs
        self._parts: deque[Part] = deque()
        self._error: ErrorObject | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._news: Callable[[], None] | None = None
        self._leave = leave

    # -- the core's side

    def put(self, part: Part) -> None:
        """The next part."""
        self._parts.append(part)
        self._wake()

    def place(self, first: int, n: int, part: Part) -> bool:
        """A part that may be before its turn; whether all items are done with it."""
        held = self.held
        if first != self.delivered:
            held[first] = (n, part)
            return False
        self._parts.append(part)
        at = first + n
        while held and at in held:
            n, part = held.pop(at)
            self._parts.append(part)
            at += n
        self.delivered = at
        self._wake()
        return at >= len(self.counts)

    def end(self, error: ErrorObject | None) -> None:
        """It is over; once."""
        assert not self.over
        self.over, self._error = True, error
        self.held.clear()
        self.ids = self.prefix = b""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self.ask.on_cancel(None)
        self._wake()
        self._news = None

    def _wake(self) -> None:
        if self._news is not None:
            self._news()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- the caller's side

    def listen(self, news: Callable[[], None]) -> None:
        """In place of iterating, without a task: `news`, a plain function that raises nothing, is called
        whenever parts have come (`taken`) and when it is over (`over`, `error`)."""
        if not self.over:
            self._news = news
        if self._parts or self.over:
            news()

    def taken(self) -> list[Part]:
        """The parts that came since the last time."""
        some = list(self._parts)
        self._parts.clear()
        return some

    @property
    def error(self) -> ErrorObject | None:
        """Why it is over, where that is no result."""
        return self._error

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Part:
        """The next part. Raises Failed where there is none to come, once all that came were given."""
        while not self._parts:
            if self.over:
                if self._error is not None:
                    raise Failed(self._error)
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            except asyncio.CancelledError:
                self._leave(self)
                raise
            finally:
                self._waiter = None
        return self._parts.popleft()

    async def aclose(self) -> None:
        """Wants no more of it; of one that is over: nothing."""
        self._leave(self)
