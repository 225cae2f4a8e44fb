"""Whether the request was here before. It is written down before anything else is done for it."""

from __future__ import annotations

from collections.abc import Callable

from bakemesh.axon.exchange import Exchange
from bakemesh.axon.refused import Refused
from bakemesh.axon.replay import Replay
from bakemesh.axon.seen import Novelty, entry_of
from bakemesh.protocol.axon.errors import NotVerified
from bakemesh.protocol.axon.freshness import Window
from bakemesh.protocol.axon.verdicts import Verdict


class OnlyOnce:
    """The step; it comes after the verification, so nobody can use up another one's nonces."""

    def __init__(self, replay: Replay, window: Window, now_ns: Callable[[], int]) -> None:
        self._replay, self._now_ns = replay, now_ns
        self._wait_s = (window.back_ms + window.ahead_ms) / 1000

    def __call__(self, exchange: Exchange) -> None:
        """Raises NotVerified, Refused. A route with a `verify_fn` looks after that itself."""
        claim = exchange.claim
        if claim is None or exchange.route.verify is not None:
            return
        found = self._replay.record(entry_of(*claim.replay_key), self._now_ns())
        if found is Novelty.NEW:
            return
        if found is Novelty.SEEN:
            raise NotVerified(Verdict.REPLAYED, "Nonce was seen already: the same request came before")
        if found is Novelty.FORGOTTEN:
            told = "Nonce is of a time whose requests are forgotten: the clock of this axon was set back"
            raise NotVerified(Verdict.STALE, told)
        if found is Novelty.CLIENT_FULL:
            told = f"this hotkey has sent too many requests within {self._wait_s:g} seconds"
            raise Refused(Verdict.TOO_MANY, told, retry_after_s=self._wait_s)
        raise Refused(
            Verdict.OVERLOADED, "the gateway cannot remember more requests", retry_after_s=self._wait_s
        )
