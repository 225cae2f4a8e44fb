"""A Startup Supervisor's settings, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bakemesh.bus.settings import BusSettings
from bakemesh.protocol.rights import startup_name

FOLDER = "startup"


@dataclass(frozen=True, kw_only=True, slots=True)
class StartupSettings:
    """`psyspec`: the bundled text that the process was started with, and the file it came from."""

    bus: BusSettings
    node: str
    node_id: str
    state: Path
    operators: frozenset[str] = frozenset()
    psyspec: tuple[str, str] | None = None  # text, file

    @property
    def name(self) -> str:
        """Its Supervisor name."""
        return startup_name(self.node_id)

    @property
    def folder(self) -> Path:
        """Its own part of the state folder."""
        return self.state / FOLDER
