"""The Startup Supervisor's decisions: (state, event) → (state, effects). Pure.

    own SystemStatus, config complete ──→ every group of the PsySpec whose node is there:

    what is there and not wanted ── Remove … Gone ──→ what is wanted and not there ── Dispatch … Prepared
        (journaled with its sealed bytes) ── Follow … Ended ──→ done for (boot of the node, group digest)
                                                   │
                                                   └─ failed: again after a growing, jittered pause

    the own group done for this boot, the first time ──→ Announce

Guarantees: one bring-up at a time on a node; each (boot, group digest) of a node succeeds once and is then
left alone; Ready once a boot of the own node, never before its own group is done; all of it also over
restarts at any moment, given that what `step` returns is journaled before its effects are carried out. A
recipe whose node rebooted, or whose group changed meanwhile, is cancelled, and the next one waits for its
end. A component that moves is brought up on its new node when the old one has lost it (`moving`). Left out:
how anything is carried out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from bakemesh.startup import moving
from bakemesh.startup.state import (
    Announce,
    BroughtUp,
    Cancel,
    Dispatch,
    Effect,
    Ended,
    Event,
    Failed,
    Follow,
    Given,
    Goal,
    Gone,
    Missing,
    Offered,
    Parts,
    Prepared,
    Reconcile,
    Remove,
    Reported,
    Seen,
    Sent,
    Site,
    Spec,
    State,
    Tick,
)

FIRST_S, FACTOR, MOST_S, JITTER = 1.0, 2.0, 60.0, 0.25
K = TypeVar("K")
V = TypeVar("V")


def step(state: State, event: Event) -> tuple[State, tuple[Effect, ...]]:
    """The state after an event, and what is to be done, in order."""
    match event:
        case Reported():
            after = _reported(state, event)
            return (after, ()) if after.seen is state.seen else _settle(after, event.now)
        case Offered(spec):
            return replace(state, offer=spec), ()
        case Given(spec, now):
            return _settle(_given(state, spec), now)
        case Prepared():
            return _settle(_prepared(state, event), event.now)
        case Ended():
            after, said = _ended(state, event)
            settled, effects = _settle(after, event.now)
            return settled, (*said, *effects)
        case Gone():
            return _settle(_gone(state, event), event.now)
        case Tick(now):
            return _settle(state, now)


def pause_s(failures: int, draw: float) -> float:
    """How long to wait after so many failures in a row."""
    grown: float = min(FIRST_S * FACTOR ** min(failures - 1, 16), MOST_S)
    return grown * (1 - JITTER * draw)


def next_due(state: State) -> float | None:
    """When a Tick is due next: a failed bring-up may be tried again, or a node that is waited for is away."""
    away = moving.next_away(state)
    return min((*state.due.values(), *(() if away is None else (away,))), default=None)


def remembered(state: State) -> State:
    """What a restart leaves of a state: the part that the journal keeps."""
    return State(
        node_id=state.node_id,
        boot=state.boot,
        spec=state.spec,
        announced=state.announced,
        changed=state.changed,
        offered=state.offered,
        sites=state.sites,
    )


def homes(state: State) -> dict[str, Goal]:
    """Each group of the PsySpec under the id of its node, as far as that is known: by the PsySpec's own word,
    else the node of that name, or id, that was heard last."""
    if state.spec is None:
        return {}
    # A name that was not heard since this process began: where it was brought up before.
    by_name = {site.node: node_id for node_id, site in state.sites.items()}
    for node_id, seen in sorted(state.seen.items(), key=lambda each: each[1].turn):
        by_name[node_id] = by_name[seen.node] = node_id
    found: dict[str, Goal] = {}
    for goal in state.spec.goals:
        node_id = state.node_id if goal.local else goal.node_id or by_name.get(goal.node, "")
        if node_id:
            found[node_id] = goal
    return found


# -- what each event changes


def _reported(state: State, event: Reported) -> State:
    known = state.seen.get(event.node_id)
    state = replace(state, heard=_with(state.heard, event.node_id, event.now))
    seen = Seen(event.node, event.boot, event.complete, event.complete and not event.draining, 0)
    if known is not None and replace(known, turn=0) == seen:
        return state
    seen = replace(seen, turn=1 + max((each.turn for each in state.seen.values()), default=0))
    state = replace(state, seen=_with(state.seen, event.node_id, seen))
    if known is not None and known.boot != event.boot:
        state = _fresh(state, event.node_id)
    if event.node_id != state.node_id or not event.complete:
        return state
    return _kicked(state, event.boot)


def _kicked(state: State, boot: str) -> State:
    """The own node is there, with its config complete."""
    again = boot == state.boot
    if not again:
        state = replace(state, boot=boot, changed=state.given)
    offer, state = state.offer, replace(state, up=True, offer=None, given=False)
    # The arguments count once a boot; within one a PsySpec that came later by a message stands, unless the
    # arguments say something new.
    if offer is not None and not (again and state.spec is not None and state.offered == offer.digest):
        state = replace(_taken(state, offer, changed=again and state.spec is not None), offered=offer.digest)
    return state


def _given(state: State, spec: Spec) -> State:
    if state.offer is not None:  # what the arguments say is older
        state = replace(state, offer=None, offered=state.offer.digest)
    return replace(_taken(state, spec, changed=True), given=not state.up)


def _taken(state: State, spec: Spec, *, changed: bool) -> State:
    sites = {node_id: replace(site, told="", failures=0) for node_id, site in state.sites.items()}
    return replace(
        state, spec=spec, changed=changed, sites=sites, due={}, missed=frozenset(), asked={}, held={}
    )


def _prepared(state: State, event: Prepared) -> State:
    node_id, sent = event.node_id, event.sent
    goal = homes(state).get(node_id)
    if state.asked.get(node_id) != (sent.boot, sent.goal):
        return state  # wanted no more; its number is lost
    if goal is None or goal.digest != sent.goal:  # the group's node is another one since
        return replace(state, asked=_without(state.asked, node_id))
    site = state.sites.get(node_id) or Site(_name(state, node_id))
    placed = {**site.placed, **dict.fromkeys(sent.parts, "")}
    state = _site(state, node_id, replace(site, placed=placed, sent=sent))
    return replace(state, asked=_without(state.asked, node_id))


def _ended(state: State, event: Ended) -> tuple[State, list[Effect]]:
    site = state.sites.get(event.node_id)
    if site is None or site.sent is None or site.sent.recipe_id != event.recipe_id:
        return state, []
    sent, said = site.sent, list[Effect]()
    wanted = not _stale(state, event.node_id, sent, homes(state).get(event.node_id))
    site = replace(site, sent=None)
    if event.ok:
        placed = {**site.placed, **sent.parts}
        site = replace(site, placed=placed, done=(sent.boot, sent.goal), failures=0)
        said.append(BroughtUp(event.node_id, site.node, tuple(sent.parts)))
    elif wanted:
        site = replace(site, failures=site.failures + 1)
        pause = pause_s(site.failures, event.draw)
        state = replace(state, due=_with(state.due, event.node_id, event.now + pause))
        said.append(Failed(event.node_id, site.node, event.why, pause))
    state = replace(
        state,
        followed=state.followed - {event.recipe_id},
        cancelling=state.cancelling - {event.recipe_id},
    )
    return _site(state, event.node_id, site), said


def _gone(state: State, event: Gone) -> State:
    state = replace(state, removing=state.removing - {(event.node_id, event.component)})
    site = state.sites.get(event.node_id)
    if site is None:
        return state
    return _site(state, event.node_id, replace(site, placed=_without(site.placed, event.component)))


def _fresh(state: State, node_id: str) -> State:
    """A node that came again: what failed before it did is no reason to wait."""
    state = replace(state, due=_without(state.due, node_id))
    site = state.sites.get(node_id)
    return state if site is None else _site(state, node_id, replace(site, failures=0))


# -- what follows from it


def _settle(state: State, now: float) -> tuple[State, tuple[Effect, ...]]:
    """Everything that is to be done in this state and is not being done yet."""
    state = replace(state, due={node_id: due for node_id, due in state.due.items() if due > now})
    state = moving.over(state, now)
    spec = state.spec
    if not state.up or spec is None:
        return state, ()
    effects: list[Effect] = []
    goals = homes(state)
    for node_id in dict.fromkeys((*goals, *state.sites)):
        state, more = _settle_node(state, spec, node_id, goals.get(node_id), now)
        effects += more
    state, more = _missing(state, spec, goals)
    return _announce(state, spec, [*effects, *more], goals.get(state.node_id))


def _settle_node(
    state: State, spec: Spec, node_id: str, goal: Goal | None, now: float
) -> tuple[State, list[Effect]]:
    site = state.sites.get(node_id) or Site(goal.node if goal else node_id)
    if site.sent is not None:
        return _under_way(state, node_id, site.sent, goal)
    seen = state.seen.get(node_id)
    if seen is None or not seen.answers:
        return state, []
    site = replace(site, node=seen.node)
    wanted: Parts = goal.parts if goal else {}
    if over := [name for name in site.placed if name not in wanted]:
        fresh = [name for name in over if (node_id, name) not in state.removing]
        removing = state.removing | {(node_id, name) for name in fresh}
        return replace(state, removing=removing), [Remove(node_id, name) for name in fresh]
    if not seen.takes or node_id in state.due:
        return state, []
    if goal is None:
        return _complete(state, spec, node_id, site, None)
    key = (seen.boot, goal.digest)
    if site.done == key:
        return _complete(state, spec, node_id, site, goal)
    same_boot = site.done is not None and site.done[0] == seen.boot
    parts = {
        name: digest for name, digest in wanted.items() if not (same_boot and site.placed.get(name) == digest)
    }
    if not parts:
        return _complete(state, spec, node_id, replace(site, done=key), goal)
    if state.asked.get(node_id) == key:
        return state, []
    state, said, waits = moving.held_back(state, node_id, seen.node, parts, now)
    if waits:
        return state, said
    state = replace(state, asked=_with(state.asked, node_id, key))
    return state, [*said, Dispatch(node_id, seen.node, seen.boot, goal.digest, parts)]


def _under_way(state: State, node_id: str, sent: Sent, goal: Goal | None) -> tuple[State, list[Effect]]:
    effects: list[Effect] = []
    if sent.recipe_id not in state.followed:
        state = replace(state, followed=state.followed | {sent.recipe_id})
        effects.append(Follow(node_id, sent.recipe_id))
    if _stale(state, node_id, sent, goal) and sent.recipe_id not in state.cancelling:
        state = replace(state, cancelling=state.cancelling | {sent.recipe_id})
        effects.append(Cancel(node_id, sent.recipe_id))
    return state, effects


def _stale(state: State, node_id: str, sent: Sent, goal: Goal | None) -> bool:
    """Whether what is under way is wanted no more: another group, or another boot of the node."""
    if goal is None or goal.digest != sent.goal:
        return True
    seen = state.seen.get(node_id)
    return seen is not None and seen.boot != sent.boot


def _complete(
    state: State, spec: Spec, node_id: str, site: Site, goal: Goal | None
) -> tuple[State, list[Effect]]:
    """Everything wanted is there, and nothing else of ours."""
    wanted: Parts = goal.parts if goal else {}
    effects = list[Effect]()
    if state.changed and site.told != spec.digest and (goal or site.held):
        effects.append(_reconciled(node_id, site, spec, wanted))
    if goal is None:
        return replace(state, sites=_without(state.sites, node_id)), effects
    return _site(state, node_id, replace(site, held=wanted, told=spec.digest)), effects


def _reconciled(node_id: str, site: Site, spec: Spec, wanted: Parts) -> Reconcile:
    held = site.held
    common = wanted.keys() & held.keys()
    return Reconcile(
        node_id,
        site.node,
        spec.digest,
        added=tuple(name for name in wanted if name not in held),
        removed=tuple(name for name in held if name not in wanted),
        restarted=tuple(name for name in wanted if name in common and wanted[name] != held[name]),
        unchanged=sum(wanted[name] == held[name] for name in common),
    )


def _missing(state: State, spec: Spec, goals: Mapping[str, Goal]) -> tuple[State, list[Effect]]:
    there = {goal.node for node_id, goal in goals.items() if node_id in state.seen}
    away = [goal for goal in spec.goals if goal.node not in there and goal.node not in state.missed]
    if not away:
        return state, []
    state = replace(state, missed=state.missed | {goal.node for goal in away})
    return state, [Missing(goal.node, len(goal.parts)) for goal in away]


def _announce(
    state: State, spec: Spec, effects: list[Effect], own: Goal | None
) -> tuple[State, tuple[Effect, ...]]:
    site = state.sites.get(state.node_id)
    done = own is None or (site is not None and site.done == (state.boot, own.digest) and not site.sent)
    if state.announced == state.boot or not done:
        return state, tuple(effects)
    names = tuple(own.parts) if own else ()
    effects.append(Announce(state.boot, spec.name, spec.digest, names))
    return replace(state, announced=state.boot), tuple(effects)


# -- small words


def _name(state: State, node_id: str) -> str:
    seen = state.seen.get(node_id)
    return seen.node if seen else node_id


def _site(state: State, node_id: str, site: Site) -> State:
    return (
        state if state.sites.get(node_id) == site else replace(state, sites=_with(state.sites, node_id, site))
    )


def _with(found: Mapping[K, V], key: K, value: V) -> dict[K, V]:
    return {**found, key: value}


def _without(found: Mapping[K, V], key: K) -> dict[K, V]:
    return {name: value for name, value in found.items() if name != key}
