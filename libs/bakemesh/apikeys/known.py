"""The keys that are known now: the file is read again when it has changed.

Guarantees: a key that was revoked is refused LOOK_S later at the latest; where the file is gone, or cannot be
read, no key is known. Nothing of a secret can be told by how long a look takes: what is looked up is its
hash, which nobody can steer, and what is found is compared in constant time.
"""

from __future__ import annotations

import hmac
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from bakemesh.apikeys.document import ApiKey, KeyFileRefused, digest_of
from bakemesh.apikeys.files import load

log = logging.getLogger(__name__)

LOOK_S = 1.0
_SCHEME = "bearer "
_Seen = tuple[int, int, int, int, int] | None


class KnownKeys:
    """Of one file; it need not be there yet."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path, clock
        self._keys: dict[str, ApiKey] = {}
        self._seen: _Seen = (-1, -1, -1, -1, -1)
        self._look_at = float("-inf")

    def name_of(self, authorization: str | None) -> str | None:
        """The name of the key in a header `Authorization: Bearer bm-…`; None: no key that is known."""
        if authorization is None or authorization[: len(_SCHEME)].lower() != _SCHEME:
            return None
        digest = digest_of(authorization[len(_SCHEME) :].strip(" "))
        if digest is None:
            return None
        self._look()
        key = self._keys.get(digest)
        return key.name if key is not None and hmac.compare_digest(key.digest, digest) else None

    def __len__(self) -> int:
        self._look()
        return len(self._keys)

    def _look(self) -> None:
        now = self._clock()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_S
        seen = self._state()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._keys = {key.digest: key for key in load(self._path)}
        except KeyFileRefused as error:
            self._keys = {}
            log.error("no API key is taken any more: %s", error)
        else:
            log.info("%d API keys of %s are taken", len(self._keys), self._path)

    def _state(self) -> _Seen:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode, found.st_uid
