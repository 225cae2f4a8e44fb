"""What goes wrong with a call.

Exception
├── TargetRefused   it is no address of an axon, or one that this profile cannot sign for
└── CallFailed      an axon or the network did not do what was asked: a status code and a message
"""

from __future__ import annotations


class TargetRefused(ValueError):
    """Raised when a target is not an address, or has no hotkey where the profile signs for one."""


class CallFailed(Exception):
    """Raised when a call did not succeed; `query` writes it into the synapse instead of raising it.

    `status_code` is HTTP's: the axon's own, or what the real dendrite says of the same failure.
    """

    def __init__(self, status_code: int, message: str) -> None:
        super().__init__(message)
        self.status_code, self.message = status_code, message

    def __str__(self) -> str:
        return f"{self.message} ({self.status_code})"
