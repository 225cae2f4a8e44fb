"""Every bake that is known: out of the subjects of the status stream, then what waits in the inbox.

Each bake has one subject a message type, so the list costs one request for the subjects, and one for the last
message of each bake that is shown. A hub's stream has every node's; a node whose Status is not there yet is
asked for its own. Where the identity may not ask for single messages (on a mesh with authentication), a bake
is read through a consumer, whose filter the server can permit.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bakemesh.bus.errors import AccessDenied, NotFound
from bakemesh.bus.reader import read
from bakemesh.protocol import storage, subjects
from bakemesh.protocol.builder.messages import TERMINAL_TYPES, BakeOutcome, BakeStatus, RecipeMessage
from bakemesh.protocol.errors import MessageError, SubjectError
from bakemesh.protocol.message import decode
from bakemesh.protocol.numerals import whole
from bakemesh.protocol.subjects import BAKE, RECIPE

if TYPE_CHECKING:
    from bakemesh.bus import Bus
    from bakemesh.bus.jsapi import JsApi

_STATES = {
    "Success": "succeeded",
    "Failed": "failed",
    "Cancelled": "cancelled",
    "Paused": "paused",
    "Restarted": "running",
}


Store = tuple["JsApi", str]  # a stream, and the JetStream it is in
Found = dict[str, Store]  # where a bake's last message of each type is


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """A bake, and the node it is on."""

    node_id: str
    supervisor: str
    recipe_id: str


@dataclass(frozen=True, slots=True)
class Row:
    """One bake as it is listed. `at`: when its last message was stored, as the server says it."""

    key: Key
    recipe: str
    node: str
    state: str
    pct: int
    summary: str
    at: str

    def fields(self) -> dict[str, Any]:
        """Stable names, for machines."""
        return {
            "recipeid": self.key.recipe_id,
            "supervisor": self.key.supervisor,
            "recipe": self.recipe,
            "node": self.node,
            "nodeid": self.key.node_id,
            "state": self.state,
            "pct": self.pct,
            "summary": self.summary,
            "at": self.at,
        }


async def bakes(bus: Bus, node_ids: Iterable[str], *, limit: int | None) -> list[Row]:
    """The newest `limit` bakes (all without), running ones and the newest last. Raises bus errors."""
    mesh = bus.mesh
    wanted = subjects.pattern(mesh, f"{BAKE}.*")
    stores = [(bus.hub_api, storage.hub_status_stream(mesh))]
    stores += [(bus.api, storage.status_stream(mesh, bus.domain))] if bus.on_leaf and bus.domain else []
    stores += [(bus.hub_api, storage.status_stream(mesh, node_id)) for node_id in node_ids]
    known: dict[Key, Found] = {}
    for store in stores:  # the node's own is the last: a hub's copy may be behind it
        for subject in await _subjects(*store, wanted):
            known.setdefault(Key(subject.node_id, subject.party, subject.key), {})[subject.type] = store
    rows = []
    for key, found in _newest(known, limit):
        if (row := await _row(bus, key, found)) is not None:
            rows.append(row)
    waiting = await _waiting(bus, known)
    rows.sort(key=lambda row: row.at)
    return waiting + rows if limit is None else (waiting + rows)[-limit:]


def _newest(known: dict[Key, Found], limit: int | None) -> list[tuple[Key, Found]]:
    """Unended bakes always, and of the ended ones those with the highest numbers."""

    def order(item: tuple[Key, Found]) -> tuple[bool, int]:
        key, found = item
        number = key.recipe_id.rpartition("-")[2]
        return not found.keys() & TERMINAL_TYPES, whole(number) or 0

    ordered = sorted(known.items(), key=order)
    return ordered if limit is None else ordered[-limit:]


async def _subjects(api: JsApi, stream: str, wanted: str) -> list[subjects.Subject]:
    try:
        info = await api.stream_info(stream, subjects_filter=wanted)
    except NotFound:
        return []
    found = []
    for subject in info["state"].get("subjects") or {}:
        try:
            found.append(subjects.parse(subject))
        except SubjectError:
            continue
    return found


async def _row(bus: Bus, key: Key, found: Found) -> Row | None:
    """The bake by its terminal, else by the last message of each type. None: of another identity, or gone."""
    ended = {kind: store for kind, store in found.items() if kind in TERMINAL_TYPES}
    try:
        last = await _last(bus.mesh, key, ended or found)
    except AccessDenied:
        try:
            last = await _read(bus, key, set((ended or found).values()))
        except (AccessDenied, NotFound):
            return None
    if not last:
        return None
    status, at = max(last, key=lambda each: each[0].serial)
    state = state_of([message for message, _ in last])
    return Row(key, status.recipe, status.node, state, status.pct, status.summary, at)


async def _last(mesh: str, key: Key, found: Found) -> list[tuple[BakeStatus, str]]:
    """The last message of each type, and when it was stored."""
    last: list[tuple[BakeStatus, str]] = []
    for kind, (api, stream) in found.items():
        subject = subjects.build(mesh, key.node_id, key.supervisor, key.recipe_id, kind)
        try:
            stored = await api.get_message(stream, last_of=subject)
            message = decode(stored.payload).message
        except (NotFound, MessageError):
            continue
        if isinstance(message, BakeStatus):
            last.append((message, stored.time))
    return last


async def _read(bus: Bus, key: Key, stores: Iterable[Store]) -> list[tuple[BakeStatus, str]]:
    """The same, out of all messages of the bake; when it was sent stands for when it was stored."""
    wanted = subjects.pattern(
        bus.mesh, f"{BAKE}.*", node_id=key.node_id, party=key.supervisor, key=key.recipe_id
    )
    last: dict[str, tuple[BakeStatus, str]] = {}
    for api, stream in stores:
        async with aclosing(read(bus, stream, wanted, end="last", api=api)) as found:
            async for stored in found:
                try:
                    received = decode(stored.payload)
                except MessageError:
                    continue
                message, before = received.message, last.get(received.type)
                if isinstance(message, BakeStatus) and (before is None or before[0].serial <= message.serial):
                    at = datetime.fromtimestamp(received.created / 1e6, UTC).isoformat()
                    last[received.type] = (message, at.replace("+00:00", "Z"))
    terminals = [each for kind, each in last.items() if kind in TERMINAL_TYPES]
    return terminals or list(last.values())


def state_of(last: Iterable[BakeStatus]) -> str:
    """A bake's state by its last message of each type: a rest lasts until the next Restarted or terminal."""
    newest = max(last, key=lambda status: (isinstance(status, BakeOutcome), status.serial))
    if not isinstance(newest, BakeOutcome):
        return "queued" if newest.summary.startswith("queued") else "running"
    if newest.code == "held" and newest.type not in TERMINAL_TYPES:
        return "held"
    return _STATES[newest.type.rpartition(".")[2]]


async def _waiting(bus: Bus, known: Iterable[Key]) -> list[Row]:
    """Recipes that no Builder has taken yet."""
    wanted = subjects.pattern(bus.mesh, RECIPE)
    stores = [(bus.hub_api, storage.inbox_stream(bus.mesh))]
    if bus.on_leaf and bus.domain:
        stores.append((bus.api, storage.leaf_inbox_stream(bus.mesh, bus.domain)))
    taken, rows = set(known), []
    for api, stream in stores:
        for subject in await _subjects(api, stream, wanted):
            key = Key(subject.node_id, subject.party, subject.key)
            if key in taken:
                continue
            taken.add(key)
            try:
                stored = await api.get_message(stream, last_of=str(subject))
            except NotFound:
                continue  # taken this moment
            except AccessDenied:
                if key.supervisor != bus.settings.party and not await _sees_all(bus):
                    continue
                summary = f"in the inbox of node {key.node_id}; no Builder there has taken it yet"
                rows.append(Row(key, "-", key.node_id, "waiting", -1, summary, ""))
                continue
            try:
                message = decode(stored.payload).message
            except MessageError:
                continue
            if isinstance(message, RecipeMessage):
                summary = f"in the inbox of node {message.node}; no Builder there has taken it yet"
                rows.append(Row(key, message.recipe, message.node, "waiting", -1, summary, stored.time))
    return rows


async def _sees_all(bus: Bus) -> bool:
    """Whether this is an operator's identity: the ids of others are nobody else's business."""
    try:
        await bus.hub_api.request("STREAM.NAMES")
    except AccessDenied:
        return False
    return True
