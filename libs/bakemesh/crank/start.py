"""What a component's process is told by its Builder: `start.json`, as a value. Pure.

`Start` is a crank host's, whose crank is a script; `ServiceStart` that of a service of bakemesh's own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from bakemesh.bus.settings import BusSettings, Credentials, Tls
from bakemesh.protocol import names
from bakemesh.protocol.builder.spec.component import ComponentSpec, ScriptCrank, ServiceCrank
from bakemesh.protocol.errors import NameRefused

CLOSE_S = 1.0


class StartRefused(ValueError):
    """Raised when a start file is not what a Builder writes: says which key is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentStart:
    """One start of one component. `folder`: where the start file is, the component's own place on the node;
    `data`: its working folder in it.
    """

    spec: ComponentSpec
    instance: str
    node: str
    node_id: str
    mesh: str
    servers: tuple[str, ...]
    folder: Path
    data: Path
    creds: Path | None = None
    tls: Tls | None = None

    @property
    def name(self) -> str:
        """The component's."""
        return self.spec.name

    @property
    def shutdown_s(self) -> float:
        """How long it has after TERM for what it does; the rest is for ending what is behind it."""
        return crank_time_s(self.spec.shutdown_ms)

    @property
    def supervisor_state(self) -> Path:
        """Where a `<supervisor>` reserves its RecipeIDs."""
        return self.folder / "supervisor"

    def parameters(self) -> dict[str, int | float | str]:
        """The spec's `<parameter>`s by name."""
        return {each.name: each.value for each in self.spec.parameters}

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(ComponentStart):
    """A crank host's: one Python function."""

    crank: ScriptCrank

    @classmethod
    def of(cls, given: Mapping[str, Any], folder: Path) -> Self:
        """The value of the file's map. Raises StartRefused."""
        said = _said(given, folder)
        crank, name = said["spec"].crank, said["spec"].name
        if not isinstance(crank, ScriptCrank):
            reason = "has no script: a crank host runs Python functions alone"
            raise StartRefused(f"start file: component {name} {reason}")
        return cls(crank=crank, **said)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStart(ComponentStart):
    """A service's: `<crank service="…"/>`."""

    crank: ServiceCrank

    @classmethod
    def of(cls, given: Mapping[str, Any], folder: Path, service: str) -> Self:
        """The value of the file's map, which must be one for `service`. Raises StartRefused."""
        said = _said(given, folder)
        crank, name = said["spec"].crank, said["spec"].name
        if not isinstance(crank, ServiceCrank) or crank.service != service:
            raise StartRefused(f"start file: component {name} is no <crank service={service!r}/>")
        return cls(crank=crank, **said)

    @classmethod
    def read(cls, path: Path, service: str) -> Self:
        """The value of the file. Raises StartRefused, OSError."""
        try:
            given = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise StartRefused(f"start file {path}: {error}") from error
        return cls.of(given, path.absolute().parent, service)


def crank_time_s(shutdown_ms: int) -> float:
    """How much of the shutdown time is the crank's; the rest is for ending what is behind it."""
    whole = shutdown_ms / 1000
    return whole - min(1.0, whole / 4)


def _said(given: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The fields of a ComponentStart out of the file's map. Raises StartRefused."""
    try:
        spec = ComponentSpec.from_json(json.dumps(given["spec"]))
        tls = given.get("tls")
        said: dict[str, Any] = {
            "spec": spec,
            "instance": str(given["instance"]),
            "node": names.check("Node", given["node"]),
            "node_id": names.check("NodeID", given["nodeid"]),
            "mesh": names.check("mesh", given["mesh"]),
            "servers": tuple(given["nats"]),
            "folder": folder,
            "data": Path(given["data"]),
            "creds": Path(given["creds"]) if given.get("creds") else None,
            "tls": Tls(**{key: Path(path) for key, path in tls.items() if path}) if tls else None,
        }
        ComponentStart(**said).bus()
    except KeyError as error:
        raise StartRefused(f"start file: no {error}") from error
    except (ValueError, TypeError, AttributeError, NameRefused) as error:
        raise StartRefused(f"start file: {error}") from error
    return said
