"""Cohort messages: one that comes for a cohort of this node goes to the components here that ask for it.

    sender ── Cohort.Message ──→ Builder of each member ── Deliver ──→ component: its Result, or silence

Codes, first that applies: malformed_message, unknown_cohort (also: this node is none of its members),
rate_limited. The Result says how many components took it; that none asks for it is no refusal. Who may send:
whoever may send recipes, which on a mesh with authentication the server sees to. While the hub is out of
reach, the members that were read last count. Left out: who is in a cohort (`bakemesh cohort`, a PsySpec).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from bakemesh.builder.bake.state import Refused
from bakemesh.builder.clock import Clock
from bakemesh.builder.kitchen import House
from bakemesh.builder.rates import Buckets
from bakemesh.builder.results import limited, result_of
from bakemesh.bus.connection import Bus
from bakemesh.bus.errors import BusError, StoreError
from bakemesh.bus.kv import Bucket
from bakemesh.protocol import storage
from bakemesh.protocol.admit import Delivery, Refusal
from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.builder.messages import CohortMessage, Result
from bakemesh.protocol.builder.node import ComponentDeliver
from bakemesh.protocol.rights import builder_name
from bakemesh.protocol.subjects import build

log = logging.getLogger(__name__)
VERB = "Cohort"
DELIVER_S = 3.0
REMEMBERED = 1024


class Target(NamedTuple):
    """A component that asks for a type, and its trigger that does."""

    component: str
    trigger: str


def members_of(value: bytes | None) -> frozenset[str] | None:
    """The NodeIDs of a cohort as the bucket holds it; None where it holds none."""
    if value is None:
        return None
    try:
        found = json.loads(value)
    except ValueError:
        return None
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        return None
    return frozenset(found)


def check(cohort: str, key: str, node_id: str, members: frozenset[str] | None) -> None:
    """Whether a message of a cohort is for this node. Raises Refused."""
    if cohort != key:
        raise Refused(Code.MALFORMED_MESSAGE, f"cohort {cohort:.64} is not the subject's key {key}")
    if members is None:
        raise Refused(Code.UNKNOWN_COHORT, f"there is no cohort {cohort:.64}")
    if node_id not in members:
        raise Refused(Code.UNKNOWN_COHORT, f"node {node_id} is no member of the cohort {cohort:.64}")


def told(taken: int, missed: dict[str, str]) -> str:
    """The Result's summary."""
    if not taken and not missed:
        return "no component here asks for cohort messages"
    text = f"taken by {taken} of {taken + len(missed)} components"
    return text if not missed else f"{text}; " + ", ".join(f"{name}: {why}" for name, why in missed.items())


class Cohorts:
    """Answers the cohort messages of one node. `targets` gives the components that ask for a type."""

    def __init__(
        self,
        bus: Bus,
        house: House,
        clock: Clock,
        buckets: Buckets,
        targets: Callable[[str], Iterable[Target]],
    ) -> None:
        self.bus, self.house, self.clock = bus, house, clock
        self._buckets, self._targets = buckets, targets
        self._bucket = Bucket(bus, storage.cohorts_bucket(bus.mesh), timeout=2.0)
        self._known: dict[str, frozenset[str] | None] = {}

    async def answer(self, delivery: Delivery) -> Result:
        """The Result of one message, once each component has answered or was silent for too long."""
        message, subject = delivery.received.message, delivery.subject
        assert isinstance(message, CohortMessage)
        try:
            members = await self._members(subject.key)
            check(message.cohort, subject.key, self.house.node_id, members)
            if wait := self._buckets.wait_s(subject.party, self.clock.monotonic()):
                raise limited(f"messages of {subject.party}", wait)
        except Refused as refused:
            return self._result(refused.code, refused.summary, refused.retry_ms)
        targets = list(self._targets(CohortMessage.TYPE))
        found = await asyncio.gather(*(self._deliver(each, delivery, message) for each in targets))
        missed = {each.component: why for each, why in zip(targets, found, strict=True) if why is not None}
        return self._result(Code.OK, told(len(targets) - len(missed), missed))

    def refused(self, refusal: Refusal) -> Result:
        """The Result of what does not decode."""
        return self._result(Code.MALFORMED_MESSAGE, refusal.detail)

    async def _members(self, cohort: str) -> frozenset[str] | None:
        try:
            entry = await self._bucket.get(cohort)
        except (StoreError, BusError) as error:
            if cohort not in self._known:
                raise Refused(
                    Code.UNKNOWN_COHORT, f"the members of {cohort} cannot be read now: {error}"
                ) from error
            return self._known[cohort]
        if cohort not in self._known and len(self._known) >= REMEMBERED:
            self._known.pop(next(iter(self._known)))
        self._known[cohort] = members_of(None if entry is None else entry.value)
        return self._known[cohort]

    async def _deliver(self, target: Target, delivery: Delivery, message: CohortMessage) -> str | None:
        """None: the component took it; else why it did not."""
        node_id = self.house.node_id
        subject = build(
            self.bus.mesh, node_id, builder_name(node_id), target.component, ComponentDeliver.TYPE
        )
        passed = ComponentDeliver(
            component=target.component,
            trigger=target.trigger,
            type_=CohortMessage.TYPE,
            sender=delivery.subject.party,
            payload=message.entries(),
        )
        try:
            answer = (await self.bus.request(subject, passed, DELIVER_S)).message
        except BusError as error:
            log.info("cohort message to %s: %s", target.component, error)
            return "silent"
        if isinstance(answer, Result) and answer.accepted:
            return None
        return answer.summary if isinstance(answer, Result) else "its answer is no Result"

    def _result(self, code: Code, summary: str, retry_ms: int | None = None) -> Result:
        house = self.house
        return result_of(VERB, code, summary, retry_ms, node=house.node, node_id=house.node_id)
