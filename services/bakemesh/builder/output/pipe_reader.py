"""Reads the output pipe of a child process, without ever blocking the loop and with flat memory.

Guarantees: bytes are handed on in the order read, one block at a time; while `write` waits nothing is read,
so the child sleeps in its own write (the backpressure); a flood of tiny writes costs a wake-up every 2 ms,
not one each; `drain` ends the reading with what the pipe holds at that moment, whoever else still has it
open.

Left out: cutting, and whose output it is.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import termios
from collections.abc import Awaitable, Callable

BLOCK = 65536  # a pipe's usual capacity: one read empties it
SMALL = BLOCK // 2
PAUSE_S = 0.002
_TURNS = 8  # blocks in a row before other tasks get the loop


class PipeReader:
    """The reading end of one pipe. Owns `fd` from now on and closes it when `run` ends."""

    def __init__(self, fd: int, write: Callable[[bytes], Awaitable[None]]) -> None:
        os.set_blocking(fd, False)
        self._fd, self._write = fd, write
        self._rest: int | None = None  # bytes that are still to be read after `drain`
        self._waiting: asyncio.Future[None] | None = None
        self._open = True

    async def run(self) -> None:
        """Reads until the end of the pipe, or until `drain` is satisfied. Raises what `write` raises."""
        turns, small_at = 0, float("-inf")
        clock = asyncio.get_running_loop().time
        try:
            while self._rest is None or self._rest > 0:
                try:
                    data = os.read(self._fd, BLOCK)
                except BlockingIOError:
                    if self._rest is not None:
                        return
                    await self._readable()
                    turns = 0
                    continue
                if not data:
                    return
                if self._rest is not None:
                    self._rest -= len(data)
                await self._write(data)
                if len(data) < SMALL:
                    # Small reads in a row: the child gathers more in a pause. One that writes much is never
                    # held up, for then the pipe is half full again at once; a single line costs no pause.
                    if clock() - small_at < 2 * PAUSE_S and self._rest is None:
                        await asyncio.sleep(PAUSE_S)
                        turns = 0
                    small_at = clock()
                elif (turns := turns + 1) == _TURNS:
                    await asyncio.sleep(0)
                    turns = 0
        finally:
            self.close()

    def drain(self) -> None:
        """The process ended: reads what the pipe holds now, then ends, even if others keep the pipe open."""
        if self._open and self._rest is None:
            held = fcntl.ioctl(self._fd, termios.FIONREAD, bytes(4))
            self._rest = int(struct.unpack("i", held)[0])
            self._wake()

    def close(self) -> None:
        """Closes the pipe. A child that writes on gets EPIPE. `run` does it by itself."""
        if self._open:
            self._open = False
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        loop.add_reader(self._fd, self._wake)
        try:
            await self._waiting
        finally:
            self._waiting = None
            loop.remove_reader(self._fd)

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
