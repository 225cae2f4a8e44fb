"""The routes of a gateway: a synapse class each, and the functions that an author gave for it.

Guarantees: what cannot serve is refused where it is attached; a Route never changes. The ping `/Synapse` is
always there. Left out: serving them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

from bakemesh.edge.errors import AttachRefused
from bakemesh.edge.functions import Function, Kind, looked_at, synapse_of
from bakemesh.protocol.axon.streaming import StreamingSynapse
from bakemesh.protocol.axon.synapse import ENVELOPE, Synapse, shape

PING = "Synapse"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Route:
    """`POST /<name>`.

    `allow_unhashed_body`: a body that the sdk profile does not sign may come. `unhashed_fields`: inputs that
    may differ from their defaults though the sdk profile does not sign them. `limit_s`: the most that a
    request may take, None: the gateway's. `ignores_body`: the ping's is not even read as JSON.
    """

    name: str
    synapse: type[Synapse]
    forward: Function
    blacklist: Function | None = None
    priority: Function | None = None
    verify: Function | None = None
    allow_unhashed_body: bool = False
    unhashed_fields: frozenset[str] = frozenset()
    limit_s: float | None = None
    ignores_body: bool = False

    @property
    def streams(self) -> bool:
        """Whether its answer may come in parts."""
        return issubclass(self.synapse, StreamingSynapse)


@dataclass(frozen=True, slots=True)
class Guard:
    """Functions of an author that stand before the synapses of the mesh itself."""

    blacklist_fn: Callable[..., Any] | None = None
    priority_fn: Callable[..., Any] | None = None


async def _ping(synapse: Synapse) -> Synapse:
    return synapse


class Axon:
    """What a gateway serves."""

    def __init__(self) -> None:
        self._routes: dict[str, Route] = {
            PING: Route(
                PING, Synapse, looked_at(_ping, "forward_fn"), allow_unhashed_body=True, ignores_body=True
            )
        }
        self._guard: Guard | None = None

    @property
    def routes(self) -> Mapping[str, Route]:
        """By name, in the order in which they were attached."""
        return MappingProxyType(self._routes)

    def attach(
        self,
        forward_fn: Callable[..., Any],
        blacklist_fn: Callable[..., Any] | None = None,
        priority_fn: Callable[..., Any] | None = None,
        verify_fn: Callable[..., Any] | None = None,
        *,
        synapse: type[Synapse] | None = None,
        allow_unhashed_body: bool = False,
        unhashed_fields: Iterable[str] = (),
        limit_s: float | None = None,
    ) -> Self:
        """Serves the synapse class that `forward_fn`'s first parameter is annotated with (or `synapse`).

        `forward_fn(synapse[, call])` returns the synapse, its `Output` or None: the synapse as it filled it
        in; an async generator, or what returns an async iterator, streams. `blacklist_fn` returns a bool or
        `(bool, reason)`, `priority_fn` a number; both see the headers of the request, not its body, since
        they run before it is trusted. `verify_fn` takes the place of the whole verification, replay too:
        it raises, or returns. A plain function runs in a thread, an async one in the loop. Raises
        AttachRefused, TypeError where a hashed field is none of the class.
        """
        forward = looked_at(forward_fn, "forward_fn")
        kind = synapse or synapse_of(forward_fn)
        name = kind.route()
        if _NAME.fullmatch(name) is None:
            raise AttachRefused(f"{name!r} cannot be a route; expected letters, digits and underscores")
        if name in self._routes and name != PING:
            raise AttachRefused(f"{name} is served already, by {self._routes[name].forward.name}")
        if forward.kind is Kind.STREAM and not issubclass(kind, StreamingSynapse):
            raise AttachRefused(f"{forward.name} yields, but {name} does not derive from StreamingSynapse")
        if limit_s is not None and not (math.isfinite(limit_s) and limit_s > 0):
            raise AttachRefused(f"limit_s of {name} is {limit_s!r}; expected seconds above 0")
        free = frozenset((unhashed_fields,) if isinstance(unhashed_fields, str) else unhashed_fields)
        inputs = shape(kind).inputs
        if unknown := sorted(free - set(inputs)):
            known = ", ".join(each for each in inputs if each not in ENVELOPE) or "none"
            raise AttachRefused(f"unhashed_fields of {name} names {unknown[0]!r}; its fields are {known}")
        self._routes[name] = Route(
            name,
            kind,
            forward,
            blacklist_fn and looked_at(blacklist_fn, "blacklist_fn"),
            priority_fn and looked_at(priority_fn, "priority_fn"),
            verify_fn and looked_at(verify_fn, "verify_fn"),
            allow_unhashed_body or name == PING,
            free,
            limit_s,
            name == PING,
        )
        return self

    @property
    def guarded(self) -> Guard | None:
        """What `guard` was given."""
        return self._guard

    def guard(
        self,
        blacklist_fn: Callable[..., Any] | None = None,
        priority_fn: Callable[..., Any] | None = None,
    ) -> Self:
        """Who may call the synapses that the gateway serves from the mesh (TextPrompt, Embedding, Rerank),
        and who goes first there: functions as `attach` takes them. Raises AttachRefused, also where there is
        a guard already.
        """
        if self._guard is not None:
            raise AttachRefused(
                "there is a guard already; a gateway has one, before all synapses of the mesh"
            )
        if blacklist_fn is None and priority_fn is None:
            raise AttachRefused("the guard is empty; expected a blacklist_fn, a priority_fn or both")
        for function, role in ((blacklist_fn, "blacklist_fn"), (priority_fn, "priority_fn")):
            if function is not None:
                looked_at(function, role)
        self._guard = Guard(blacklist_fn, priority_fn)
        return self

    def adopt(self, other: Axon) -> Self:
        """Serves what the other one does, too. Raises AttachRefused where both have a name, or a guard."""
        if other.guarded is not None:
            self.guard(other.guarded.blacklist_fn, other.guarded.priority_fn)
        for name, route in other.routes.items():
            if name in self._routes and name != PING:
                raise AttachRefused(f"{name} is served already, by {self._routes[name].forward.name}")
            self._routes[name] = route
        return self
