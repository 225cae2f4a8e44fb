"""In which order components are stopped: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def levels(started: Sequence[str], depends: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Groups to be stopped one after the other; those of one group side by side.

    Nobody is stopped before what depends on it; within a group, in reverse order of their start. Names that
    are not among `started` count for nothing; where some depend on each other in a circle, they are one
    group.
    """
    left = list(reversed(started))
    found: list[list[str]] = []
    while left:
        needed = {other for name in left for other in depends.get(name, ()) if other != name}
        free = [name for name in left if name not in needed] or left
        found.append(free)
        left = [name for name in left if name not in free]
    return found
