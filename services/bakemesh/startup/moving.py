"""Components that change their node: the new node's bring-up waits until the old node has lost them. Pure.

    B is to hold what may be on A ──→ Held … A's Gone ──→ Dispatch to B
                                        └── A is away, not heard for AWAY_S ──→ Unheard, Dispatch to B

Guarantee: no bring-up is sent for a component that another node, which is heard, may hold. Left out: a node
that is away may be dead or cut off, and nobody can tell. What it still runs lives beside the new one until it
is heard, and is then removed before anything else is done there.
"""

from __future__ import annotations

from dataclasses import replace

from bakemesh.startup.state import Effect, Held, Parts, State, Unheard

AWAY_S = 60.0  # as `bakemesh nodes` calls it gone; SystemStatus comes every 5 s


def held_back(
    state: State, node_id: str, node: str, parts: Parts, now: float
) -> tuple[State, list[Effect], bool]:
    """Whether the bring-up of `parts` on a node waits for others, and what is to be said of that."""
    found = {
        other: names
        for other, site in state.sites.items()
        if other != node_id and (names := tuple(name for name in parts if name in site.placed))
    }
    if not found:
        return replace(state, held=_without(state, node_id)), [], False
    # One that this process has not heard yet is given its time from now on.
    state = replace(state, heard={**dict.fromkeys(found, now), **state.heard})
    here = frozenset(other for other in found if now < state.heard[other] + AWAY_S)
    waited_for = here or found.keys()
    names = tuple(name for other in found if other in waited_for for name in found[other])
    others = tuple(state.sites[other].node for other in found if other in waited_for)
    if not here:
        return replace(state, held=_without(state, node_id)), [Unheard(node_id, node, names, others)], False
    said = here <= state.held.get(node_id, frozenset())
    state = replace(state, held={**state.held, node_id: here})
    return state, [] if said else [Held(node_id, node, names, others)], True


def next_away(state: State) -> float | None:
    """When the next of the nodes that are waited for is away, unless it is heard before."""
    return min((_until(state, others) for others in state.held.values()), default=None)


def over(state: State, now: float) -> State:
    """Without the waits whose time is over."""
    held = {node_id: others for node_id, others in state.held.items() if _until(state, others) > now}
    return state if len(held) == len(state.held) else replace(state, held=held)


def _until(state: State, others: frozenset[str]) -> float:
    return max(state.heard[other] for other in others) + AWAY_S


def _without(state: State, node_id: str) -> dict[str, frozenset[str]]:
    return {each: others for each, others in state.held.items() if each != node_id}
