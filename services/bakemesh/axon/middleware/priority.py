"""How urgent the request is: its route's `priority_fn`. A handler finds it in its Call."""

from __future__ import annotations

import math
from collections.abc import Awaitable
from concurrent.futures import Executor

from bakemesh.axon.calling import call
from bakemesh.axon.exchange import Exchange
from bakemesh.edge.errors import HandlerFailed
from bakemesh.edge.functions import Function


class Priority:
    """The step."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def __call__(self, exchange: Exchange) -> Awaitable[None] | None:
        """Writes `priority`. Raises what the function raises."""
        function = exchange.route.priority
        return None if function is None else self._ask(exchange, function)

    async def _ask(self, exchange: Exchange, function: Function) -> None:
        answer = await call(function, self._executor, exchange.headed(), exchange)
        try:
            priority = float(answer)
        except (TypeError, ValueError):
            priority = math.nan
        if math.isnan(priority):
            raise HandlerFailed(f"{function.name} returned {answer!r:.80}; a priority_fn returns a number")
        exchange.priority = priority
