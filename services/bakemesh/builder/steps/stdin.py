"""Writes a child's stdin without blocking the loop. A child that does not read it, or closes it, is no
failure."""

from __future__ import annotations

import asyncio
import os

_BLOCK = 65536


async def feed_stdin(fd: int, data: bytes) -> None:
    """Writes `data` to the pipe `fd` and closes it; ends early where nobody reads any more.

    Owns `fd`: it is closed when this returns, is cancelled or raises.
    """
    loop = asyncio.get_running_loop()
    try:
        os.set_blocking(fd, False)
        view, sent = memoryview(data), 0
        while sent < len(view):
            try:
                sent += os.write(fd, view[sent : sent + _BLOCK])
            except BlockingIOError:
                writable: asyncio.Future[None] = loop.create_future()
                loop.add_writer(fd, _wake, writable)
                try:
                    await writable
                finally:
                    loop.remove_writer(fd)
            except BrokenPipeError:
                return
    finally:
        os.close(fd)


def _wake(writable: asyncio.Future[None]) -> None:
    if not writable.done():
        writable.set_result(None)
