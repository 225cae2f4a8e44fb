"""Which nonces were seen: the memory of replay protection. Pure: `now_ns` is given.

    record(client, key, nonce, now) ─→ NEW         the first of its kind: it may run
                                    ─→ SEEN        the same again
                                    ─→ CLIENT_FULL one hotkey has too many that are still fresh
                                    ─→ FULL        all together have
                                    ─→ FORGOTTEN   older than the newest that was ever forgotten

A nonce is remembered until it is stale by itself, in a bucket for the second it was made in; buckets go as
a whole. Guarantees: nothing that could be repeated is ever forgotten to make room: what does not fit is not
let in. Where the clock was ahead and is set back, what it made us forget is not let in again: all nonces up
to the newest of these are refused, until the clock has passed it once more. Memory: some 110 bytes a nonce,
`most` of them, `most_of_one` a hotkey. Left out: the disk (`journal`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from bakemesh.protocol.axon.freshness import Window, in_ns

DIGEST = 16
CLIENT = 8
_SECOND = 1_000_000_000


class Novelty(StrEnum):
    """What a nonce is."""

    NEW = "new"
    SEEN = "seen"
    CLIENT_FULL = "client_full"
    FULL = "full"
    FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True)
class Entry:
    """A request as it is remembered: `key`, of hotkey, uuid and nonce; `client`: of the hotkey alone."""

    client: bytes
    key: bytes
    nonce_ns: int


def entry_of(hotkey: str, uuid: str, nonce: int) -> Entry:
    """The same for the same three, however they were written."""
    told = hotkey.encode("utf-8", "surrogatepass")
    whole = b"%d\0%d\0%b%b" % (nonce, len(told), told, uuid.encode("utf-8", "surrogatepass"))
    return Entry(
        hashlib.blake2b(told, digest_size=CLIENT).digest(),
        hashlib.blake2b(whole, digest_size=DIGEST).digest(),
        in_ns(nonce),
    )


_MARK = bytes(DIGEST)  # the key of an entry that says how far all was forgotten


class Seen:
    """The nonces that are still fresh."""

    def __init__(self, window: Window, most: int, most_of_one: int) -> None:
        self._back_ns, self._ahead_ns = window.back_ms * 1_000_000, window.ahead_ms * 1_000_000
        self._most, self._most_of_one = most, most_of_one
        self._buckets: dict[int, dict[bytes, set[bytes]]] = {}  # second, client, keys
        self._of_one: dict[bytes, int] = {}
        self._count = 0
        self._swept = 0
        self._floor = 0  # a nonce of a second before this one may have been forgotten

    def __len__(self) -> int:
        return self._count

    def known(self, entry: Entry) -> bool:
        """Whether it was recorded."""
        keys = self._buckets.get(entry.nonce_ns // _SECOND, {}).get(entry.client)
        return keys is not None and entry.key in keys

    def record(self, entry: Entry, now_ns: int) -> Novelty:
        """Remembers it, where it is NEW."""
        self._sweep(now_ns)
        if self.known(entry):
            return Novelty.SEEN
        if entry.nonce_ns // _SECOND < self._floor:
            return Novelty.FORGOTTEN
        if self._of_one.get(entry.client, 0) >= self._most_of_one:
            return Novelty.CLIENT_FULL
        if self._count >= self._most:
            return Novelty.FULL
        self._keep(entry)
        return Novelty.NEW

    def restore(self, entry: Entry, now_ns: int) -> None:
        """Takes one of `entries` back, whatever the limits are now."""
        second = entry.nonce_ns // _SECOND
        if entry.key == _MARK:
            self._floor = max(self._floor, second)
        elif second < (now_ns - self._back_ns) // _SECOND:
            self._floor = max(self._floor, second + 1)
        elif not self.known(entry):
            self._keep(entry)

    def entries(self) -> Iterator[Entry]:
        """All that is remembered; the nonce to the second in which it was made."""
        return self._from(0)

    def ahead(self, now_ns: int) -> Iterator[Entry]:
        """Those of `entries` that are still fresh when everything that is fresh now is stale: where the clock
        was set back.
        """
        return self._from((now_ns + self._ahead_ns) // _SECOND)

    def _from(self, least: int) -> Iterator[Entry]:
        if self._floor:
            yield Entry(bytes(CLIENT), _MARK, self._floor * _SECOND)
        for second, bucket in self._buckets.items():
            if second >= least:
                for client, keys in bucket.items():
                    for key in keys:
                        yield Entry(client, key, second * _SECOND)

    def _keep(self, entry: Entry) -> None:
        bucket = self._buckets.setdefault(entry.nonce_ns // _SECOND, {})
        bucket.setdefault(entry.client, set()).add(entry.key)
        self._of_one[entry.client] = self._of_one.get(entry.client, 0) + 1
        self._count += 1

    def _sweep(self, now_ns: int) -> None:
        """Forgets what is stale by itself: the bucket's last nonce is out of the window."""
        stale = (now_ns - self._back_ns) // _SECOND  # a bucket before this second holds none that is fresh
        if stale == self._swept:
            return
        self._swept = stale
        for second in [each for each in self._buckets if each < stale]:
            self._floor = max(self._floor, second + 1)
            for client, keys in self._buckets.pop(second).items():
                self._count -= len(keys)
                left = self._of_one[client] - len(keys)
                if left:
                    self._of_one[client] = left
                else:
                    del self._of_one[client]
