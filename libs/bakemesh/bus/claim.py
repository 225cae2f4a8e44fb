"""Claims and locks: a key of a bucket that one owner holds and renews, and that is free again when he stops.

    free --take--> held --renewed every third of its time--> held --release--> free
                     |-- cannot be renewed --> uncertain --renewed--> held
                     |                             `-- another took it --> lost
                     `-- another took it --> lost

The key lives `ttl_s`. It is taken and renewed by compare-and-set, so two owners never both succeed. `held`
turns false by this side's own clock once the time is over, whether or not the bus can be reached. Nothing
here stops a process: what a lost or uncertain claim means is its holder's business.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from bakemesh.bus.errors import BusError, WrongSequence
from bakemesh.bus.kv import Bucket, Entry
from bakemesh.protocol import storage

if TYPE_CHECKING:
    from bakemesh.bus.connection import Bus

log = logging.getLogger(__name__)

TTL_S = 10.0
RENEWALS = 3  # in the time of one life
_LOOK_S = 0.5


class ClaimHeld(BusError):
    """Raised when somebody else holds the key; `holder` is what he wrote of himself."""

    def __init__(self, key: str, holder: str) -> None:
        super().__init__(f"{key} is held by {holder}")
        self.key, self.holder = key, holder


class ClaimState(StrEnum):
    """What became of a claim."""

    HELD = "held"
    UNCERTAIN = "uncertain"  # it could not be renewed; on the server it may have ended
    LOST = "lost"  # another holds it


@dataclass(frozen=True, slots=True)
class ClaimEvent:
    """A change. `detail`: why it is uncertain, or who has it."""

    key: str
    state: ClaimState
    detail: str = ""


class Claim:
    """One key of a bucket. `owner` tells this holder from all others; what has the same `owner`, or one of
    `former` (holders that are known to be dead), is taken over at once. `shown` is for people who read the
    claim.
    """

    def __init__(
        self,
        bucket: Bucket,
        key: str,
        owner: str,
        *,
        former: Collection[str] = (),
        shown: str = "",
        ttl_s: float = TTL_S,
    ) -> None:
        self.key, self.owner, self.ttl_s = key, owner, ttl_s
        self._ours = frozenset((owner, *former))
        self._bucket = bucket
        self._value = json.dumps({"owner": owner, "holder": shown or owner}).encode()
        self._revision = 0
        self._until = 0.0
        self._state: ClaimState | None = None
        self._callbacks: list[Callable[[ClaimEvent], None]] = []
        self._renewing: asyncio.Task[None] | None = None

    @property
    def held(self) -> bool:
        """Whether it is certainly this owner's now."""
        return self._state is not None and asyncio.get_running_loop().time() < self._until

    def on_change(self, callback: Callable[[ClaimEvent], None]) -> None:
        """Calls back, in the loop, whenever the claim changes."""
        self._callbacks.append(callback)

    async def take(self, wait_s: float = 0.0) -> None:
        """Takes it, waiting up to `wait_s` for another holder to go, and keeps it by renewing.

        Raises ClaimHeld, and what the bucket raises.
        """
        deadline = asyncio.get_running_loop().time() + wait_s
        while True:
            holder = await self._try()
            if holder is None:
                break
            if asyncio.get_running_loop().time() >= deadline:
                raise ClaimHeld(self.key, holder)
            await asyncio.sleep(_LOOK_S)
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew_for_ever())

    async def try_take(self) -> bool:
        """As `take`, at once; false where another holds it."""
        try:
            await self.take()
        except ClaimHeld:
            return False
        return True

    async def release(self) -> None:
        """Gives it up, as far as the bus can be reached; else it ends by its time. Idempotent."""
        renewing, self._renewing = self._renewing, None
        if renewing is not None:
            renewing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await renewing
        revision, self._revision, self._until, self._state = self._revision, 0, 0.0, None
        if revision:
            with contextlib.suppress(BusError):
                await self._delete(revision)

    async def _delete(self, revision: int) -> None:
        try:
            await self._bucket.delete(self.key, revision=revision)
        except WrongSequence:
            # A renewal that was cut off had been written all the same, or it is another's by now.
            found = await self._bucket.get(self.key)
            if found is not None and found.value == self._value:
                await self._bucket.delete(self.key, revision=found.revision)

    # -- how

    async def _try(self) -> str | None:
        """Creates, renews or takes over the key. None: it is ours; else who has it."""
        began = asyncio.get_running_loop().time()
        for _ in range(3):  # between looking and writing it may change hands
            try:
                self._revision = await self._bucket.update(
                    self.key, self._value, self._revision, ttl_s=self.ttl_s
                )
            except WrongSequence as error:
                if error.last == 0:  # it has expired: create again
                    self._revision = 0
                    continue
                found = await self._bucket.get(self.key)
                if found is None:
                    self._revision = 0
                elif _owner(found) in self._ours:
                    self._revision = found.revision  # of a dead one, or a write whose answer was lost
                else:
                    self._revision = 0
                    return _holder(found)
            else:
                # Counted from before the write: the server's own count began after that.
                self._until = began + self.ttl_s
                self._change(ClaimState.HELD)
                return None
        return "others, by turns"

    async def _renew_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.ttl_s / RENEWALS)
            try:
                holder = await self._try()
            except BusError as error:
                self._change(ClaimState.UNCERTAIN, str(error))
                continue
            if holder is not None:
                self._until = 0.0
                self._change(ClaimState.LOST, holder)

    def _change(self, state: ClaimState, detail: str = "") -> None:
        before, self._state = self._state, state
        if state is before:
            return
        if state is not ClaimState.HELD:
            log.warning("claim %s %s: %s", self.key, state, detail)
        event = ClaimEvent(self.key, state, detail)
        for callback in list(self._callbacks):
            try:
                callback(event)
            except Exception:
                log.exception("a callback failed on %s", event)


class Lock(Claim):
    """A lock of the mesh, `lock.<name>` in the nodes bucket: at most one owner at a time does the work it
    names.

    `owner` is to differ in every process. A lock that is lost is contended for again as long as it is not
    released; look at `held` before each piece of work.
    """

    def __init__(self, bus: Bus, name: str, owner: str, *, ttl_s: float = TTL_S) -> None:
        super().__init__(
            Bucket(bus, storage.nodes_bucket(bus.mesh)),
            f"lock.{name}",
            owner,
            shown=bus.settings.sender,
            ttl_s=ttl_s,
        )


def builder_claim(
    bus: Bus, node_id: str, owner: str, *, former: Collection[str] = (), ttl_s: float = TTL_S
) -> Claim:
    """A node's claim to be baked for by one Builder alone. `owner` names one life of a Builder on its state
    folder, `former` those before it.
    """
    return Claim(
        Bucket(bus, storage.nodes_bucket(bus.mesh)),
        storage.claim_key(node_id),
        owner,
        former=former,
        shown=f"{bus.settings.sender}, state folder {owner}",
        ttl_s=ttl_s,
    )


def _field(entry: Entry, name: str) -> str:
    try:
        return str(json.loads(entry.value)[name])
    except (ValueError, KeyError, TypeError):
        return "unknown"


def _owner(entry: Entry) -> str:
    return _field(entry, "owner")


def _holder(entry: Entry) -> str:
    return _field(entry, "holder")
