"""Who signed the request: its claim, whether it is fresh and for this axon, and the signature.

A hotkey of the deny list is answered as a wrong signature is, after the checks that cost nothing and in the
place of the one that does: who does not hold the hotkey learns nothing about the list, and a flood in its
name costs no signature. (What is left to measure is the time that the signature would have taken.)
A route's own `verify_fn` takes the place of all this; the hotkey that it let through is the one claimed.
Only `btauth/1` needs the body for it; for the others nothing is read for who is not verified. So of its
requests no more than `unverified` at once are waited for, and none whose headers are wrong already.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import Executor

from bakemesh.axon.calling import call
from bakemesh.axon.denied import DenyList
from bakemesh.axon.exchange import Exchange
from bakemesh.axon.limiter import Gate
from bakemesh.axon.refused import Refused
from bakemesh.edge.functions import Function
from bakemesh.protocol.axon import claims, keys
from bakemesh.protocol.axon.claims import Family
from bakemesh.protocol.axon.errors import NotVerified, SynapseError
from bakemesh.protocol.axon.freshness import Window
from bakemesh.protocol.axon.profiles import Profile
from bakemesh.protocol.axon.verdicts import Verdict

_BTAUTH = keys.BTAUTH_VERSION.lower()  # without it there is no claim of that family
_BT_HEADER = keys.DENDRITE_PREFIX + "hotkey"
RETRY_S = 1.0


class Verification:
    """The step. `now_ns`: the clock of nonces."""

    def __init__(
        self,
        own_hotkey: str,
        window: Window,
        denied: DenyList,
        now_ns: Callable[[], int],
        body_bytes: int,
        unverified: int,
        executor: Executor,
    ) -> None:
        self._own, self._window, self._denied, self._now_ns = own_hotkey, window, denied, now_ns
        self._body_bytes = body_bytes
        self._strangers = Gate(unverified)
        self._executor = executor

    def __call__(self, exchange: Exchange) -> Awaitable[None] | None:
        """Writes `claim` and `hotkey`, and `profile` where the headers tell it. Raises NotVerified,
        InvalidHeaderValue, Refused.
        """
        if exchange.route.verify is not None:
            return self._by_route(exchange, exchange.route.verify)
        headers = exchange.headers
        if _BTAUTH in headers and _BT_HEADER not in headers:
            return self._with_body(exchange)
        self._check(exchange, b"")
        return None

    async def _with_body(self, exchange: Exchange) -> None:
        exchange.profile = Profile.BTAUTH  # so that a refusal has its form, too
        self._cheaply(exchange, b"")
        self._check(exchange, await self._strange(exchange))

    async def _strange(self, exchange: Exchange) -> bytes:
        """The body of somebody who is not verified: of these there are never so many that others find no
        place.
        """
        gate = self._strangers
        if gate.full:
            told = f"the gateway reads {gate.running} bodies for their signatures, the most it does at once"
            raise Refused(Verdict.OVERLOADED, told, retry_after_s=RETRY_S, unsigned=True)
        gate.running += 1
        try:
            return await exchange.body(self._body_bytes)
        finally:
            gate.running -= 1

    def _check(self, exchange: Exchange, body: bytes) -> None:
        claim = self._cheaply(exchange, body)
        claims.check_signature(claim)
        exchange.hotkey = claim.hotkey

    def _cheaply(self, exchange: Exchange, body: bytes) -> claims.Claim:
        """All but the signature."""
        exchange.claim = claim = self._claim(exchange, body)
        claims.check_unsigned(claim, self._own, self._now_ns(), self._window)
        if self._denied.hotkey(claim.hotkey):
            raise claims.bad_signature()
        return claim

    def _claim(self, exchange: Exchange, body: bytes) -> claims.Claim:
        method, target = exchange.scope["method"], exchange.target
        return claims.claim_of(exchange.headers, self._own, method=method, target=target, body=body)

    async def _by_route(self, exchange: Exchange, verify: Function) -> None:
        body = b""
        if claims.family(exchange.headers) is Family.BTAUTH:
            exchange.profile = Profile.BTAUTH
            body = await self._strange(exchange)
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
