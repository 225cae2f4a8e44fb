"""What a crank can do wrong with its API, and what it is told: one class a cause."""

from __future__ import annotations

from collections.abc import Iterable

from bakemesh.crank.nearest import suggestion


class CrankError(Exception):
    """Raised when the crank API cannot do what was asked; the base of every error of this package."""


class UnknownName(CrankError):
    """Raised when a crank names a parameter or a post that its spec does not have; `known` lists them."""

    def __init__(self, what: str, name: str, known: Iterable[str], owner: str) -> None:
        self.what, self.name, self.known = what, name, tuple(known)
        if self.known:
            there = f"its {what}s are {', '.join(map(repr, self.known))}{suggestion(name, self.known)}"
        else:
            there = f"it has none; add <{what} name={name!r} …/> to its spec"
        super().__init__(f"component {owner} has no {what} {name!r}; {there}")


class EntriesRefused(CrankError):
    """Raised when the entries of a post cannot be sent: says which one, and what would be right."""

    def __init__(self, post: str, reason: str) -> None:
        super().__init__(f"post {post!r}: {reason}")
        self.post, self.reason = post, reason


class NoSupervisor(CrankError):
    """Raised when the crank of a `<module>` asks for the Supervisor SDK."""

    def __init__(self, owner: str) -> None:
        super().__init__(
            f"component {owner} is a <module>; write <supervisor name={owner!r}> in its PsySpec to get one"
        )


class CrankOver(CrankError):
    """Raised when a crank uses its API after its time to stop is over, or waits twice at once."""
