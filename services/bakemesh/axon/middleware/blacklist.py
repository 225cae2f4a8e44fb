"""Whether the route wants this hotkey: its author's `blacklist_fn`."""

from __future__ import annotations

from collections.abc import Awaitable
from concurrent.futures import Executor

from bakemesh.axon.calling import call
from bakemesh.axon.exchange import Exchange
from bakemesh.axon.refused import Refused
from bakemesh.edge.errors import HandlerFailed
from bakemesh.edge.functions import Function
from bakemesh.protocol.axon.verdicts import Verdict


class Blacklist:
    """The step. A function that fails is a failure, and nobody is let in."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def __call__(self, exchange: Exchange) -> Awaitable[None] | None:
        """Raises Refused, and what the function raises."""
        function = exchange.route.blacklist
        return None if function is None else self._ask(exchange, function)

    async def _ask(self, exchange: Exchange, function: Function) -> None:
        answer = await call(function, self._executor, exchange.headed(), exchange)
        listed, reason = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, "")
        if not isinstance(listed, bool):
            raise HandlerFailed(
                f"{function.name} returned {answer!r:.80}; a blacklist_fn returns a bool or (bool, reason)"
            )
        if listed:
            told = f"Forbidden. Key is blacklisted: {reason}." if reason else "Forbidden. Key is blacklisted."
            raise Refused(Verdict.BLACKLISTED, told)
