"""The core with its journal: one event after the other, each step journaled before its effects go out.

    desk.post(event) ──→ step ──→ one transaction (state, sealed recipes, sealed letters) ──→ effects

Guarantees: effects are handed over in the order of the steps, after the transaction that holds them; what is
to be said (Ready, Reconciled) is sealed in that transaction. Left out: carrying effects out (`errands`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

from bakemesh.bus.sealing import seal
from bakemesh.protocol import storage
from bakemesh.protocol.message import Message
from bakemesh.protocol.psyspec import PsySpecRefused
from bakemesh.protocol.startup import Ready, Reconciled
from bakemesh.protocol.subjects import NO_KEY, build
from bakemesh.startup import core
from bakemesh.startup.journal import Changes, Journal
from bakemesh.startup.plan import Plan, read_plan
from bakemesh.startup.settings import StartupSettings
from bakemesh.startup.state import (
    Announce,
    Effect,
    Event,
    Given,
    Offered,
    Prepared,
    Reconcile,
    Spec,
    State,
    Tick,
)
from bakemesh.supervisor import Prepared as Recipe

log = logging.getLogger(__name__)
Carry = Callable[[Effect], None]
PUBLISH, NOTE = "publish", "note"


class Desk:
    """`carry` is called with each effect, `on_given` with a PsySpec that came in a message, before what it
    does; `letters` is set when there is something to get out.
    """

    def __init__(self, settings: StartupSettings, journal: Journal, carry: Carry) -> None:
        self.settings, self.journal, self._carry = settings, journal, carry
        self.on_given: Callable[[Spec], None] = lambda _spec: None
        self.letters = asyncio.Event()
        self.letters.set()  # those of an earlier life
        self._turn = asyncio.Lock()
        self._ticked = asyncio.Event()
        self._offer: Plan | None = None
        self.plan: Plan | None = None
        self.state = self._remembered()

    def _remembered(self) -> State:
        kept = self.journal.state()
        if text := kept.get("psyspec"):
            try:
                self.plan = read_plan(text, self.settings.node, self.settings.node_id)
            except PsySpecRefused as error:
                log.error("the journaled PsySpec cannot be read any more, give it again: %s", error)
        return State(
            node_id=self.settings.node_id,
            boot=kept.get("boot", ""),
            spec=self.plan.spec if self.plan else None,
            announced=kept.get("announced", ""),
            changed=kept.get("changed") == "yes",
            offered=kept.get("offered", ""),
            sites=self.journal.sites(),
        )

    async def offer(self, plan: Plan) -> None:
        """What the process was started with."""
        self._offer = plan
        await self.post(Offered(plan.spec))

    async def give(self, plan: Plan) -> None:
        """What came in a message; journaled when this returns."""
        async with self._turn:
            await self._step(Given(plan.spec, time.monotonic()), given=plan)

    async def post(self, event: Event) -> None:
        """One event."""
        async with self._turn:
            await self._step(event)

    async def prepared(self, event: Prepared, recipe: Recipe) -> None:
        """A bring-up was sealed: its bytes are journaled with the state that takes it."""
        async with self._turn:
            await self._step(event, recipe=recipe)

    async def tick(self) -> None:
        """Posts a Tick whenever one is due, for ever."""
        while True:
            due = core.next_due(self.state)
            self._ticked.clear()
            try:
                async with asyncio.timeout(None if due is None else max(0.0, due - time.monotonic())):
                    await self._ticked.wait()
            except TimeoutError:
                await self.post(Tick(time.monotonic()))

    async def _step(self, event: Event, *, given: Plan | None = None, recipe: Recipe | None = None) -> None:
        before = self.state
        after, effects = core.step(before, event)
        plan = self._plan_of(after, given)
        changes = self._changes(before, after, effects, plan, recipe)
        if changes:
            await asyncio.to_thread(self.journal.commit, changes)
        self.state, self.plan = after, plan
        self._ticked.set()
        if changes.letters:
            self.letters.set()
        if given is not None:
            self.on_given(given.spec)
        for effect in effects:
            self._carry(effect)

    def _plan_of(self, after: State, given: Plan | None) -> Plan | None:
        for plan in (given, self._offer, self.plan):
            if plan is not None and after.spec is not None and plan.psyspec.digest == after.spec.digest:
                return plan
        return self.plan

    def _changes(
        self,
        before: State,
        after: State,
        effects: Iterable[Effect],
        plan: Plan | None,
        recipe: Recipe | None,
    ) -> Changes:
        told = (
            ("boot", before.boot, after.boot),
            ("announced", before.announced, after.announced),
            ("changed", _yes(before.changed), _yes(after.changed)),
            ("offered", before.offered, after.offered),
            ("psyspec", self.plan.text if self.plan else "", plan.text if plan else ""),
        )
        words = {name: new for name, old, new in told if old != new}
        old_sites, new_sites = before.sites, after.sites
        sites = {
            node_id: new_sites.get(node_id)
            for node_id in {*old_sites, *new_sites}
            if old_sites.get(node_id) != new_sites.get(node_id)
        }
        was = {site.sent.recipe_id for site in old_sites.values() if site.sent}
        now = {site.sent.recipe_id for site in new_sites.values() if site.sent}
        kept = [recipe] if recipe is not None and recipe.identity.recipe_id in now - was else []
        letters = [letter for effect in effects for letter in self._letters(effect)]
        return Changes(state=words, sites=sites, recipes=kept, dropped=sorted(was - now), letters=letters)

    def _letters(self, effect: Effect) -> list[tuple[str, str, bytes]]:
        message: Message
        match effect:
            case Announce(boot, psyspec, digest, components):
                message = Ready(
                    node=self.settings.node,
                    node_id=self.settings.node_id,
                    boot=boot,
                    psyspec=psyspec,
                    digest=digest,
                    components=list(components),
                )
                subject, payload = self._sealed(message, self.settings.node_id)
                note = storage.ready_key(self.settings.node_id)
                return [(NOTE, note, payload), (PUBLISH, subject, payload)]
            case Reconcile():
                message = Reconciled(
                    node=effect.node,
                    node_id=effect.node_id,
                    digest=effect.digest,
                    added=list(effect.added),
                    removed=list(effect.removed),
                    restarted=list(effect.restarted),
                    unchanged=effect.unchanged,
                )
                subject, payload = self._sealed(message, effect.node_id)
                return [(PUBLISH, subject, payload)]
        return []

    def _sealed(self, message: Message, node_id: str) -> tuple[str, bytes]:
        bus = self.settings.bus
        subject = build(bus.mesh, node_id, self.settings.name, NO_KEY, message.type)
        return subject, seal(message, bus.sender).payload


def _yes(value: bool) -> str:
    return "yes" if value else "no"
