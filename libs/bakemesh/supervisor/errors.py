"""Everything the SDK raises by itself, one class a cause, all under SupervisorError.

What passes through unchanged: `bakemesh.bus` errors (BusUnreachable, AccessDenied …) and, from a Data
stream that is out of order, `bakemesh.protocol.errors.IntegrityError`.
"""

from __future__ import annotations

from collections.abc import Iterable

from bakemesh.protocol.builder.messages import Result


class SupervisorError(Exception):
    """Raised when the SDK cannot do what was asked; the base of every error of this package."""


class RecipeRejected(SupervisorError):
    """Raised when the Builder refused a recipe. `result` is its typed answer, `problems` every fault it
    found.
    """

    def __init__(self, result: Result) -> None:
        self.result = result
        self.code = result.code
        self.problems = tuple(result.problems or ())
        lines = [f"recipe {result.recipe_id or '?'} was refused, {result.code}: {result.summary}"]
        lines += [f"  {describe_problem(problem)}" for problem in self.problems]
        super().__init__("\n".join(lines))


class ResultTimeout(SupervisorError):
    """Raised when a Builder did not answer in the time given. What was stored stays stored and may yet be
    done.
    """

    def __init__(self, what: str, node_id: str, seconds: float) -> None:
        super().__init__(f"{what}: no Result from the Builder on node {node_id} within {seconds:g} s")
        self.node_id, self.seconds = node_id, seconds


class NotStored(SupervisorError):
    """Raised when the inbox did not acknowledge a message in the time given, resends included."""


class MessageTooLarge(SupervisorError):
    """Raised when a message is larger than the server or the protocol takes; nothing was sent."""

    def __init__(self, what: str, size: int, limit: int, whose: str) -> None:
        super().__init__(f"{what} is {size:,} bytes; {whose} takes at most {limit:,} bytes")
        self.size, self.limit = size, limit


class NodeUnknown(SupervisorError):
    """Raised when no node has this name or id; `known` lists the ones that are there."""

    def __init__(self, node: str, known: Iterable[str]) -> None:
        self.node, self.known = node, tuple(known)
        there = f"known nodes: {', '.join(self.known)}" if self.known else "no node has reported yet"
        super().__init__(f"no node is named {node!r} or has that id; {there}")


class AmbiguousNode(SupervisorError):
    """Raised when several nodes have this name; `node_ids` lists them."""

    def __init__(self, node: str, node_ids: Iterable[str]) -> None:
        self.node, self.node_ids = node, tuple(node_ids)
        super().__init__(f"several nodes are named {node!r}; give the id instead: {', '.join(self.node_ids)}")


class NoNodeAvailable(SupervisorError):
    """Raised when node "any" finds no node that is alive and takes recipes."""


class NodeUnreachable(SupervisorError):
    """Raised when no Builder listens on the node: a control for a dead Builder fails at once."""

    def __init__(self, node_id: str) -> None:
        super().__init__(f"no Builder on node {node_id}")
        self.node_id = node_id


class ComponentUnknown(SupervisorError):
    """Raised when no node has reported a component of this name; `known` lists those that are there."""

    def __init__(self, component: str, known: Iterable[str]) -> None:
        self.component, self.known = component, tuple(known)
        there = ", ".join(self.known[:50]) if self.known else "none has been reported"
        super().__init__(f"no component is named {component!r}; known components: {there}")


class AmbiguousComponent(SupervisorError):
    """Raised when several nodes have a component of this name; `node_ids` lists them."""

    def __init__(self, component: str, node_ids: Iterable[str]) -> None:
        self.component, self.node_ids = component, tuple(node_ids)
        super().__init__(
            f"component {component!r} is on several nodes: {', '.join(self.node_ids)}; name the node"
        )


class CohortUnknown(SupervisorError):
    """Raised when no cohort has this name."""

    def __init__(self, cohort: str) -> None:
        super().__init__(
            f"there is no cohort {cohort!r}; make it with `bakemesh cohort set`, or in a PsySpec"
        )
        self.cohort = cohort


class BakeUnknown(SupervisorError):
    """Raised when neither the status streams nor the inbox hold anything of a RecipeID."""

    def __init__(self, recipe_id: str) -> None:
        super().__init__(
            f"no bake {recipe_id!r} is known: nothing in the status streams, nothing waiting in the inbox"
        )
        self.recipe_id = recipe_id


class AmbiguousRecipeID(SupervisorError):
    """Raised when a RecipeID belongs to several bakes; `candidates` are their (Supervisor, NodeID) pairs."""

    def __init__(self, recipe_id: str, candidates: Iterable[tuple[str, str]]) -> None:
        self.recipe_id, self.candidates = recipe_id, tuple(sorted(candidates))
        listed = ", ".join(f"supervisor {owner!r} on node {node_id}" for owner, node_id in self.candidates)
        super().__init__(f"{recipe_id!r} is ambiguous: {listed}; give supervisor= (and node=)")


class StatusPruned(SupervisorError):
    """Raised when Status messages that a reader still needs are no longer in the stream."""

    def __init__(self, recipe_id: str, serial: int) -> None:
        super().__init__(f"Status serial {serial} of {recipe_id} is no longer in the status stream")
        self.recipe_id, self.serial = recipe_id, serial


class DataPruned(SupervisorError):
    """Raised when seq 1..lastseq of an ended bake is not complete in the data stream: it was purged."""

    def __init__(self, recipe_id: str, read: int, lastseq: int) -> None:
        super().__init__(
            f"Data of {recipe_id} is no longer complete: {read} of {lastseq} chunks could be read; "
            "Data of ended bakes is purged when a node's store fills"
        )
        self.recipe_id, self.read, self.lastseq = recipe_id, read, lastseq


class DataLate(SupervisorError):
    """Raised when the hub still lacks Data of an ended bake after a minute: its node is cut off, or the hub
    is full.
    """

    def __init__(self, recipe_id: str, read: int, lastseq: int) -> None:
        super().__init__(
            f"Data of {recipe_id} has not all reached the hub: {read} of {lastseq} chunks are here; "
            "read again when the node's link is up, or from a server of the node itself"
        )
        self.recipe_id, self.read, self.lastseq = recipe_id, read, lastseq


class MintExhausted(SupervisorError):
    """Raised when no RecipeID can be minted: the counter cannot be reached and no reserved block is left."""


class StateDamaged(SupervisorError):
    """Raised when the file of reserved RecipeIDs in the state folder cannot be understood."""


class Closed(SupervisorError):
    """Raised when a Supervisor, or an iterator of it, is used after it was closed."""


def describe_problem(problem: dict[str, object]) -> str:
    """One line for a problem of a Result: where, then what."""
    element, attribute = problem.get("element"), problem.get("attribute")
    where = [f"line {problem['line']}"] if problem.get("line") else []
    where += [f"<{element}>"] if element else []
    where += [f"{attribute}="] if attribute else []
    return ": ".join(
        [" ".join(where), str(problem.get("message", ""))] if where else [str(problem.get("message", ""))]
    )
