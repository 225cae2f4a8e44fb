"""How a request ends at the gateway, and the HTTP status of each end. Pure data.

The codes are those of the bittensor-synapse document where it gives one, else what HTTP means. Where the real
axon answers otherwise, protocol/axon-v1.md, section 9, says so.
"""

from __future__ import annotations

import re
from enum import StrEnum


class Verdict(StrEnum):
    """Every end of a request."""

    OK = "ok"
    MALFORMED = "malformed"  # both header families, a header twice, a value that cannot be read
    UNSIGNED = "unsigned"  # what a signature needs is missing
    BAD_SIGNATURE = "bad_signature"
    WRONG_RECEIVER = "wrong_receiver"  # signed for another axon
    STALE = "stale"  # the nonce is outside the window
    REPLAYED = "replayed"
    BAD_KEY = "bad_key"  # an API key that is unknown, or none where one is needed
    BLACKLISTED = "blacklisted"
    UNKNOWN_ROUTE = "unknown_route"
    WRONG_METHOD = "wrong_method"
    TIMED_OUT = "timed_out"
    BODY_TOO_LARGE = "body_too_large"
    HEADERS_TOO_LARGE = "headers_too_large"
    BODY_MISMATCH = "body_mismatch"  # the body is not what was signed
    BAD_BODY = "bad_body"  # not JSON, or not what the class says
    BAD_TENSOR = "bad_tensor"
    TOO_MANY = "too_many"  # this hotkey's rate or its requests at once
    OVERLOADED = "overloaded"
    FAILED = "failed"  # the handler raised


HTTP_STATUS: dict[Verdict, int] = {
    Verdict.OK: 200,
    Verdict.MALFORMED: 400,
    Verdict.UNSIGNED: 401,
    Verdict.BAD_SIGNATURE: 401,
    Verdict.WRONG_RECEIVER: 401,
    Verdict.STALE: 401,
    Verdict.REPLAYED: 401,
    Verdict.BAD_KEY: 401,
    Verdict.BLACKLISTED: 403,
    Verdict.UNKNOWN_ROUTE: 404,
    Verdict.WRONG_METHOD: 405,
    Verdict.TIMED_OUT: 408,
    Verdict.BODY_TOO_LARGE: 413,
    Verdict.HEADERS_TOO_LARGE: 431,
    Verdict.BODY_MISMATCH: 400,
    Verdict.BAD_BODY: 422,
    Verdict.BAD_TENSOR: 400,
    Verdict.TOO_MANY: 429,
    Verdict.OVERLOADED: 503,
    Verdict.FAILED: 500,
}

LONGEST_REASON = 256
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")
_UNSAFE = re.compile(r"[^\x20-\x7e]|%")


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))


def printable(value: str) -> str:
    """A text as it may stand in a header: itself, or %XX of UTF-8 for all but printable ASCII and `%`."""
    return value if _UNPRINTABLE.search(value) is None else _UNSAFE.sub(_percent, value)


def escaped(reason: str) -> str:
    """A reason as it may stand in a header, bounded: all but printable ASCII, and `%`, is %XX of UTF-8."""
    safe = _UNSAFE.sub(_percent, reason[:LONGEST_REASON])
    if len(safe) > LONGEST_REASON:
        safe = re.sub(r"%.?$", "", safe[:LONGEST_REASON])
    return safe.strip(" ")
