"""A small world around the core: nodes with boots and components, Builders that remember recipes, a journal.

Effects wait in `due` until `act` carries one out, so that a crash can come between any two of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bakemesh.startup import core
from bakemesh.startup.state import (
    Announce,
    Cancel,
    Dispatch,
    Effect,
    Ended,
    Event,
    Follow,
    Given,
    Goal,
    Gone,
    Offered,
    Prepared,
    Reconcile,
    Remove,
    Reported,
    Sent,
    Spec,
    State,
    Tick,
)

OWN = "a1"


def goal(node: str, parts: dict[str, str], *, node_id: str | None = None, local: bool = False) -> Goal:
    return Goal(node, node_id, local, "+".join(f"{k}{v}" for k, v in parts.items()) or "-", parts)


def spec(digest: str, own: dict[str, str], **peers: dict[str, str]) -> Spec:
    goals = [goal("alpha", own, local=True), *(goal(node, parts) for node, parts in peers.items())]
    return Spec("demo", digest, tuple(each for each in goals if each.parts or each.local))


@dataclass
class Node:
    node: str
    boot: int = 1
    components: dict[str, str] = field(default_factory=dict)
    draining: bool = False


@dataclass
class Recipe:
    sent: Sent
    node_id: str
    known: bool = False  # the Builder has it
    ok: bool | None = None  # None: it bakes


@dataclass
class World:
    nodes: dict[str, Node] = field(
        default_factory=lambda: {OWN: Node("alpha"), "beta": Node("beta"), "gamma": Node("gamma")}
    )
    state: State = field(default_factory=lambda: State(OWN))
    now: float = 0.0
    due: list[Effect] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    recipes: dict[str, Recipe] = field(default_factory=dict)
    followed: set[str] = field(default_factory=set)
    succeeded: list[tuple[str, str, str, tuple[str, ...]]] = field(default_factory=list)
    announced: list[str] = field(default_factory=list)
    reconciled: set[str] = field(default_factory=set)  # in this epoch
    wanted: Spec | None = None
    epoch: int = 0
    numbers: int = 0
    finished: set[tuple[int, str, str, str]] = field(default_factory=set)
    alone: bool = False  # no node is away: a component lives on one node at a time

    def take(self, event: Event) -> list[Effect]:
        """One step, journaled; its effects are due."""
        before = self.state
        self.state, effects = core.step(self.state, event)
        again, nothing = core.step(self.state, Tick(self.now))
        assert nothing == (), (event, nothing)  # whatever was to be done was said at once
        assert core.remembered(again) == core.remembered(self.state)
        self.due += effects
        self.effects += effects
        for effect in effects:
            self._check(effect, before)
        return list(effects)

    def _check(self, effect: Effect, before: State) -> None:
        match effect:
            case Announce(boot):
                assert boot == str(self.nodes[OWN].boot) or boot == self.state.boot
                assert boot not in self.announced
                own = core.homes(self.state).get(OWN)
                if own is not None and own.parts:
                    assert any(key[:2] == (OWN, boot) for key in self.succeeded), "Ready before success"
                self.announced.append(boot)
            case Dispatch(node_id, _, boot, goal_digest):
                assert (self.epoch, node_id, boot, goal_digest) not in self.finished, "done twice"
                running = [each for each in self.recipes.values() if each.node_id == node_id]
                assert all(each.ok is not None for each in running if each.known), "two at once"
            case Reconcile():
                assert effect.node_id not in self.reconciled, "told twice"
                self.reconciled.add(effect.node_id)

    # -- what happens outside

    def report(self, node_id: str, *, complete: bool = True) -> None:
        node = self.nodes[node_id]
        self.take(Reported(node_id, node.node, str(node.boot), complete, node.draining, self.now))

    def reboot(self, node_id: str) -> None:
        """What baked there has failed; its components are not running."""
        node = self.nodes[node_id]
        node.boot += 1
        node.components = {}
        for recipe in self.recipes.values():
            if recipe.node_id == node_id and recipe.known and recipe.ok is None:
                recipe.ok = False

    def give(self, wanted: Spec) -> None:
        self.wanted = wanted
        self.epoch += 1
        self.reconciled.clear()
        self.take(Given(wanted, self.now))

    def offer(self, wanted: Spec) -> None:
        self.wanted = self.wanted or wanted
        self.take(Offered(wanted))

    def crash(self) -> None:
        """The process dies; nothing that was due happens; the next one begins with the journal."""
        self.due.clear()
        self.followed.clear()
        self.state = core.remembered(self.state)

    def bake(self, recipe_id: str, ok: bool) -> None:
        """A bake comes to its end."""
        recipe = self.recipes[recipe_id]
        if recipe.known and recipe.ok is None:
            recipe.ok = ok
            self._leave(recipe)

    def _leave(self, recipe: Recipe) -> None:
        """What a bake that ended leaves: everything, or where it failed what it had started."""
        parts = list(recipe.sent.parts.items())
        self.nodes[recipe.node_id].components.update(parts if recipe.ok else parts[:1])

    def living(self) -> dict[str, set[str]]:
        """Where each component is, or may be made at any moment."""
        found: dict[str, set[str]] = {}
        for node_id, node in self.nodes.items():
            for name in node.components:
                found.setdefault(name, set()).add(node_id)
        for recipe in self.recipes.values():
            if recipe.known and recipe.ok is None:
                for name in recipe.sent.parts:
                    found.setdefault(name, set()).add(recipe.node_id)
        return found

    def hear(self, recipe_id: str) -> None:
        """The end of a bake is heard, where it is followed."""
        recipe = self.recipes[recipe_id]
        if recipe_id not in self.followed or recipe.ok is None:
            return
        self.followed.discard(recipe_id)
        if recipe.ok:
            sent = recipe.sent
            self.succeeded.append((recipe.node_id, sent.boot, sent.goal, tuple(sent.parts)))
            self.finished.add((self.epoch, recipe.node_id, sent.boot, sent.goal))
        self.take(Ended(recipe.node_id, recipe_id, bool(recipe.ok), "" if recipe.ok else "no", self.now, 0.5))

    def act(self, index: int = 0) -> None:
        """Carries out one effect that is due."""
        effect = self.due.pop(index)
        match effect:
            case Dispatch():
                self.numbers += 1
                sent = Sent(f"r-{self.numbers}", effect.boot, effect.goal, effect.parts)
                self.take(Prepared(effect.node_id, sent, self.now))
                site = self.state.sites.get(effect.node_id)
                if site is not None and site.sent == sent:
                    self.recipes[sent.recipe_id] = Recipe(sent, effect.node_id)
            case Follow(_, recipe_id):
                self.followed.add(recipe_id)
                self.recipes[recipe_id].known = True
                if self.alone:
                    assert all(len(where) == 1 for where in self.living().values()), self.living()
            case Cancel(_, recipe_id):
                recipe = self.recipes[recipe_id]
                if recipe.ok is None:
                    if recipe.known:
                        self._leave(recipe)
                    recipe.known, recipe.ok = True, False
            case Remove(node_id, name):
                self.nodes[node_id].components.pop(name, None)
                self.take(Gone(node_id, name, self.now))

    def quiet(self, *, report_at: int = -1, crash: bool = False) -> None:
        """Until nothing more happens: every bake succeeds. Before action `report_at` all nodes report; with
        `crash` the process dies just before that."""
        for turn in range(10_000):
            if turn == report_at:
                if crash:
                    self.crash()
                self.report_all()
            if self.due:
                self.act()
                continue
            ended = [each for each in self.recipes if each in self.followed]
            if ended:
                self.bake(ended[0], True)
                self.hear(ended[0])
                continue
            soonest = core.next_due(self.state)
            if soonest is None:
                return
            self.now = max(self.now, soonest)
            self.take(Tick(self.now))
        raise AssertionError("it never comes to rest")

    def report_all(self) -> None:
        for node_id in self.nodes:
            self.report(node_id)

    def check_all_is_there(self) -> None:
        """At rest every node holds what is wanted there, and nothing else."""
        assert self.wanted is not None
        wanted = {each.node: dict(each.parts) for each in self.wanted.goals}
        for node_id, node in self.nodes.items():
            assert node.components == wanted.get(node.node, {}), node_id
            site = self.state.sites.get(node_id)
            assert site is None or (site.sent is None and dict(site.placed) == node.components)
        assert self.announced[-1:] == [str(self.nodes[OWN].boot)]
