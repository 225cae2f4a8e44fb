"""How a connection is made: the client library's options out of the settings, when to try again, why it
failed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import nats.errors
from nats.aio.client import Server

from bakemesh.bus.errors import AccessDenied, BadCredentials, BusError, BusUnreachable
from bakemesh.bus.settings import BusSettings, Credentials

PING_INTERVAL_S = 2  # with two unanswered pings a dead link is dropped after about 5 s
PINGS_UNANSWERED = 2
FIRST_RETRY_S = 0.1
LONGEST_RETRY_S = 2.0
ATTEMPT_S = 2  # the client library takes whole seconds


def options(settings: BusSettings) -> dict[str, Any]:
    """What the client library's `connect` takes, without its callbacks. Raises BadCredentials."""
    made: dict[str, Any] = {
        "servers": list(settings.servers),
        "name": settings.sender,
        "inbox_prefix": f"_INBOX.{settings.party}",
        "allow_reconnect": True,
        "max_reconnect_attempts": -1,
        "reconnect_time_wait": FIRST_RETRY_S,
        "reconnect_to_server_handler": next_server,
        "connect_timeout": ATTEMPT_S,
        "ping_interval": PING_INTERVAL_S,
        "max_outstanding_pings": PINGS_UNANSWERED,
        "drain_timeout": settings.close_timeout_s,
    }
    try:
        if settings.tls:
            made["tls"] = settings.tls.context()
        if settings.credentials:
            made |= _login(settings.credentials)
    except (OSError, UnicodeError) as error:
        raise BadCredentials(f"credentials cannot be read: {error}") from error
    return made


def _login(given: Credentials) -> dict[str, str]:
    seed = given.nkey_file.read_text("ascii").strip() if given.nkey_file else given.nkey_seed
    pairs = {"nkeys_seed_str": seed, "user": given.user, "password": given.password, "token": given.token}
    return {key: value for key, value in pairs.items() if value is not None}


def next_server(pool: list[Server], _info: dict[str, Any]) -> tuple[Server, float]:
    """Which server to try next, and after how many seconds: the one with the fewest failures, with jitter, so
    that a restarted server is not met by all at once.
    """
    chosen = min(pool, key=lambda server: server.reconnects)
    longest = min(LONGEST_RETRY_S, FIRST_RETRY_S * 2 ** min(chosen.reconnects, 10))
    return chosen, random.uniform(FIRST_RETRY_S / 2, longest)


def is_refusal(error: Exception) -> bool:
    """Whether a server refused the credentials, so that trying again is of no use."""
    text = str(error).lower()
    return isinstance(error, nats.errors.AuthorizationError) or "authorization violation" in text


def why_not(
    settings: BusSettings, error: BaseException | None, refusal: str | None, reasons: Sequence[str]
) -> BusError:
    """The typed error of a connection that was not made.

    `error`: what the client library ended with, None where its time was up; `refusal`: the server's words;
    `reasons`: what failed on the way.
    """
    if refusal is not None:
        return AccessDenied("connect", ", ".join(settings.servers), who=settings.party, reason=refusal)
    if isinstance(error, ImportError):
        return BadCredentials("nkey credentials need the extra: pip install 'bakemesh[auth]'")
    if error is None or isinstance(error, nats.errors.Error | OSError | TimeoutError):
        seen = [*reasons, str(error)] if error else reasons
        return BusUnreachable(settings.servers, seen, settings.connect_timeout_s)
    return BadCredentials(f"the credentials or the address cannot be used: {error or type(error).__name__}")
