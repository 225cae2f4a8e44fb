"""What a function is told of a request beyond its synapse."""

from __future__ import annotations

from dataclasses import dataclass

from bakemesh.protocol.axon.profiles import Profile


@dataclass(frozen=True, slots=True)
class Call:
    """One request.

    `hotkey`: who signed it, verified ("" where the route's own `verify_fn` let an unsigned one through).
    `profile`: None for the functions that run before the body is read, which tells `synapse` from `sdk`.
    `priority`: what `priority_fn` said; 0 before it did and where there is none. `deadline`: by the clock of
    the event loop (`asyncio.get_running_loop().time()`). `ip`: of the connection, "" where it has none.
    """

    hotkey: str
    profile: Profile | None
    priority: float
    deadline: float
    ip: str
    traceparent: str | None = None
