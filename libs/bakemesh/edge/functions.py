"""A user's function, looked at once: how it is called is known before the first request.

    plain     def f(synapse)            runs in a thread: it may block
    async     async def f(synapse)      runs in the loop: it must not
    stream    async def f(synapse): yield

Each takes the synapse, and a `Call` where it has a second parameter.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, get_type_hints

from bakemesh.edge.errors import AttachRefused
from bakemesh.protocol.axon.synapse import Synapse


class Kind(StrEnum):
    """How it is run."""

    PLAIN = "plain"
    ASYNC = "async"
    STREAM = "stream"


@dataclass(frozen=True, slots=True)
class Function:
    """`takes_call`: whether it is given a Call."""

    call: Callable[..., Any]
    kind: Kind
    takes_call: bool
    name: str


def looked_at(function: Callable[..., Any], role: str) -> Function:
    """What is known of it. Raises AttachRefused for what is no function of one or two parameters."""
    if not callable(function):
        raise AttachRefused(f"{role} is {function!r:.80}; expected a function of a synapse")
    name = getattr(function, "__qualname__", type(function).__name__)
    plain = _unwrapped(function)
    if inspect.isgeneratorfunction(plain):
        raise AttachRefused(f"{role} {name} is a plain generator; a stream is `async def` with `yield`")
    if inspect.isasyncgenfunction(plain):
        kind = Kind.STREAM
    else:
        kind = Kind.ASYNC if inspect.iscoroutinefunction(plain) else Kind.PLAIN
    if kind is Kind.STREAM and role != "forward_fn":
        raise AttachRefused(f"{role} {name} is a generator; it must return its answer")
    return Function(function, kind, _takes_call(function, role, name), name)


def synapse_of(function: Callable[..., Any]) -> type[Synapse]:
    """The class that its first parameter is annotated with. Raises AttachRefused."""
    name = getattr(function, "__qualname__", type(function).__name__)
    plain = _unwrapped(function)
    parameters = _parameters(function, name)
    if not parameters:
        raise AttachRefused(f"forward_fn {name} takes nothing; expected (synapse) or (synapse, call)")
    first = parameters[0].name
    around = dict(inspect.getclosurevars(plain).nonlocals) if inspect.isfunction(plain) else {}
    try:
        found = get_type_hints(plain, localns=around).get(first)
    except NameError as error:
        raise AttachRefused(
            f"forward_fn {name}: the annotation of {first} cannot be read ({error}); define the class where "
            "the function can see it, or give synapse=…"
        ) from None
    if not (inspect.isclass(found) and issubclass(found, Synapse)):
        told = "has no annotation" if found is None else f"is annotated {found!r:.60}"
        raise AttachRefused(f"forward_fn {name}: {first} {told}; expected a class that derives from Synapse")
    return found


def _unwrapped(function: Any) -> Any:
    """What is run in the end: below `functools.partial`, and the `__call__` of an object."""
    while hasattr(function, "func") and hasattr(function, "keywords"):
        function = function.func
    function = inspect.unwrap(function)
    if inspect.isfunction(function) or inspect.ismethod(function) or inspect.isbuiltin(function):
        return getattr(function, "__func__", function)
    return getattr(type(function).__call__, "__func__", type(function).__call__)


def _parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    try:
        signature = inspect.signature(function)
    except ValueError:
        raise AttachRefused(f"{name} does not say what it takes; write a function around it") from None
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [each for each in signature.parameters.values() if each.kind in kinds]


def _takes_call(function: Callable[..., Any], role: str, name: str) -> bool:
    parameters = _parameters(function, name)
    needed = [each for each in parameters if each.default is inspect.Parameter.empty]
    if not parameters or len(needed) > 2:
        raise AttachRefused(
            f"{role} {name} takes {len(needed)} parameters; expected (synapse) or (synapse, call)"
        )
    return len(parameters) > 1 and (len(needed) == 2 or parameters[1].name == "call")
