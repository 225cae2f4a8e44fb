"""One request on its way through the steps, and what each of them has found out.

    headers ─→ claim ─→ hotkey ─→ priority ─→ body ─→ profile, synapse

Every step reads what those before it wrote. Guarantee: `hotkey` is there only when it was verified.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Awaitable, Callable, MutableMapping
from functools import lru_cache
from typing import Any

from bakemesh.axon.refused import ClientGone, Refused
from bakemesh.edge.axon import Route
from bakemesh.edge.call import Call
from bakemesh.protocol.axon import keys
from bakemesh.protocol.axon.claims import Claim
from bakemesh.protocol.axon.errors import InvalidHeaderValue
from bakemesh.protocol.axon.profiles import Profile
from bakemesh.protocol.axon.synapse import TIMEOUT_S, Synapse, shape
from bakemesh.protocol.axon.terminal import TerminalInfo, number
from bakemesh.protocol.axon.verdicts import Verdict

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Exchange:
    """`began`: by the loop's clock. `watched`: inputs that the sdk profile does not sign, with defaults."""

    __slots__ = (
        "_body",
        "_headed",
        "_receive",
        "began",
        "claim",
        "counted",
        "deadline",
        "dendrite",
        "headers",
        "hotkey",
        "ip",
        "port",
        "priority",
        "profile",
        "route",
        "scope",
        "synapse",
        "timeout",
        "watched",
    )

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        route: Route,
        watched: tuple[tuple[str, Any], ...],
        headers: dict[str, str],
        began: float,
    ) -> None:
        self.scope, self.route, self.watched, self.headers, self.began = scope, route, watched, headers, began
        self._receive = receive
        self._body: bytes | None = None
        self._headed: Synapse | None = None
        client = scope.get("client")
        self.ip: str = client[0] if client else ""
        self.port: int | None = client[1] if client else None
        self.timeout = TIMEOUT_S
        self.deadline = math.inf
        self.claim: Claim | None = None
        self.hotkey = ""
        self.counted = False
        self.priority = 0.0
        self.profile: Profile | None = None
        self.synapse: Synapse | None = None
        self.dendrite: TerminalInfo | None = None

    def time(self, limit_s: float) -> None:
        """Reads how long it may take, at most `limit_s`. Raises InvalidHeaderValue."""
        text = self.headers.get(keys.TIMEOUT)
        if text is not None:
            try:
                self.timeout = number(text)
            except ValueError as error:
                raise InvalidHeaderValue(keys.TIMEOUT, error) from None
            if not self.timeout >= 0:
                raise InvalidHeaderValue(keys.TIMEOUT, f"{text[:40]} is no number of seconds from 0 on")
        self.deadline = self.began + min(self.timeout, limit_s)

    @property
    def target(self) -> str:
        """The path with its query, as it stands in the request line."""
        path = (self.scope.get("raw_path") or self.scope["path"].encode()).decode("latin-1")
        query = self.scope["query_string"].decode("latin-1")
        return f"{path}?{query}" if query else path

    async def body(self, limit: int) -> bytes:
        """The whole body, read once. Raises Refused where it is larger than `limit`, ClientGone."""
        if self._body is None:
            self._body = await whole(self._receive, limit, self.headers.get("content-length"))
        return self._body

    def who(self) -> TerminalInfo:
        """The dendrite: what its headers say, the verified hotkey, and the address it came from."""
        if self.dendrite is None:
            self.dendrite = TerminalInfo.from_headers_with_prefix(self.headers, keys.DENDRITE_PREFIX)
            told = self.dendrite.__dict__
            told["ip"], told["port"] = self.ip or None, self.port
            if self.claim is not None:
                told["hotkey"], told["nonce"] = self.claim.hotkey, self.claim.nonce
        return self.dendrite

    def headed(self) -> Synapse:
        """The synapse as the headers say it: its inputs are defaults, since the body is not read yet."""
        if self._headed is None:
            made = self._headed = bare(self.route.synapse)
            self.address(made)
        return self._headed

    def address(self, synapse: Synapse) -> None:
        """Puts what is known of the request in the place of what its body claims."""
        told = synapse.__dict__
        told["name"], told["timeout"], told["dendrite"] = self.route.name, self.timeout, self.who()
        told["axon"] = TerminalInfo.from_headers_with_prefix(self.headers, keys.AXON_PREFIX)
        told["computed_body_hash"] = self.headers.get(keys.COMPUTED_BODY_HASH, "")

    def call(self) -> Call:
        """What is told to a user's function."""
        return Call(
            self.hotkey,
            self.profile,
            self.priority,
            self.deadline,
            self.ip,
            self.headers.get("traceparent"),
        )


def bare(kind: type[Synapse]) -> Synapse:
    """A synapse whose inputs are their defaults, or something empty of their kind."""
    return kind.model_construct(**{name: json.loads(text) for name, text in _empty(kind)})


@lru_cache(maxsize=1024)
def _empty(kind: type[Synapse]) -> tuple[tuple[str, bytes], ...]:
    prefix = len(keys.INPUT_OBJ_PREFIX)
    return tuple((key[prefix:], base64.b64decode(text)) for key, text in shape(kind).dummies.items())


async def whole(receive: Receive, limit: int, announced: str | None) -> bytes:
    """A body. Raises Refused where it is, or is announced to be, larger than `limit`; ClientGone."""
    if announced is not None and announced.isdecimal() and int(announced[:20]) > limit:
        raise too_large(limit)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise too_large(limit)
        if not message.get("more_body", False):
            return b"".join([*parts, part]) if parts else bytes(part)
        parts.append(part)


def too_large(limit: int) -> Refused:
    """What a body above the limit is answered with."""
    return Refused(Verdict.BODY_TOO_LARGE, f"the body has more than {limit} bytes", unsigned=True)
