"""The text of a key file: a line of JSON a key. Pure.

{"name": "app", "sha256": "9f86d0…", "created": "2026-01-02T03:04:05Z"}
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

PREFIX = "bm-"
SECRET_BYTES = 32
_SECRET = re.compile(r"bm-[A-Za-z0-9_-]{43}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)


class KeyFileRefused(Exception):
    """Raised when a key file cannot be used or changed: what is wrong, where, and what would be right."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What is kept of a key. `digest`: the SHA-256 of the whole key as text, in hexadecimal."""

    name: str
    digest: str
    created: str


def new_secret() -> str:
    """A key that nobody else has."""
    return PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def digest_of(secret: str) -> str | None:
    """What is kept of it; None: it cannot be a key."""
    return hashlib.sha256(secret.encode()).hexdigest() if _SECRET.fullmatch(secret) else None


def made(name: str, secret: str, now: datetime) -> ApiKey:
    """The entry of a new key. Raises KeyFileRefused for a name that cannot be one."""
    if _NAME.fullmatch(name) is None:
        raise KeyFileRefused(f"name {name[:80]!r}: expected 1 to 64 letters, digits, dots, `_` and `-`")
    digest = digest_of(secret)
    assert digest is not None
    return ApiKey(name, digest, now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))


def read(text: str, where: str) -> tuple[ApiKey, ...]:
    """The keys of a file's text. Raises KeyFileRefused, which names the line."""
    found: dict[str, ApiKey] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        key = _key(line)
        if key is None:
            told = 'expected {"name": …, "sha256": 64 hexadecimal digits, "created": …}'
            raise KeyFileRefused(f"{where}, line {number}: {told}; `bakemesh axon-key new NAME` writes it")
        if key.name in found:
            raise KeyFileRefused(f"{where}, line {number}: {key.name!r} is there twice; remove one")
        found[key.name] = key
    return tuple(found.values())


def written(keys: Iterable[ApiKey]) -> str:
    """The text of a file with these keys."""
    rows = ({"name": key.name, "sha256": key.digest, "created": key.created} for key in keys)
    return "".join(json.dumps(row) + "\n" for row in rows)


def _key(line: str) -> ApiKey | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    name, digest, created = (found.get(entry) for entry in ("name", "sha256", "created"))
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        return None
    if not (isinstance(digest, str) and _DIGEST.fullmatch(digest) and isinstance(created, str)):
        return None
    return ApiKey(name, digest, created)
