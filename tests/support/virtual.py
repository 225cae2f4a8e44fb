"""Time that passes only where everybody waits: an event loop for tests of what happens over seconds and
minutes.

    virtually(main())       # a coroutine, on a loop of its own; `loop.time()` begins at 0

Nothing may wait for the outside (sockets, processes): where nothing at all is left to happen, it fails.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.SelectSelector):
    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> Any:
        """Instead of waiting, it is later."""
        found = super().select(0)
        if not found and (timeout is None or timeout > 0):
            if timeout is None:
                raise RuntimeError("everybody waits, and nothing will happen any more")
            self.loop.now += timeout
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self) -> None:
        selector = _Selector()
        selector.loop = self
        self.now = 0.0
        super().__init__(selector)

    def time(self) -> float:
        """The virtual time."""
        return self.now


def virtually(main: Coroutine[Any, Any, T]) -> T:
    """Runs it."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
