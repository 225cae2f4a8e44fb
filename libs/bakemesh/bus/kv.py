"""The hub's buckets, read and written from any server: a leaf's clients reach them by the hub's domain.

Values are bytes, one revision a key. A key with a time to live vanishes by itself, without a marker. Its time
is looked at here too: a server that was killed may have keys again that had vanished, then for good.
Compare-and-set is by the key's last revision. A write that was not acknowledged may have happened
(StoreTimeout): read before writing again. Left out: watching (subscribe what is published beside it),
history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from bakemesh.bus.errors import (
    NoStore,
    NotFound,
    RequestTimeout,
    StoreTimeout,
    StoreUnavailable,
    WrongSequence,
)
from bakemesh.bus.jsapi import HUB_DOMAIN, Stored
from bakemesh.bus.storing import parse_ack
from bakemesh.protocol import storage

if TYPE_CHECKING:
    from bakemesh.bus.connection import Bus

TTL = "Nats-TTL"
EXPECTED_LAST = "Nats-Expected-Last-Subject-Sequence"
OPERATION = "KV-Operation"
MARKER_S = 60  # how long a deleted key's marker stays
NO_MESSAGE = 10037
_TIMEOUT_S = 5.0
_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Entry:
    """A key's value and the revision that a compare-and-set names. `at`: when it was written, by the server's
    clock, in seconds since the epoch.
    """

    key: str
    value: bytes
    revision: int
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Look:
    """Every key with its entry, and when that was, by the server's clock."""

    entries: dict[str, Entry]
    at: float


def bucket_config(bucket: str, *, replicas: int = 1, max_bytes: int = -1) -> dict[str, Any]:
    """The stream of a bucket: history 1, a time to live for each key.

    `allow_direct` is off: a direct get would answer, with the server's own rights, to any subject one names.
    """
    return {
        "name": storage.bucket_stream(bucket),
        "subjects": [storage.bucket_subject(bucket, ">")],
        "max_msgs_per_subject": 1,
        "max_bytes": max_bytes,
        "num_replicas": replicas,
        "storage": "file",
        "discard": "new",
        "deny_delete": True,
        "allow_rollup_hdrs": True,
        "allow_direct": False,
        "allow_msg_ttl": True,
        "duplicate_window": 120_000_000_000,
    }


def seconds(time: str) -> float:
    """A server's time (RFC 3339) in seconds since the epoch; 0 where it says none."""
    try:
        return datetime.fromisoformat(time).timestamp()
    except ValueError:
        return 0.0


def _lives_s(ttl: str) -> float | None:
    """What `_write` says of the time to live; None where it says nothing."""
    number = ttl.removesuffix("s")
    return float(number) if number.isdecimal() and number.isascii() else None


class Bucket:
    """One bucket. Every method raises NotFound where the bucket does not exist, StoreUnavailable where the
    hub is out of reach, StoreTimeout, NotConnected, AccessDenied, and BusClosed.
    """

    def __init__(self, bus: Bus, name: str, *, timeout: float = _TIMEOUT_S) -> None:
        self.name = name
        self._bus, self._timeout = bus, timeout
        self._stream = storage.bucket_stream(name)
        self._prefix = storage.bucket_subject(name, "")
        self._seen = False

    async def ensure(self, *, replicas: int = 1) -> None:
        """Makes the bucket where it is missing; one that exists is left as it is."""
        try:
            await self._bus.hub_api.stream_info(self._stream)
        except NotFound:
            await self._bus.hub_api.create_stream(bucket_config(self.name, replicas=replicas))

    async def get(self, key: str) -> Entry | None:
        """The key's entry; None where it has none, was deleted, or has expired."""
        return await self._get(key, None)

    async def put(self, key: str, value: bytes, *, ttl_s: float | None = None) -> int:
        """Writes whatever is there; gives the revision. `ttl_s`: vanishes after that, rounded up to whole
        seconds.
        """
        return await self._write(key, value, ttl_s, None)

    async def create(self, key: str, value: bytes, *, ttl_s: float | None = None) -> int:
        """Writes where the key has no value. Raises WrongSequence where it has."""
        return await self.update(key, value, 0, ttl_s=ttl_s)

    async def update(self, key: str, value: bytes, revision: int, *, ttl_s: float | None = None) -> int:
        """Writes where the last revision is `revision`; 0: where the key has no value.

        Raises WrongSequence, whose `last` is the revision there is; 0 means that the key has expired.
        """
        try:
            return await self._write(key, value, ttl_s, revision)
        except WrongSequence as error:
            if revision or not error.last:
                raise
            marker = await self._marker(key)
            if marker is None:
                raise
            return await self._write(key, value, ttl_s, marker)

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        """Removes the key, where `revision` is given only if that is its last. Raises WrongSequence."""
        await self._write(key, b"", MARKER_S, revision, {OPERATION: "DEL"})

    async def entries(self, of: Callable[[str], bool] = lambda _key: True) -> dict[str, Entry]:
        """Every key (of those that `of` takes) with its entry, as of now; a key that goes meanwhile is left
        out.
        """
        return (await self.look(of)).entries

    async def look(self, of: Callable[[str], bool] = lambda _key: True) -> Look:
        """As `entries`, with the server's time: how old an entry is can be told whatever the clock here
        says.
        """
        info = await self._bus.hub_api.stream_info(self._stream, subjects_filter=self._prefix + ">")
        keys = (subject.removeprefix(self._prefix) for subject in info["state"].get("subjects") or {})
        wanted = sorted(key for key in keys if of(key))
        now = seconds(str(info.get("ts", "")))
        found: dict[str, Entry] = {}
        for start in range(0, len(wanted), _AT_ONCE):
            some = wanted[start : start + _AT_ONCE]
            for entry in await asyncio.gather(*(self._get(key, now) for key in some)):
                if entry is not None:
                    found[entry.key] = entry
        return Look(found, now)

    async def keys(self) -> list[str]:
        """Every key that has a value, in order."""
        return list(await self.entries())

    async def _get(self, key: str, now: float | None) -> Entry | None:
        """As `get`; `now` is the server's time where it is known."""
        try:
            found = await self._bus.hub_api.get_message(self._stream, last_of=self._prefix + key)
        except NotFound as error:
            if error.err_code == NO_MESSAGE:
                return None
            raise
        return None if await self._is_over(found, now) else self._entry(found)

    async def _marker(self, key: str) -> int | None:
        """The revision of what a key without a value left behind; None where it has one, or left nothing."""
        try:
            found = await self._bus.hub_api.get_message(self._stream, last_of=self._prefix + key)
        except NotFound:
            return None
        return found.sequence if await self._is_over(found, None) else None

    async def _is_over(self, stored: Stored, now: float | None) -> bool:
        """Whether it was deleted, or its time to live is over, by the server's clock."""
        if OPERATION in stored.headers or "Nats-Marker-Reason" in stored.headers:
            return True
        lives_s = _lives_s(stored.headers.get(TTL, ""))
        if lives_s is None:
            return False
        if now is None:
            info = await self._bus.hub_api.stream_info(self._stream)
            now = seconds(str(info.get("ts", "")))
        return now - seconds(stored.time) >= lives_s

    def _entry(self, stored: Stored) -> Entry:
        key = stored.subject.removeprefix(self._prefix)
        return Entry(key, stored.payload, stored.sequence, seconds(stored.time))

    async def _write(
        self,
        key: str,
        value: bytes,
        ttl_s: float | None,
        expected: int | None,
        headers: dict[str, str] | None = None,
    ) -> int:
        subject = self._prefix + key
        if self._bus.on_leaf and not self._seen:
            # Through the link a bucket that does not exist is silence, where a server of its own says so.
            await self._bus.hub_api.stream_info(self._stream)
            self._seen = True
        # A plain put on a leaf would look for the bucket there; the mapped subject finds the hub's.
        target = f"$JS.{HUB_DOMAIN}.API.{subject}" if self._bus.on_leaf else subject
        carried = dict(headers or {})
        if ttl_s is not None:
            carried[TTL] = f"{max(1, -int(-ttl_s // 1))}s"
        if expected is not None:
            carried[EXPECTED_LAST] = str(expected)
        try:
            answer = await self._bus.link.exchange(target, value, self._timeout, carried or None)
        except RequestTimeout:
            raise StoreTimeout(
                subject, f"not acknowledged in {self._timeout:g} s; it may be written"
            ) from None
        try:
            return parse_ack(subject, answer).seq
        except NoStore:
            await self._why_not()
            raise

    async def _why_not(self) -> None:
        """Tells a missing bucket from a hub that is out of reach. Raises NotFound or StoreUnavailable."""
        await self._bus.hub_api.stream_info(self._stream)
        raise StoreUnavailable(self.name, "the bucket is there and did not answer; try again")
