"""What a nursery's process is started with, and which components may be its forks. Pure.

A fork has the interpreter that the nursery has: what shaped that at its start (`SHAPING`) must be the same in
the component's environment, else it is executed. Everything else in the environment is the component's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bakemesh.processes.spec import ShimSpec

# Read by the loader, the C library, the interpreter or an import, once.
SHAPING = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_", "OPENSSL_", "PYDANTIC_", "HOME")
# For forks to write their own command line and environment over (the keeper's `guise.py`).
ROOM_VARIABLE = "_BAKEMESH_ROOM"
ENVIRONMENT_ROOM, ARGUMENTS_ROOM = 16 * 1024, 4 * 1024


@dataclass(frozen=True, slots=True)
class Nurse:
    """A nursery for components that are the Python module `module`.

    `preload` is imported before it takes requests: all that such a component needs. `common` is what the
    environments of all components begin with.
    """

    module: str
    preload: str
    common: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """That of its process."""
        return {**self.common, ROOM_VARIABLE: "-" * ENVIRONMENT_ROOM}

    @property
    def options(self) -> tuple[str, str]:
        """Of the keeper's program."""
        return f"preload={self.preload}", "room=" + "-" * ARGUMENTS_ROOM

    def serves(self, spec: ShimSpec) -> bool:
        """Whether this component may be a fork."""
        return spec.module == self.module and shape(spec.process.env) == shape(self.common)


def shape(environment: Mapping[str, str]) -> dict[str, str]:
    """What of an environment an interpreter is made with."""
    return {name: value for name, value in environment.items() if name.startswith(SHAPING)}
