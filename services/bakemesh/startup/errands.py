"""Carrying out what the core decides: bring-ups, cancels, removals, letters. Each until it is done.

A bring-up's recipe is sent from the journal's bytes, any number of times; the Builder answers a second copy
with the first one's Result. Whatever the bus or a node cannot do now is tried again with growing pauses, and
said once. Left out: deciding anything (`core`).
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Coroutine
from typing import Any

from bakemesh.bus import Bus
from bakemesh.bus.errors import BusClosed, BusError, NoResponder
from bakemesh.bus.kv import Bucket
from bakemesh.protocol import storage
from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.builder.messages import BakeOutcome, BakeSuccess, Result
from bakemesh.protocol.builder.node import RemoveComponent
from bakemesh.protocol.subjects import build
from bakemesh.startup.desk import NOTE, Desk
from bakemesh.startup.owners import Owners
from bakemesh.startup.state import (
    Announce,
    BroughtUp,
    Cancel,
    Dispatch,
    Effect,
    Ended,
    Failed,
    Follow,
    Gone,
    Held,
    Missing,
    Prepared,
    Reconcile,
    Remove,
    Sent,
    Unheard,
)
from bakemesh.startup.telling import Teller
from bakemesh.supervisor import (
    Bake,
    Closed,
    MessageTooLarge,
    RecipeRejected,
    ResultTimeout,
    Supervisor,
    SupervisorError,
)

log = logging.getLogger(__name__)
RESULT_S, ANSWER_S = 1.0, 5.0
# A Result may have been lost with the process that waited for it; before this a stream drops a second copy.
AGAIN_S, AGAIN_MOST_S = 130.0, 3600.0
FIRST_S, MOST_S, TOO_LARGE_S = 0.1, 5.0, 60.0


class Errands:
    """Runs what is under way as tasks of `group`; what fails unexpectedly ends the process."""

    def __init__(self, bus: Bus, supervisor: Supervisor, tell: Teller, owners: Owners) -> None:
        self.bus, self.supervisor, self.tell, self.owners = bus, supervisor, tell, owners
        self.desk: Desk
        self.group: asyncio.TaskGroup
        self._bakes: dict[str, Bake] = {}

    def carry(self, effect: Effect) -> None:
        """Begins one effect."""
        match effect:
            case Dispatch():
                self._begin(self._dispatch(effect))
            case Follow():
                self._begin(self._follow(effect))
            case Cancel():
                self._begin(self._cancel(effect))
            case Remove():
                self._begin(self._remove(effect))
            case BroughtUp() | Announce() | Reconcile() | Failed() | Missing() | Held() | Unheard():
                self.tell.effect(effect)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self.group.create_task(work)

    async def _dispatch(self, effect: Dispatch) -> None:
        plan = self.desk.plan
        xml = plan.recipe(effect) if plan else None
        if xml is None:
            return  # of a PsySpec that was replaced meanwhile
        tries = Tries(f"a bring-up recipe for node {effect.node}")
        while True:
            try:
                recipe = await self.supervisor.prepare(xml, node=effect.node, node_id=effect.node_id)
                break
            except MessageTooLarge as error:  # no try mends it; another PsySpec does
                self.tell.effect(Failed(effect.node_id, effect.node, str(error), TOO_LARGE_S))
                await asyncio.sleep(TOO_LARGE_S)
            except (BusError, SupervisorError) as error:
                await tries.again(error)
        sent = Sent(recipe.identity.recipe_id, effect.boot, effect.goal, effect.parts)
        await self.desk.prepared(Prepared(effect.node_id, sent, time.monotonic()), recipe)

    async def _follow(self, effect: Follow) -> None:
        recipe = await asyncio.to_thread(self.desk.journal.recipe, effect.recipe_id)
        assert recipe is not None  # journaled with the state that named it
        tries, patience_s = Tries(f"bring-up {effect.recipe_id}"), AGAIN_S
        while True:
            try:
                bake = await self.supervisor.send(recipe, result_timeout_s=RESULT_S)
                self._bakes[effect.recipe_id] = bake
                # What it said while nobody followed: a second copy, which the stream drops, gets no Result.
                await bake.catch_up()
                await bake.accepted(patience_s)
                outcome = await bake.outcome()
            except ResultTimeout:
                patience_s = min(patience_s * 2, AGAIN_MOST_S)
                continue
            except RecipeRejected as error:
                ok, why = False, f"{error.code}: {error}"
                break
            except (BusError, SupervisorError) as error:
                await tries.again(error)
                continue
            ok, why = isinstance(outcome, BakeSuccess), _why(outcome)
            break
        self._bakes.pop(effect.recipe_id, None)
        site = self.desk.state.sites.get(effect.node_id)
        if not ok and site is not None and site.sent is not None:
            why = "; ".join(filter(None, (why, self.owners.advice(effect.node_id, site.sent.parts))))
        now, draw = time.monotonic(), random.random()
        await self.desk.post(Ended(effect.node_id, effect.recipe_id, ok, why, now, draw))

    async def _cancel(self, effect: Cancel) -> None:
        """Until it has ended: what the Builder does not know yet it may yet take from its inbox."""
        pause = FIRST_S
        while True:
            bake = self._bakes.get(effect.recipe_id)
            if bake is not None:
                try:
                    result = await bake.cancel()
                    if result.accepted or result.code == Code.TERMINAL:
                        return
                    if result.code == Code.UNKNOWN_RECIPE and pause == MOST_S:
                        await self._send_again(
                            effect
                        )  # a node that lost its journal took it in an earlier life
                except BusClosed:
                    raise
                except (BusError, SupervisorError) as error:
                    log.info("bring-up %s is not cancelled yet: %s", effect.recipe_id, error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, MOST_S)
            if not self._under_way(effect):
                return

    async def _send_again(self, effect: Cancel) -> None:
        recipe = await asyncio.to_thread(self.desk.journal.recipe, effect.recipe_id)
        if recipe is not None:
            await self.supervisor.send(recipe, result_timeout_s=RESULT_S)

    def _under_way(self, effect: Cancel) -> bool:
        site = self.desk.state.sites.get(effect.node_id)
        return site is not None and site.sent is not None and site.sent.recipe_id == effect.recipe_id

    async def _remove(self, effect: Remove) -> None:
        subject = build(
            self.bus.mesh, effect.node_id, self.supervisor.name, effect.component, RemoveComponent.TYPE
        )
        tries = Tries(f"removal of {effect.component} from node {effect.node_id}")
        while True:
            message = RemoveComponent(component=effect.component, issuedby=self.supervisor.name)
            try:
                answer = (await self.bus.request(subject, message, ANSWER_S)).message
            except BusError as error:
                await tries.again(error)
                continue
            if isinstance(answer, Result):
                if answer.code in (Code.UNKNOWN_COMPONENT, Code.UNAUTHORISED):
                    break
                if answer.accepted:  # it is being stopped, perhaps; when it is gone nobody knows it
                    await tries.pause()
                    continue
                await tries.again(RuntimeError(answer.summary))
                continue
            await tries.again(RuntimeError(f"{answer.type} is no Result"))
        if answer.code == Code.UNAUTHORISED:
            log.warning(
                "%s on node %s is not ours to remove: %s", effect.component, effect.node_id, answer.summary
            )
        await self.desk.post(Gone(effect.node_id, effect.component, time.monotonic()))

    async def deliver(self) -> None:
        """Gets letters out as they are written, in order a kind, for ever. A hub that is out of reach holds
        back notes, not what is published near."""
        async with asyncio.TaskGroup() as group:
            waiting: set[int] = set()
            while True:
                await self.desk.letters.wait()
                self.desk.letters.clear()
                for letter in await asyncio.to_thread(self.desk.journal.letters):
                    if letter.number not in waiting:
                        waiting.add(letter.number)
                        group.create_task(
                            self._deliver(letter.number, letter.kind, letter.target, letter.payload)
                        )

    async def _deliver(self, number: int, kind: str, target: str, payload: bytes) -> None:
        tries = Tries(f"{target}")
        nodes = Bucket(self.bus, storage.nodes_bucket(self.bus.mesh))
        while True:
            try:
                if kind == NOTE:
                    await nodes.put(target, payload)
                else:
                    await self.bus.link.send(target, payload)
                    await self.bus.link.barrier()
                break
            except BusError as error:
                await tries.again(error)
        await asyncio.to_thread(self.desk.journal.out, number)


class Tries:
    """Pauses between tries, growing and jittered; says the first failure, and each later one quietly."""

    def __init__(self, what: str) -> None:
        self._what, self._pause, self._said = what, FIRST_S, False

    async def again(self, error: Exception) -> None:
        """Waits. Raises the error where no try will mend it: the connection is closed for good."""
        if isinstance(error, BusClosed | Closed):
            raise error
        # Nobody listens there: the node's Builder is being started again, most likely.
        level = logging.DEBUG if self._said or isinstance(error, NoResponder) else logging.WARNING
        log.log(level, "%s: %s; tries again", self._what, error)
        self._said = True
        await self.pause()

    async def pause(self) -> None:
        """Waits, where nothing failed."""
        await asyncio.sleep(self._pause * (1 - 0.25 * random.random()))
        self._pause = min(self._pause * 2, MOST_S)


def _why(outcome: BakeOutcome) -> str:
    words = [outcome.code or "", outcome.summary]
    return ": ".join(word for word in words if word)
