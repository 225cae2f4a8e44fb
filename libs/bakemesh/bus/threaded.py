"""A thread with an event loop of its own, for the blocking faces of what is asynchronous.

Guarantees: an exception raised there is raised here as it is; an interrupt of a waiting call cancels what it
had begun and leaves the rest usable; after `stop` nothing is left running. Calls may come from several
threads. Left out: doing several things at once in one thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")


class LoopThread:
    """A thread that runs an event loop; `call` runs a coroutine there and waits for it here. `closed` makes
    the error of a call after `stop`.
    """

    def __init__(self, name: str, closed: Callable[[], Exception]) -> None:
        self._closed = closed
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result or exception. An interrupt here cancels it there."""
        if self._loop.is_closed():
            coroutine.close()
            raise self._closed()
        future: Future[T] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            # Where the coroutine itself failed it has ended already; else this thread was interrupted.
            future.cancel()
            raise

    def stop(self) -> None:
        """Ends loop and thread; what still runs there is cancelled first."""
        if self._loop.is_closed():
            return
        future = asyncio.run_coroutine_threadsafe(self._finish(), self._loop)
        future.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _finish(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._loop.shutdown_asyncgens()
        await self._loop.shutdown_default_executor()


class Stream(Generic[T]):
    """A blocking iterator over an asynchronous one; `close` ends it early (so does the end of a `with`)."""

    def __init__(self, loop: LoopThread, source: AsyncIterator[T]) -> None:
        self._loop, self._source = loop, source

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        found = self._loop.call(_next(self._source))
        if found is None:
            raise StopIteration
        return found

    def close(self) -> None:
        """Ends the iteration."""
        self._loop.call(self._source.aclose())  # type: ignore[attr-defined]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def made(make: Callable[[], T]) -> T:
    """What `make` gives, made in the loop."""
    return make()


async def _next(source: AsyncIterator[T]) -> T | None:
    return await anext(source, None)
