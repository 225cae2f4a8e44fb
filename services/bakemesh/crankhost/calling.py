"""Calls a crank's function: a coroutine function in the loop, a plain one in a thread of its own.

`Running.ended` gives None where it came through (returned, or `sys.exit()` without a code), else the
exception that ended it, whatever it was: no crank can end its host past this.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable
from typing import Any

from bakemesh.crank import Api, BlockingApi, CrankOver


class Running:
    """A crank that runs. Made in the loop."""

    def __init__(self, function: Callable[..., Any], api: Api) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[BaseException | None] = self._loop.create_future()
        self._abandoned = False
        self._task: asyncio.Task[None] | None = None
        self._blocking: BlockingApi | None = None
        if is_async(function):
            self._task = self._loop.create_task(self._await(function, api), name="crank")
        else:
            self._blocking = BlockingApi(api)
            # A daemon: a crank that does not come to its end does not keep its process.
            threading.Thread(
                target=self._call, args=(function, self._blocking), name="crank", daemon=True
            ).start()

    def abandon(self) -> None:
        """Its time is over: what it waits for ends, in a coroutine by a cancellation."""
        self._abandoned = True
        if self._task is not None:
            self._task.cancel()
        if self._blocking is not None:
            self._blocking.abandon()

    async def _await(self, function: Callable[..., Any], api: Api) -> None:
        try:
            await function(api)
        except asyncio.CancelledError as error:
            self._end(None if self._abandoned else error)
        except BaseException as error:  # noqa: BLE001 - judged by who waits
            self._end(error)
        else:
            self._end(None)

    def _call(self, function: Callable[..., Any], api: BlockingApi) -> None:
        error: BaseException | None = None
        try:
            made = function(api)
            if inspect.isawaitable(made):
                if inspect.iscoroutine(made):
                    made.close()
                raise TypeError("a plain function gave something to await; make it `async def`")
        except BaseException as raised:  # noqa: BLE001 - judged by who waits
            error = raised
        try:
            api.close()
        except Exception as raised:  # noqa: BLE001 - the first failure is the one to tell
            error = error or raised
        with contextlib.suppress(RuntimeError):  # the host did not wait so long
            self._loop.call_soon_threadsafe(self._end, error)

    def _end(self, error: BaseException | None) -> None:
        if isinstance(error, SystemExit) and error.code in (None, 0):
            error = None
        if isinstance(error, CrankOver) and self._abandoned:
            error = None
        if not self.ended.done():
            self.ended.set_result(error)


def is_async(function: Callable[..., Any]) -> bool:
    """Whether it is to be awaited: a coroutine function, or an object that is called like one."""
    return inspect.iscoroutinefunction(inspect.unwrap(function)) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object may be called like a coroutine function
    )
