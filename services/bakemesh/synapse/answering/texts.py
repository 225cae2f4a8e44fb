"""Texts into ids, without ever holding up the loop: a few short ones where they come, the rest in a thread.

Left out: the tokenizers themselves (`models`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from bakemesh.protocol.inference.errors import Code, error_of
from bakemesh.synapse.answering.request import Request
from bakemesh.synapse.answering.shelf import Known
from bakemesh.synapse.scheduling.asks import TAKEN_BACK, Failed

INLINE_CHARACTERS: Final = 2048  # about a millisecond
THREADS: Final = 2
_LONGEST_WAIT_S: Final = 3600.0

T = TypeVar("T")


def inline(known: Known, characters: int) -> bool:
    """Whether so many characters of this model are read where they come. A vocabulary that nobody has used
    yet is made first, and that takes long."""
    return known.warm and characters <= INLINE_CHARACTERS


class Texts:
    """The threads; `close` ends them."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="tokenizer")

    async def made(self, request: Request, known: Known, make: Callable[[], T]) -> T:
        """What `make` gives, from a thread. Raises what it raises; Failed where the caller's time is over, or
        it takes the request back, before that.
        """
        loop = asyncio.get_running_loop()
        making = loop.run_in_executor(self._threads, make)
        gone: asyncio.Future[Any] = loop.create_future()
        request.on_cancel(lambda: None if gone.done() else gone.set_result(None))
        try:
            left = max(0.0, min(request.deadline - loop.time(), _LONGEST_WAIT_S))
            await asyncio.wait({making, gone}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if making.done():
                found = making.result()
                known.warm = True
                return found
        finally:
            gone.cancel()
        making.cancel()
        making.add_done_callback(_looked_at)
        if request.cancelled:
            raise Failed(TAKEN_BACK)
        raise Failed(error_of(Code.DEADLINE_EXCEEDED, "the caller's time was over while its texts were read"))

    async def warm(self, known: Known) -> None:
        """Makes the model's vocabulary ready. Raises ModelError, OSError."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._threads, lambda: known.model.tokenizer)
        known.warm = True

    def close(self) -> None:
        """Ends the threads once what they do is done."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _looked_at(making: asyncio.Future[Any]) -> None:
    if not making.cancelled():
        making.exception()
