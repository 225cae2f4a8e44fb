"""How a user's function is run: a plain one in a thread, an async one in the loop.

Guarantees: a plain function never blocks the loop; whatever a function raises, `sys.exit` too, fails its own
request alone. Left out: ending a thread, which nothing can; one that goes
on after its request is over keeps its place in the pool.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

from bakemesh.axon.exchange import Exchange
from bakemesh.edge.errors import HandlerFailed
from bakemesh.edge.functions import Function, Kind
from bakemesh.protocol.axon.synapse import Synapse


async def call(function: Function, executor: Executor, synapse: Synapse, exchange: Exchange) -> Any:
    """What it returns; a generator is returned as it is. Raises what it raises, HandlerFailed where that
    would end more than its request.
    """
    given = (synapse, exchange.call()) if function.takes_call else (synapse,)
    if function.kind is Kind.STREAM:
        return function.call(*given)
    with contained(function):
        if function.kind is Kind.ASYNC:
            return await function.call(*given)
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(executor, _plainly, function, given)
        return await found if inspect.isawaitable(found) else found


@contextmanager
def contained(function: Function) -> Iterator[None]:
    """A handler that exits, or is cancelled though its request is not, has failed. Raises HandlerFailed."""
    try:
        yield
    except Exception:
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise HandlerFailed(f"{function.name} was cancelled by itself") from error
    except BaseException as error:
        raise HandlerFailed(f"{function.name} raised {error!r:.80}") from error


def _plainly(function: Function, given: tuple[Any, ...]) -> Any:
    try:
        return function.call(*given)
    except StopIteration as error:  # a future cannot hold one
        raise RuntimeError(f"{function.name} raised StopIteration") from error
