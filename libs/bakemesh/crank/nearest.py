"""The nearest known name to one that is not known: as specs say it, loaded when a crank is wrong. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def suggestion(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'limit'?` where a known name is near, else nothing."""
    from bakemesh.protocol.builder.spec import problems  # not needed by a crank that is right

    return problems.suggestion(name, known)
