"""Stored posts: one durable consumer for each trigger and stored type, which gives every post at least once.

    given out by the stream ──→ waits ──→ taken by the crank ──→ asked for the next ──→ acknowledged
                                             └─ the process dies ──→ given out again to its next life

A consumer has one post out at a time: in order, and no more in memory than one. Its name is made of node,
component, trigger and type, so it is found again by every later life, whatever else changed in the spec; one
that nobody asked for longer than posts are kept is forgotten by the server, and nothing is lost by that.

A post that ends its crank each time (`GIVEN` times: fewer than the restarts that a component has by default)
is put aside: the consumer goes on behind it, it stays in the stream, and the log names it. What counts is how
often a crank got it (`attempts`); an outage counts nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from bakemesh.bus.connection import Bus
from bakemesh.bus.errors import BusError
from bakemesh.bus.inbox import ACK_WAIT_S, Source
from bakemesh.bus.inbox import Item as Post
from bakemesh.bus.posts import KEPT_S, subject_of
from bakemesh.crank.attempts import Attempts
from bakemesh.crank.backlog import Item
from bakemesh.crank.mailbox import Mailbox
from bakemesh.crank.messages import delay_s, message_for
from bakemesh.protocol import storage
from bakemesh.protocol.admit import Refusal, admit
from bakemesh.protocol.builder.spec.component import Trigger

log = logging.getLogger(__name__)

GIVEN: Final = 3  # times, then it is put aside
_FORGOTTEN_S: Final = KEPT_S + 24 * 3600
_SETTLE_S: Final = 2.0
_REMEMBERED: Final = 4096


def consumer_name(node_id: str, component: str, trigger: str, type_: str) -> str:
    """`<NodeID>-<component>-<n>`; n is a digest of trigger and type. Pure."""
    n = hashlib.sha256(f"{trigger}\0{type_}".encode()).hexdigest()[:8]
    return f"{node_id}-{component}-{n}"


class StoredPosts:
    """All stored posts of one component; puts them into its mailbox."""

    def __init__(
        self,
        bus: Bus,
        component: str,
        triggers: tuple[tuple[Trigger, str], ...],
        mailbox: Mailbox,
        counts: Path,
        aside: Callable[[], None],
        *,
        ack_wait_s: float = ACK_WAIT_S,
    ) -> None:
        named = [
            consumer_name(bus.settings.node_id, component, trigger.name, type_) for trigger, type_ in triggers
        ]
        self._attempts = Attempts(counts, named)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._readers = [
            _Reader(bus, name, trigger, type_, mailbox, self._attempts, aside, self._spawn, ack_wait_s)
            for name, (trigger, type_) in zip(named, triggers, strict=True)
        ]
        self._unstarted = list(self._readers)

    async def start(self) -> None:
        """Begins; a hub that is away is waited for behind this. Raises AccessDenied, NotConnected (then it
        may be called again), BusClosed.
        """
        while self._unstarted:
            await self._unstarted[0].source.start()
            del self._unstarted[0]

    def again(self) -> None:
        """The link went down, or is back."""
        for reader in self._readers:
            reader.source.again()

    async def close(self) -> None:
        """Ends it, when what is acknowledged is confirmed, or soon."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=_SETTLE_S)
        for task in self._tasks:
            task.cancel()
        for reader in self._readers:
            await reader.source.close()
        self._attempts.close()

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Reader:
    """One consumer."""

    def __init__(
        self,
        bus: Bus,
        consumer: str,
        trigger: Trigger,
        type_: str,
        mailbox: Mailbox,
        attempts: Attempts,
        aside: Callable[[], None],
        spawn: Callable[[Coroutine[Any, Any, Any]], None],
        ack_wait_s: float,
    ) -> None:
        self._trigger, self._mailbox, self._attempts = trigger, mailbox, attempts
        self._aside, self._spawn = aside, spawn
        self._out: Post | None = None  # waits, or is in the crank's hands; the latest time it came
        # Sequence → id of the last ones that are through: a killed server has forgotten acknowledgements of
        # its last moments. By both, since a stream that was made anew counts anew.
        self._through: dict[int, bytes] = {}
        self._id = b""
        self.source = Source(
            bus,
            bus.hub_api,
            storage.posts_stream(bus.mesh),
            consumer,
            subject_of(bus.mesh, type_),
            ack_wait_s,
            self._take,
            inactive_s=_FORGOTTEN_S,
        )

    def _take(self, post: Post) -> None:
        log.debug("%s: post %d came, the %d. time", self.source.name, post.sequence, post.times)
        if self._out is not None and self._out.sequence == post.sequence:
            self._out = post  # it comes again while it is here: by the latest one it is acknowledged
            return
        found = admit(post.subject, None, post.headers, post.payload)
        if isinstance(found, Refusal):
            self._put_aside(post, found.detail)
            return
        if self._attempts.of(self.source.name, post.sequence) >= GIVEN:
            self._put_aside(post, f"it was given {GIVEN} times, and the crank ended each time")
            return
        if self._through.get(post.sequence) == found.received.id:
            self._spawn(self._acknowledge(post))
            return
        self._out, self._id = post, found.received.id
        after = delay_s(found.received.created, time.time_ns() // 1000, self._trigger.after_ms)
        message = message_for(self._trigger.name, found.received, found.subject.party, found.subject.node_id)
        self._mailbox.put(
            Item(message, len(post.payload), kept=True, taken=self._taken, done=self._done),
            after,
        )

    def _taken(self) -> None:
        if self._out is not None:
            self._attempts.note(self.source.name, self._out.sequence)

    def _done(self) -> None:
        post, self._out = self._out, None
        if post is not None:
            self._through[post.sequence] = self._id
            if len(self._through) > _REMEMBERED:
                del self._through[next(iter(self._through))]
            self._spawn(self._acknowledge(post))

    async def _acknowledge(self, post: Post) -> None:
        try:
            await post.ack()
        except BusError as error:
            log.info("%s: post %d: %s", self.source.name, post.sequence, error)

    def _put_aside(self, post: Post, why: str) -> None:
        log.error(
            "trigger %s: post %d of %s on %s is put aside: %s",
            self._trigger.name,
            post.sequence,
            post.stream,
            post.subject,
            why,
            extra={"trigger": self._trigger.name, "sequence": post.sequence},
        )
        self._spawn(post.put_aside())
        self._aside()
