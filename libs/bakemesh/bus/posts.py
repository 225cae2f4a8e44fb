"""The stream of durable posts: `<mesh>-posts` on the hub; its subjects are exactly the types that ask for it.

`ensure_posts` adds types and never takes one away: what is stored stays readable to the end of its time.
Guarantees: when it returns, a post of each type is stored. It is safe for several Builders at once, since
the list of subjects has one writer in the mesh, by the lock `lock.posts`; types that are there already need
no lock. While the hub is away it waits, and says so. Left out: publishing (`Bus.publish_stored`) and reading
(`inbox.Source`).
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bakemesh.bus.claim import ClaimHeld, Lock
from bakemesh.bus.connection import Bus
from bakemesh.bus.errors import BusError, NameTaken, NoRoom, NotConnected, NotFound, StoreUnavailable
from bakemesh.bus.jsapi import JsApi
from bakemesh.bus.kv import Bucket
from bakemesh.bus.streams import StoreTooSmall, create_stream, free_store, stream_config
from bakemesh.protocol import storage, subjects
from bakemesh.protocol.errors import NameRefused

log = logging.getLogger(__name__)

LOCK = "posts"
POSTS_BYTES = 256 * 2**20
KEPT_S = 7 * 24 * 3600
_TURN_S = (0.05, 0.3)
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0

OnWait = Callable[[str], None]


class PostTypeRefused(BusError):
    """Raised when a type cannot be stored as a post: `types` with the reason of each."""

    def __init__(self, types: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"durable post type {type_}: {why}" for type_, why in types.items()))
        self.types = dict(types)


def subject_of(mesh: str, type_: str) -> str:
    """The stream's subject for a type: from any node, any party."""
    return subjects.pattern(mesh, type_)


def refused(types: Iterable[str]) -> dict[str, str]:
    """The types that cannot be posts, with why. Pure."""
    out: dict[str, str] = {}
    for type_ in types:
        if "*" in type_ or ">" in type_:
            out[type_] = "must be a concrete type; only triggers may hold `*`"
        elif subjects.travels(type_) is not None:
            out[type_] = "is a type of the contract itself; choose another name"
        else:
            try:
                subjects.build("m", "n", "p", subjects.NO_KEY, type_)
            except NameRefused as error:
                out[type_] = str(error)
    return out


async def ensure_posts(bus: Bus, types: Iterable[str], *, waiting: OnWait | None = None) -> None:
    """Makes `<mesh>-posts` store these concrete types. Waits for ever for a hub that is away; `waiting`
    hears why, and so does the log.

    Raises PostTypeRefused (no such type can be a post, or another stream stores it; the other types are
    taken all the same), StoreTooSmall, NoStore, AccessDenied, BusClosed.
    """
    wanted = sorted(set(types))
    if wrong := refused(wanted):
        raise PostTypeRefused(wrong)
    pause, said = _FIRST_PAUSE_S, ""
    while wanted:
        try:
            if not _missing(bus.mesh, await _found(bus.hub_api, bus.mesh), wanted):
                return
            await _add(bus, wanted)
            pause = _FIRST_PAUSE_S
        except ClaimHeld as error:
            log.debug("%s", error)
            await asyncio.sleep(random.uniform(*_TURN_S))  # its holder may add these types as well
        except (StoreUnavailable, NotConnected) as error:
            reason = f"durable posts wait for the hub: {error}"
            if reason != said:
                said = reason
                log.warning("%s", reason)
                if waiting is not None:
                    waiting(reason)
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE_S, pause * 2)


async def _found(api: JsApi, mesh: str) -> dict[str, Any] | None:
    """The stream's configuration, None where it is not there."""
    try:
        config: dict[str, Any] = (await api.stream_info(storage.posts_stream(mesh)))["config"]
    except NotFound:
        return None
    return config


def _missing(mesh: str, config: Mapping[str, Any] | None, types: Iterable[str]) -> list[str]:
    there = set((config or {}).get("subjects") or ())
    return [type_ for type_ in types if subject_of(mesh, type_) not in there]


async def _add(bus: Bus, types: list[str]) -> None:
    """One attempt, under the lock. It may change nothing: the caller looks again."""
    await Bucket(bus, storage.nodes_bucket(bus.mesh)).ensure()
    lock = Lock(bus, LOCK, f"{bus.settings.sender} {secrets.token_hex(8)}")
    try:
        await lock.take()
        config = await _found(bus.hub_api, bus.mesh)
        missing = _missing(bus.mesh, config, types)
        if missing and lock.held:
            await _store(bus, config, missing)
    finally:
        await lock.release()


async def _store(bus: Bus, config: dict[str, Any] | None, missing: list[str]) -> None:
    """All at once; where that is refused one by one, so that the one in the way can be named."""
    try:
        await _write(bus, config, missing)
        return
    except NameTaken:
        pass
    taken: dict[str, str] = {}
    for type_ in missing:
        try:
            config = await _write(bus, config, [type_])
        except NameTaken:
            taken[type_] = f"another stream on the hub stores {subject_of(bus.mesh, type_)} already"
    if taken:
        raise PostTypeRefused(taken)


async def _write(bus: Bus, config: dict[str, Any] | None, added: list[str]) -> dict[str, Any]:
    """Creates or changes the stream; gives its configuration. Raises NameTaken for an overlap."""
    api = bus.hub_api
    new = [subject_of(bus.mesh, type_) for type_ in added]
    try:
        if config is None:
            rules = {"max_age": KEPT_S * 10**9}
            made = await create_stream(
                api, stream_config(storage.posts_stream(bus.mesh), POSTS_BYTES, new) | rules
            )
        else:
            made = await api.update_stream(config | {"subjects": [*(config.get("subjects") or ()), *new]})
    except NoRoom as error:
        info = await api.account_info()
        raise StoreTooSmall(
            storage.posts_stream(bus.mesh),
            POSTS_BYTES,
            await free_store(api),
            int(info.get("reserved_storage", 0)),
        ) from error
    log.info("%s stores %s", storage.posts_stream(bus.mesh), ", ".join(added))
    found: dict[str, Any] = made["config"]
    return found
