"""What a Startup Supervisor knows, and what happens to it: plain values.

The journal keeps the fields that are not marked volatile; the others are found out again after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Parts = Mapping[str, str]  # component → digest of its spec; "": a bring-up of it has not succeeded yet


@dataclass(frozen=True, slots=True)
class Goal:
    """What one node is to hold. `node_id` None: the node is known by its name alone."""

    node: str
    node_id: str | None
    local: bool
    digest: str
    parts: Parts


@dataclass(frozen=True, slots=True)
class Spec:
    """A PsySpec as far as it matters here."""

    name: str
    digest: str
    goals: tuple[Goal, ...]


@dataclass(frozen=True, slots=True)
class Sent:
    """A bring-up recipe that was journaled and is sent, until it has ended. `boot`, `goal`: of its node and
    of its group when it was made."""

    recipe_id: str
    boot: str
    goal: str
    parts: Parts


@dataclass(frozen=True, slots=True)
class Site:
    """One node as this Supervisor has dealt with it.

    `placed`: every component that may be there by its doing. `held`: what was there when a bring-up was last
    complete. `done`: the (boot, group digest) for which it was. `told`: the PsySpec digest for which
    Reconciled was said. `failures` in a row.
    """

    node: str
    placed: Parts = field(default_factory=dict)
    held: Parts = field(default_factory=dict)
    done: tuple[str, str] | None = None
    sent: Sent | None = None
    told: str = ""
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """A node as its last SystemStatus told it; `turn` orders them. `answers`: its configuration is complete;
    `takes`: it takes recipes, too."""

    node: str
    boot: str
    answers: bool
    takes: bool
    turn: int


@dataclass(frozen=True, slots=True)
class State:
    """The whole.

    `boot`: of the own node, "" before it was first seen. `announced`: the boot for which Ready was journaled.
    `changed`: the PsySpec was given while this boot was up already, so that what is done about it is told as
    Reconciled. `offered`: digest of the PsySpec that was last taken from the process's own arguments.
    """

    node_id: str
    boot: str = ""
    spec: Spec | None = None
    announced: str = ""
    changed: bool = False
    offered: str = ""
    sites: Mapping[str, Site] = field(default_factory=dict)  # by NodeID
    # volatile
    up: bool = False  # the own node was seen since this process began
    given: bool = False  # a PsySpec came by a message before that
    offer: Spec | None = None
    seen: Mapping[str, Seen] = field(default_factory=dict)  # by NodeID
    asked: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # being prepared: boot, group digest
    followed: frozenset[str] = frozenset()  # RecipeIDs
    cancelling: frozenset[str] = frozenset()  # RecipeIDs
    removing: frozenset[tuple[str, str]] = frozenset()  # NodeID, component
    due: Mapping[str, float] = field(default_factory=dict)  # NodeID → not before, monotonic
    missed: frozenset[str] = frozenset()  # nodes of the PsySpec that were said to be away
    heard: Mapping[str, float] = field(default_factory=dict)  # NodeID → last, or first waited for; monotonic
    held: Mapping[str, frozenset[str]] = field(default_factory=dict)  # NodeID → nodes that it waits for


# -- what happens


@dataclass(frozen=True, slots=True)
class Reported:
    """A SystemStatus of any node."""

    node_id: str
    node: str
    boot: str
    complete: bool
    draining: bool
    now: float


@dataclass(frozen=True, slots=True)
class Offered:
    """The PsySpec that the process was started with. Before the first Reported."""

    spec: Spec


@dataclass(frozen=True, slots=True)
class Given:
    """A PsySpec came in a message: it is the one from now on."""

    spec: Spec
    now: float


@dataclass(frozen=True, slots=True)
class Prepared:
    """A Dispatch was minted and sealed; journaled with the state that takes it."""

    node_id: str
    sent: Sent
    now: float


@dataclass(frozen=True, slots=True)
class Ended:
    """A bring-up recipe ended. `why` says how, where it did not succeed. `draw` is random from [0, 1)."""

    node_id: str
    recipe_id: str
    ok: bool
    why: str
    now: float
    draw: float


@dataclass(frozen=True, slots=True)
class Gone:
    """A component that was to be removed is not there any more, or never was ours."""

    node_id: str
    component: str
    now: float


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""

    now: float


Event = Reported | Offered | Given | Prepared | Ended | Gone | Tick


# -- what is to be done


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Mint and seal a bring-up recipe of these components; the answer is Prepared."""

    node_id: str
    node: str
    boot: str
    goal: str
    parts: Parts


@dataclass(frozen=True, slots=True)
class Follow:
    """Send the journaled recipe, again where it was sent before, and follow it; the answer is Ended."""

    node_id: str
    recipe_id: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """What the recipe brings up is wanted no more: cancel it until it has ended."""

    node_id: str
    recipe_id: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Ask the node's Builder to remove a component, until it has none of that name; the answer is Gone."""

    node_id: str
    component: str


@dataclass(frozen=True, slots=True)
class BroughtUp:
    """A bring-up succeeded: these components are ready."""

    node_id: str
    node: str
    components: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Announce:
    """Psyclone.Ready: sealed and journaled together with the state that says so."""

    boot: str
    psyspec: str
    digest: str
    components: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reconcile:
    """Reconciled: sealed and journaled together with the state that says so."""

    node_id: str
    node: str
    digest: str
    added: tuple[str, ...]
    removed: tuple[str, ...]
    restarted: tuple[str, ...]
    unchanged: int


@dataclass(frozen=True, slots=True)
class Failed:
    """A bring-up failed and is tried again after `pause_s`."""

    node_id: str
    node: str
    why: str
    pause_s: float


@dataclass(frozen=True, slots=True)
class Missing:
    """A node of the PsySpec is not there; its group waits for it."""

    node: str
    components: int


@dataclass(frozen=True, slots=True)
class Held:
    """A bring-up waits until the nodes `others` have lost these components, which move."""

    node_id: str
    node: str
    components: tuple[str, ...]
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unheard:
    """It waits no longer: those nodes are away. What they still hold is removed when they are heard."""

    node_id: str
    node: str
    components: tuple[str, ...]
    others: tuple[str, ...]


Effect = (
    Dispatch | Follow | Cancel | Remove | BroughtUp | Announce | Reconcile | Failed | Missing | Held | Unheard
)
