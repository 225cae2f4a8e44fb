"""Whether the hotkey has too much already. Only verified ones are counted, so nobody can use up another's."""

from __future__ import annotations

from bakemesh.axon.exchange import Exchange
from bakemesh.axon.limiter import Clients
from bakemesh.axon.refused import Refused
from bakemesh.protocol.axon.verdicts import Verdict


class Limits:
    """The step. What it let in is counted until `left`."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def __call__(self, exchange: Exchange) -> None:
        """Raises Refused."""
        if not exchange.hotkey:
            return
        busy = self._clients.enter(exchange.hotkey, exchange.began)
        if busy is not None:
            raise Refused(Verdict.TOO_MANY, busy.reason, retry_after_s=busy.retry_after_s)
        exchange.counted = True

    def left(self, exchange: Exchange) -> None:
        """The request is over."""
        if exchange.counted:
            self._clients.leave(exchange.hotkey)
