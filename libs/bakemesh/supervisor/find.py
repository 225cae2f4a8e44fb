"""Where a bake is, given its RecipeID: a subject query on the status streams, then on the inbox.

A RecipeID does not say who owns it (names may hold '-'), nor which node bakes it. Guarantees: one answer, or
BakeUnknown, or AmbiguousRecipeID with every candidate. Left out: reading the bake.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bakemesh.bus.errors import NotFound, StoreUnavailable
from bakemesh.protocol import storage, subjects
from bakemesh.protocol.errors import SubjectError
from bakemesh.protocol.subjects import ANY, BAKE, RECIPE
from bakemesh.supervisor.errors import AmbiguousRecipeID, BakeUnknown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bakemesh.bus import Bus
    from bakemesh.bus.jsapi import JsApi


@dataclass(frozen=True, slots=True)
class Found:
    """A bake's owner and node. `waiting`: only its recipe was found, in the inbox."""

    supervisor: str
    node_id: str
    waiting: bool


async def locate(
    bus: Bus,
    recipe_id: str,
    *,
    supervisor: str | None = None,
    node_id: str | None = None,
    nodes: Iterable[str] = (),
) -> Found:
    """The bake with this RecipeID. `nodes`: ids whose own streams are asked where the hub's has nothing.

    Raises BakeUnknown, AmbiguousRecipeID, and the bus errors of a store that cannot be asked.
    """
    mesh, owner, where = bus.mesh, supervisor or ANY, node_id or ANY
    wanted = subjects.pattern(mesh, f"{BAKE}.*", node_id=where, party=owner, key=recipe_id)
    found, hub_error = await _on_hub(bus, storage.hub_status_stream(mesh), wanted)
    if bus.on_leaf and bus.domain is not None:
        found |= await _pairs(bus.api, storage.status_stream(mesh, bus.domain), wanted)
    if not found and hub_error is None:  # sourcing is a moment behind
        for node in [node_id] if node_id else nodes:
            found |= (await _on_hub(bus, storage.status_stream(mesh, node), wanted))[0]
    waiting = not found
    if waiting:
        wanted = subjects.pattern(mesh, RECIPE, node_id=where, party=owner, key=recipe_id)
        found, hub_error = await _on_hub(bus, storage.inbox_stream(mesh), wanted)
        if bus.on_leaf and bus.domain is not None:
            found |= await _pairs(bus.api, storage.leaf_inbox_stream(mesh, bus.domain), wanted)
    if not found:
        raise hub_error or BakeUnknown(recipe_id)
    if len(found) > 1:
        raise AmbiguousRecipeID(recipe_id, found)
    owner, where = found.pop()
    return Found(owner, where, waiting)


async def _on_hub(bus: Bus, stream: str, wanted: str) -> tuple[set[tuple[str, str]], StoreUnavailable | None]:
    """What the hub holds; on a leaf that is cut off nothing, and why: its own bakes are still found."""
    try:
        return await _pairs(bus.hub_api, stream, wanted), None
    except StoreUnavailable as error:
        if not bus.on_leaf:
            raise
        return set(), error


async def _pairs(api: JsApi, stream: str, wanted: str) -> set[tuple[str, str]]:
    """(Supervisor, NodeID) of every subject that a stream holds of `wanted`."""
    try:
        info = await api.stream_info(stream, subjects_filter=wanted)
    except NotFound:
        return set()
    pairs = set()
    for subject in info["state"].get("subjects") or {}:
        try:
            parsed = subjects.parse(subject)
        except SubjectError:  # nothing of ours
            continue
        pairs.add((parsed.party, parsed.node_id))
    return pairs
