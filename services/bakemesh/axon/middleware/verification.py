"""Who signed the request: its claim, whether it is fresh and for this axon, and the signature.

A hotkey of the deny list is answered as a wrong signature is, after the checks that cost nothing and in the
place of the one that does: who does not hold the hotkey learns nothing about the list, and a flood in its
name costs no signature. (What is left to measure is the time that the signature would have taken.)
A route's own `verify_fn` takes the place of all this; the hotkey that it let through is the one claimed.
Only `btauth/1` needs the body for it; for the others nothing is read for who is not verified.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import Executor

from bakemesh.axon.calling import call
from bakemesh.axon.denied import DenyList
from bakemesh.axon.exchange import Exchange
from bakemesh.axon.refused import Refused
from bakemesh.edge.functions import Function
from bakemesh.protocol.axon import claims, keys
from bakemesh.protocol.axon.claims import Family
from bakemesh.protocol.axon.errors import NotVerified, SynapseError
from bakemesh.protocol.axon.freshness import Window
from bakemesh.protocol.axon.verdicts import Verdict

_BTAUTH = keys.BTAUTH_VERSION.lower()  # without it there is no claim of that family
_BT_HEADER = keys.DENDRITE_PREFIX + "hotkey"


class Verification:
    """The step. `now_ns`: the clock of nonces."""

    def __init__(
        self,
        own_hotkey: str,
        window: Window,
        denied: DenyList,
        now_ns: Callable[[], int],
        body_bytes: int,
        executor: Executor,
    ) -> None:
        self._own, self._window, self._denied, self._now_ns = own_hotkey, window, denied, now_ns
        self._body_bytes = body_bytes
        self._executor = executor

    def __call__(self, exchange: Exchange) -> Awaitable[None] | None:
        """Writes `claim` and `hotkey`. Raises NotVerified, InvalidHeaderValue, Refused."""
        if exchange.route.verify is not None:
            return self._by_route(exchange, exchange.route.verify)
        headers = exchange.headers
        if _BTAUTH in headers and _BT_HEADER not in headers:
            return self._with_body(exchange)
        self._check(exchange, b"")
        return None

    async def _with_body(self, exchange: Exchange) -> None:
        self._check(exchange, await exchange.body(self._body_bytes))

    def _check(self, exchange: Exchange, body: bytes) -> None:
        exchange.claim = claim = self._claim(exchange, body)
        claims.check_unsigned(claim, self._own, self._now_ns(), self._window)
        if self._denied.hotkey(claim.hotkey):
            raise claims.bad_signature()
        claims.check_signature(claim)
        exchange.hotkey = claim.hotkey

    def _claim(self, exchange: Exchange, body: bytes) -> claims.Claim:
        method, target = exchange.scope["method"], exchange.target
        return claims.claim_of(exchange.headers, self._own, method=method, target=target, body=body)

    async def _by_route(self, exchange: Exchange, verify: Function) -> None:
        body = b""
        if claims.family(exchange.headers) is Family.BTAUTH:
            body = await exchange.body(self._body_bytes)
        try:
            exchange.claim = self._claim(exchange, body)
        except NotVerified:  # no claim, or half of one: it is for the function to say what that means
            exchange.claim = None
        try:
            await call(verify, self._executor, exchange.headed(), exchange)
        except SynapseError:
            raise
        except Exception as error:
            raise Refused(Verdict.BAD_SIGNATURE, f"Not Verified with error: {error}") from error
        if exchange.claim is not None:
            exchange.hotkey = exchange.claim.hotkey
