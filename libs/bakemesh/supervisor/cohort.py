"""A cohort: a named set of nodes, messaged and baked on as one.

    web = supervisor.cohort("web")
    summary = await web.send("Flush", {"depth": 2})        # accepted, refused, silent
    baking = await web.bake(xml)                           # on every member, each under its own RecipeID
    outcomes = await baking.outcomes(); print(baking.summary)

Guarantees: every member is asked side by side, so that one that is silent holds nobody up; what a member did
is told by its NodeID. Left out: who is a member while a message is under way; the list is read once before.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bakemesh.bus.errors import NoResponder, NotFound, ReplyRefused, RequestTimeout, ServiceFailed
from bakemesh.bus.kv import Bucket
from bakemesh.protocol import names, storage, subjects
from bakemesh.protocol.builder.messages import (
    BakeFailed,
    BakeOutcome,
    BakeSuccess,
    CohortMessage,
    Result,
)
from bakemesh.supervisor.errors import CohortUnknown, NotStored, RecipeRejected, SupervisorError

if TYPE_CHECKING:
    from bakemesh.bus import Bus
    from bakemesh.supervisor.bake import Bake
    from bakemesh.supervisor.session import Supervisor

SEND_S = 5.0
RESULT_S = 5.0


@dataclass(frozen=True, slots=True)
class CohortSummary:
    """What became of a message, by NodeID: Results, and who did not answer."""

    accepted: dict[str, Result] = field(default_factory=dict)
    refused: dict[str, Result] = field(default_factory=dict)
    silent: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{len(self.accepted)} accepted, {len(self.refused)} refused, {len(self.silent)} silent"


@dataclass(frozen=True, slots=True)
class BakeSummary:
    """How far one recipe is on its members: their NodeIDs by what became of each. `pct` over all of them."""

    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    pct: int = 0

    def __str__(self) -> str:
        words = ("succeeded", "failed", "cancelled", "running", "refused", "silent")
        told = [f"{len(nodes)} {word}" for word in words if (nodes := getattr(self, word))]
        return ", ".join(told) or "no members"


class CohortBake:
    """One recipe on every member of a cohort. `refused`: members where it was refused, or not stored."""

    def __init__(self, bakes: Mapping[str, Bake], refused: Mapping[str, SupervisorError]) -> None:
        self.bakes, self.refused = dict(bakes), dict(refused)
        self._late: dict[str, RecipeRejected] = {}

    @property
    def summary(self) -> BakeSummary:
        """As far as it is known now."""
        found: dict[str, list[str]] = {"refused": [*self.refused, *self._late]}
        done = 0
        for node_id, bake in self.bakes.items():
            if node_id not in self._late:
                word, pct = _state(bake)
                found.setdefault(word, []).append(node_id)
                done += pct
        parts = {word: tuple(sorted(node_ids)) for word, node_ids in found.items()}
        return BakeSummary(**parts, pct=round(done / max(1, len(self.bakes))))

    async def ended(self) -> AsyncGenerator[tuple[str, BakeOutcome]]:
        """Each outcome with its NodeID as it comes. Ends when every member that was heard of has ended: one
        that is silent is not waited for, but counts from the moment when it is heard.
        """
        ends: dict[asyncio.Task[BakeOutcome], str] = {}
        hears: set[asyncio.Task[Any]] = set()
        for node_id, bake in self.bakes.items():
            ends[asyncio.create_task(bake.outcome())] = node_id
            hears.add(asyncio.create_task(bake.accepted()))
        try:
            while any(not self.bakes[node_id].waiting for node_id in ends.values()):
                await asyncio.wait({*ends, *hears}, return_when=asyncio.FIRST_COMPLETED)
                heard = {task for task in hears if task.done()}
                hears -= heard
                for task in heard:
                    task.exception()  # seen: the end raises the same
                for end in [each for each in ends if each.done()]:
                    node_id = ends.pop(end)
                    try:
                        yield node_id, end.result()
                    except RecipeRejected as error:
                        self._late[node_id] = error
        finally:
            for task in (*ends, *hears):
                task.cancel()
            await asyncio.gather(*ends, *hears, return_exceptions=True)

    async def outcomes(self) -> dict[str, BakeOutcome]:
        """The outcomes by NodeID, once every member that was heard of has ended; see `ended`."""
        return {node_id: outcome async for node_id, outcome in self.ended()}

    async def cancel(self) -> CohortSummary:
        """Cancels every bake that has not ended."""
        running = {node: bake for node, bake in self.bakes.items() if bake.terminal is None}
        found = await asyncio.gather(*(_quiet(bake) for bake in running.values()))
        return summed(dict(zip(running, found, strict=True)))


class Cohort:
    """A cohort by its name. Made by `Supervisor.cohort`; it need not exist yet."""

    def __init__(self, supervisor: Supervisor, name: str) -> None:
        self._supervisor = supervisor
        self.name = names.check("cohort", name)

    async def members(self) -> tuple[str, ...]:
        """The NodeIDs of its members. Raises CohortUnknown."""
        found = (await read_cohorts(self._supervisor.bus)).get(self.name)
        if found is None:
            raise CohortUnknown(self.name)
        return found

    async def set(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """Makes it these nodes, by name or id; an operator's right. Gives their ids. Raises NodeUnknown."""
        places = [await self._supervisor.directory.find(node) for node in nodes]
        members = tuple(dict.fromkeys(place.node_id for place in places))
        await _bucket(self._supervisor.bus).put(self.name, json.dumps(members).encode())
        return members

    async def remove(self) -> None:
        """Forgets it; an operator's right. Raises CohortUnknown."""
        await self.members()
        await _bucket(self._supervisor.bus).delete(self.name)

    async def send(
        self, verb: str, entries: Mapping[str, Any] | None = None, *, timeout: float = SEND_S
    ) -> CohortSummary:
        """A message to the components of every member that ask for it. Raises CohortUnknown, AccessDenied."""
        members = await self.members()
        message = CohortMessage(cohort=self.name, verb=verb, payload=dict(entries) if entries else None)
        found = await asyncio.gather(*(self._send(node, message, timeout) for node in members))
        return summed(dict(zip(members, found, strict=True)))

    async def _send(self, node_id: str, message: CohortMessage, timeout: float) -> Result | None:
        bus, name = self._supervisor.bus, self._supervisor.name
        subject = subjects.build(bus.mesh, node_id, name, self.name, message.type)
        try:
            answer = (await bus.request(subject, message, timeout)).message
        except (NoResponder, RequestTimeout, ServiceFailed, ReplyRefused):
            return None
        return answer if isinstance(answer, Result) else None

    async def bake(
        self,
        xml: str,
        *,
        params: Mapping[str, Any] | None = None,
        expires_s: float | None = None,
        result_timeout_s: float = RESULT_S,
    ) -> CohortBake:
        """One recipe on every member, each under a RecipeID of its own.

        A member that is silent has its recipe in its inbox: give `expires_s` where it must not begin late.
        Raises CohortUnknown, MintExhausted, MessageTooLarge, NameRefused.
        """
        members = await self.members()
        await self._supervisor.directory.known()  # for the nodes' names
        found = await asyncio.gather(
            *(self._bake(node, xml, params, expires_s, result_timeout_s) for node in members)
        )
        made = dict(zip(members, found, strict=True))
        refused = {node: one for node, one in made.items() if isinstance(one, SupervisorError)}
        bakes = {node: one for node, one in made.items() if not isinstance(one, SupervisorError)}
        return CohortBake(bakes, refused)

    async def _bake(
        self,
        node_id: str,
        xml: str,
        params: Mapping[str, Any] | None,
        expires_s: float | None,
        result_timeout_s: float,
    ) -> Bake | SupervisorError:
        supervisor = self._supervisor
        name = supervisor.directory.name_of(node_id)
        try:
            return await supervisor.bake(
                xml,
                node=name,
                node_id=node_id,
                params=params,
                expires_s=expires_s,
                result_timeout_s=result_timeout_s,
            )
        except (RecipeRejected, NotStored) as error:
            return error


async def read_cohorts(bus: Bus) -> dict[str, tuple[str, ...]]:
    """Every cohort with its members' NodeIDs; what is no list of ids is left out."""
    try:
        entries = await _bucket(bus).entries()
    except NotFound:  # no Builder was ever on this mesh
        return {}
    found = {}
    for name, entry in entries.items():
        try:
            members = json.loads(entry.value)
        except ValueError:
            continue
        if isinstance(members, list) and all(names.is_valid("NodeID", each) for each in members):
            found[name] = tuple(dict.fromkeys(members))
    return found


def summed(results: Mapping[str, Result | None]) -> CohortSummary:
    """The members' Results in one; None: silent."""
    heard = {node: result for node, result in results.items() if result is not None}
    return CohortSummary(
        accepted={node: result for node, result in heard.items() if result.accepted},
        refused={node: result for node, result in heard.items() if not result.accepted},
        silent=tuple(node for node in results if node not in heard),
    )


def _bucket(bus: Bus) -> Bucket:
    return Bucket(bus, storage.cohorts_bucket(bus.mesh))


def _state(bake: Bake) -> tuple[str, int]:
    """A bake's word in the summary, and how much of it is done, in percent."""
    terminal = bake.terminal
    if terminal is not None:
        if isinstance(terminal, BakeSuccess):
            return "succeeded", 100
        return ("failed" if isinstance(terminal, BakeFailed) else "cancelled"), 100
    if bake.waiting:
        return "silent", 0
    return "running", max(0, bake.latest.pct) if bake.latest is not None else 0


async def _quiet(bake: Bake) -> Result | None:
    try:
        return await bake.cancel()
    except SupervisorError:
        return None
