"""What a crank host is told by its Builder: `start.json`, as a value. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from bakemesh.bus.settings import BusSettings, Credentials, Tls
from bakemesh.protocol import names
from bakemesh.protocol.builder.spec.component import ComponentSpec, ScriptCrank
from bakemesh.protocol.errors import NameRefused

CLOSE_S = 1.0


class StartRefused(ValueError):
    """Raised when a start file is not what a Builder writes: says which key is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start of one component. `folder`: where the start file is, the component's own place on the node;
    `data`: the crank's working folder in it.
    """

    spec: ComponentSpec
    crank: ScriptCrank
    instance: str
    node: str
    node_id: str
    mesh: str
    servers: tuple[str, ...]
    folder: Path
    data: Path
    creds: Path | None = None
    tls: Tls | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any], folder: Path) -> Self:
        """The value of the file's map. Raises StartRefused."""
        try:
            spec = ComponentSpec.from_json(json.dumps(given["spec"]))
            tls = given.get("tls")
            made = cls(
                spec=spec,
                crank=_script(spec),
                instance=str(given["instance"]),
                node=names.check("Node", given["node"]),
                node_id=names.check("NodeID", given["nodeid"]),
                mesh=names.check("mesh", given["mesh"]),
                servers=tuple(given["nats"]),
                folder=folder,
                data=Path(given["data"]),
                creds=Path(given["creds"]) if given.get("creds") else None,
                tls=Tls(**{key: Path(path) for key, path in tls.items() if path}) if tls else None,
            )
            made.bus()
        except KeyError as error:
            raise StartRefused(f"start file: no {error}") from error
        except (ValueError, TypeError, AttributeError, NameRefused) as error:
            raise StartRefused(f"start file: {error}") from error
        return made

    @property
    def name(self) -> str:
        """The component's."""
        return self.spec.name

    @property
    def supervisor_state(self) -> Path:
        """Where a `<supervisor>` reserves its RecipeIDs."""
        return self.folder / "supervisor"

    def credentials(self) -> Credentials | None:
        """Its key, where it has one."""
        return Credentials(nkey_file=self.creds) if self.creds else None

    def bus(self) -> BusSettings:
        """How it is connected: under its own name."""
        return BusSettings(
            servers=self.servers,
            mesh=self.mesh,
            name=self.name,
            node_id=self.node_id,
            credentials=self.credentials(),
            tls=self.tls,
            close_timeout_s=CLOSE_S,
        )


def _script(spec: ComponentSpec) -> ScriptCrank:
    if not isinstance(spec.crank, ScriptCrank):
        raise StartRefused(f"component {spec.name} has no script: a crank host runs Python functions alone")
    return spec.crank
