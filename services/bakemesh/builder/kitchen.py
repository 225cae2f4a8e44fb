"""All bakes of a Builder: `max_bakes` side by side, further ones in a queue, ended ones in the journal."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bakemesh.builder.bake.session import Kit, Session
from bakemesh.builder.bake.state import Begin, Broken, Remark
from bakemesh.builder.journal import Journal, JournalClosed
from bakemesh.builder.journal.records import BakeRow, OutRow, find_bake, last_ctrlseqs, live_bakes
from bakemesh.builder.judge import Facts
from bakemesh.builder.outbox import Outbox
from bakemesh.builder.rates import Buckets, Rate
from bakemesh.builder.steps import SUPPORTED
from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.builder.lifecycle import Phase
from bakemesh.protocol.builder.spec import Limits, Recipe, RecipeRefused, load_recipe

log = logging.getLogger(__name__)
LOOK_S = 5.0


@dataclass(frozen=True, slots=True)
class Past:
    """A bake that has ended, as the journal knows it."""

    phase: Phase
    ctrlseqs: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class House:
    """What the node says of itself and allows."""

    node: str
    node_id: str
    accept_forwarded: bool
    max_bakes: int
    max_payload: int
    limits: Limits


class Kitchen:
    """The live bakes. `kit.over` must be this kitchen's `over`."""

    def __init__(self, kit: Kit, house: House, recipes: Rate) -> None:
        self.kit, self.house = kit, house
        self._taken, self._refused = Buckets(recipes), Buckets(recipes)
        self.on_change: Callable[[], None] = lambda: None  # what the node says of itself has changed
        self.sessions: dict[tuple[str, str], Session] = {}
        self._draining = False
        self._queue: deque[Session] = deque()
        self._baking: set[Session] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._expiring: asyncio.TimerHandle | None = None
        self._expires = 0  # what the timer is armed for
        self._store_full = False
        self._told_full: set[Session] = set()  # in this time of a full store
        kit.status.lost = kit.data.lost = self._lost

    def _lost(self, row: OutRow, error: BaseException) -> None:
        """A message that no store will ever take (the server's limit fell below it): its bake cannot go
        on.
        """
        for session in self.sessions.values():
            if session.bake == row.bake:
                session.tell(Broken(Code.INTEGRITY, f"message {row.number} can never be stored: {error}"))

    @property
    def draining(self) -> bool:
        """Whether the node refuses new bakes."""
        return self._draining

    @draining.setter
    def draining(self, draining: bool) -> None:
        self._draining = draining
        self.on_change()

    @property
    def node_id(self) -> str:
        """This node's id."""
        return self.house.node_id

    @property
    def journal(self) -> Journal:
        """The Builder's journal."""
        return self.kit.journal

    @property
    def status(self) -> Outbox:
        """The outbox of Status."""
        return self.kit.status

    def facts(self) -> Facts:
        """What an incoming recipe is judged by, now."""
        house, now = self.house, self.kit.clock.monotonic()
        return Facts(
            node=house.node,
            node_id=house.node_id,
            accept_forwarded=house.accept_forwarded,
            draining=self.draining,
            now=self.kit.clock.wall(),
            max_payload=house.max_payload,
            used=lambda party, key: find_bake(self.journal.db, party, key) is not None,
            wait_s=lambda issuer: self._taken.wait_s(issuer, now),
            refusal_wait_s=lambda party: self._refused.wait_s(party, now),
            supported=SUPPORTED,
            limits=house.limits,
        )

    def find(self, supervisor: str, recipe_id: str) -> Session | Past | None:
        """A live bake, what is known of an ended one, or None."""
        session = self.sessions.get((supervisor, recipe_id))
        if session is not None:
            return session
        found = find_bake(self.journal.db, supervisor, recipe_id)
        if found is None:
            return None
        bake, phase = found
        return Past(phase, last_ctrlseqs(self.journal.db, bake))

    def identity_of(self, supervisor: str, recipe_id: str) -> dict[str, Any]:
        """The identity entries of a live bake, as keyword arguments; empty where there is none."""
        session = self.sessions.get((supervisor, recipe_id))
        return session.identity.fields() if session else {}

    @property
    def store_full(self) -> bool:
        """Whether a stream of the node refuses for want of room."""
        return self.kit.data.writer.full or self.kit.status.writer.full

    @property
    def running(self) -> int:
        """How many bakes have a place."""
        return len(self._baking)

    @property
    def queued(self) -> int:
        """How many wait for one."""
        return len(self._queue)

    # -- coming and going

    def admit(self, row: BakeRow, recipe: Recipe) -> Session:
        """Takes a bake that is journaled: it begins, or queues and says so."""
        session = self._open(row, recipe)
        if len(self._baking) < self.house.max_bakes and not self._queue:
            self._begin(session)
        else:
            self._enqueue(session)
            place = len(self._queue)
            session.tell(
                Remark(f"queued: {len(self._baking)} bakes are running, {place - 1} wait before this one")
            )
        self.on_change()
        return session

    def _enqueue(self, session: Session) -> None:
        self._queue.append(session)
        if session.expires and (not self._expires or session.expires < self._expires):
            self._arm_expiry(session.expires)

    def _arm_expiry(self, expires: int) -> None:
        """A timer for the one that expires next. The wall clock may be set: so it looks now and then."""
        if self._expiring is not None:
            self._expiring.cancel()
        self._expires = expires
        away = (expires - self.kit.clock.wall()) / 1e6
        delay = min(max(0.0, away), LOOK_S) + 0.001
        self._expiring = asyncio.get_running_loop().call_later(delay, self._expire)

    def _expire(self) -> None:
        """Those in the queue whose time is over end now, not when a place is free."""
        self._expiring, self._expires = None, 0
        now = self.kit.clock.wall()
        for session in [each for each in self._queue if each.expires and now > each.expires]:
            self._queue.remove(session)
            session.tell(Begin(now, expired=True))
            self.on_change()
        due = [session.expires for session in self._queue if session.expires]
        if due:
            self._arm_expiry(min(due))

    def _open(self, row: BakeRow, recipe: Recipe) -> Session:
        session = Session(self.kit, row, recipe)
        self.sessions[session.identity.key] = session
        session.open()
        return session

    def _begin(self, session: Session) -> None:
        self._baking.add(session)
        now = self.kit.clock.wall()
        session.tell(Begin(now, expired=bool(session.expires) and now > session.expires))

    def over(self, session: Session) -> None:
        """A bake has ended: its place goes to the next in the queue."""
        self.sessions.pop(session.identity.key, None)
        self._baking.discard(session)
        if session in self._queue:
            self._queue.remove(session)
        task = asyncio.get_running_loop().create_task(session.close())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._told_full.discard(session)
        self._fill()
        self.on_change()

    def _fill(self) -> None:
        while self._queue and len(self._baking) < self.house.max_bakes:
            self._begin(self._queue.popleft())

    # -- life

    async def recover(self) -> None:
        """At the Builder's start: opens every bake that the journal holds as alive, and lets each go on."""
        begun: list[Session] = []
        for row in live_bakes(self.journal.db):
            recipe = self._reload(row)
            if recipe is None:
                continue
            session = self._open(row, recipe)
            if row.state.begun or row.state.over:
                self._baking.add(session)
                begun.append(session)
            else:
                self._enqueue(session)
        # Side by side: one whose output finds no room must not keep the others from going on.
        for session in begun:
            task = asyncio.get_running_loop().create_task(self._recover_one(session))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._fill()

    async def _recover_one(self, session: Session) -> None:
        try:
            await session.recover()
        except JournalClosed:
            pass
        except Exception:
            log.exception("bake %s cannot be recovered", session.identity.recipe_id)

    def _reload(self, row: BakeRow) -> Recipe | None:
        """The recipe of a journaled bake. It was valid when it came; a newer Builder may see it otherwise."""
        try:
            return load_recipe(
                row.xml or "", self.house.limits, supported=SUPPORTED, max_payload=self.house.max_payload
            )
        except RecipeRefused as error:
            log.error("bake %s: its recipe is not valid any more: %s", row.identity.recipe_id, error)
            row.state = replace(row.state, running=False, cursor=0, attempt=0)
            session = self._open(row, Recipe(name=None, steps=()))
            self._baking.add(session)
            session.tell(Broken(Code.BUILDER_RESTARTED, f"not valid any more: {error.problems[0].message}"))
            return None

    def watch_store(self) -> None:
        """Called now and then: each bake whose output waits for a full store says so, once in each time of
        one; its heartbeats, where it has any, say so again.
        """
        if self.store_full != self._store_full:
            self._store_full = self.store_full
            self.on_change()
            if self._store_full:
                log.warning("the node's streams are full: what is said waits for room")
        if not self.kit.data.writer.full:
            self._told_full.clear()
            return
        for session in list(self.sessions.values()):
            if session.store_full and session not in self._told_full:
                self._told_full.add(session)
                session.tell(Remark("output store full: waiting for room"))

    async def close(self) -> None:
        """The Builder stops: every running step ends; what may be run again is left for the next start."""
        if self._expiring is not None:
            self._expiring.cancel()
        sessions = list(self.sessions.values())
        ends = await asyncio.gather(*(session.stop() for session in sessions), return_exceptions=True)
        for session, error in zip(sessions, ends, strict=True):
            if isinstance(error, Exception):  # a broken journal: the others end all the same
                log.error("bake %s at the stop: %s", session.identity.recipe_id, error)
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=2)
