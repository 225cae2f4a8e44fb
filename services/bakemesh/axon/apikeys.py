"""Who may use the OpenAI-style routes, and as whom a request is counted.

    a key that is known           key:<name>
    none, on an open gateway      address:<ip>       only where it listens on loopback
    neither                       nobody: 401

A key that is unknown is 401 on an open gateway too, where there are keys; without any it says nothing, and
clients that cannot do without one may give what they like.
"""

from __future__ import annotations

from dataclasses import dataclass

from bakemesh.apikeys import KnownKeys
from bakemesh.bus.server_config import is_loopback


class OpenRefused(ValueError):
    """Raised when a gateway that others can reach was to be open to all."""


@dataclass(frozen=True, slots=True)
class ApiKeys:
    """`known`: None where no key file was named."""

    known: KnownKeys | None = None
    open: bool = False

    def who(self, authorization: str | None, ip: str) -> str | None:
        """As whom a request is counted; None: it may not."""
        if authorization is None:
            return f"address:{ip}" if self.open else None
        name = self.known.name_of(authorization) if self.known is not None else None
        if name is not None:
            return f"key:{name}"
        return f"address:{ip}" if self.open and not self.known else None


def check_open(host: str) -> None:
    """Whether a gateway on this address may be open to all. Raises OpenRefused."""
    if not is_loopback(host):
        raise OpenRefused(
            f"--open serves everybody without a key, and {host} can be reached from other machines; "
            "listen on 127.0.0.1, or make keys with `bakemesh axon-key new NAME`"
        )
