"""What is started for a component: its program, its environment, and what a crank host is told.

A crank that is a script runs in `python -m bakemesh.crankhost`, a service in `python -m bakemesh.<service>`,
each with the path of `start.json`; a command is run as it is. Where it can be, a script's host is a fork of a
nursery. Everything lies in the component's own folder, which nobody else may look into. Left out: launching
itself (see `component`).
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bakemesh.bus.settings import Tls
from bakemesh.processes import Nurse
from bakemesh.protocol.builder.spec.component import CommandCrank, ComponentSpec, ScriptCrank

START, DATA = "start.json", "data"
HOST = "bakemesh.crankhost"
PRELOAD = "bakemesh.crankhost.preload"  # all that it needs
COMMON = {"PYTHONUNBUFFERED": "1"}  # in every component's environment, unless it is set otherwise


@dataclass(frozen=True, slots=True)
class Place:
    """Where the components of a node live, and what they are told of it."""

    folder: Path  # <state>/components
    node: str
    node_id: str
    mesh: str
    nats: tuple[str, ...]
    environment: Mapping[str, str]  # the chosen list that they start from
    tls: Tls | None = None
    keys: Path | None = None  # a folder of <module>.nk

    def of(self, name: str) -> Path:
        """The folder of a component."""
        return self.folder / name


def program_of(spec: ComponentSpec) -> str | None:
    """The Python module that runs its crank; None for a command."""
    if isinstance(spec.crank, CommandCrank):
        return None
    return HOST if isinstance(spec.crank, ScriptCrank) else f"bakemesh.{spec.crank.service}"


def missing(spec: ComponentSpec) -> str | None:
    """Why this installation cannot run it, whatever is tried; None where it can."""
    module = program_of(spec)
    if module is None:
        return None
    with contextlib.suppress(ModuleNotFoundError):
        if importlib.util.find_spec(f"{module}.__main__") is not None:
            return None
    if module == HOST:
        return "this installation has no crank host (bakemesh.crankhost)"
    return f"this installation has no service {module.rpartition('.')[2]}"


def argv_of(spec: ComponentSpec, folder: Path) -> tuple[str, ...]:
    """The program and its arguments."""
    if isinstance(spec.crank, CommandCrank):
        return spec.crank.argv
    module = program_of(spec)
    assert module is not None
    return (sys.executable or "python3", "-m", module, os.fspath(folder / START))


def environment_of(spec: ComponentSpec, place: Place, instance: str) -> dict[str, str]:
    """The chosen list, what the spec sets, and what the node says of itself; the last wins."""
    said = {
        "BAKEMESH_NODE": place.node,
        "BAKEMESH_NODEID": place.node_id,
        "BAKEMESH_MESH": place.mesh,
        "BAKEMESH_NATS": ",".join(place.nats),
        "BAKEMESH_COMPONENT": spec.name,
        "BAKEMESH_INSTANCE": instance,
    }
    for parameter in spec.parameters:
        word = "".join(each if each.isalnum() else "_" for each in parameter.name.upper())
        said[f"BAKEMESH_PARAM_{word}"] = str(parameter.value)
    return {**COMMON, **place.environment, **dict(spec.env), **said}


def nurse(environment: Mapping[str, str]) -> Nurse:
    """The nursery for crank hosts that start from this chosen list."""
    return Nurse(HOST, preload=PRELOAD, common={**COMMON, **environment})


def told(spec: ComponentSpec, place: Place, instance: str) -> str:
    """The text of start.json."""
    keys = None if place.keys is None else place.keys / f"{spec.name}.nk"
    tls: dict[str, Any] | None = None
    if place.tls is not None:
        files = {"ca": place.tls.ca, "cert": place.tls.cert, "key": place.tls.key}
        tls = {name: None if path is None else os.fspath(path) for name, path in files.items()}
    return json.dumps(
        {
            "spec": json.loads(spec.to_json()),
            "instance": instance,
            "node": place.node,
            "nodeid": place.node_id,
            "mesh": place.mesh,
            "nats": list(place.nats),
            "creds": None if keys is None or not keys.is_file() else os.fspath(keys),
            "tls": tls,
            "data": os.fspath(place.of(spec.name) / DATA),
        },
        ensure_ascii=False,
    )


def prepare(spec: ComponentSpec, place: Place, instance: str) -> Path:
    """Makes the folder and start.json, which appears whole or not at all. Returns the folder. Raises
    OSError."""
    folder = place.of(spec.name)
    (folder / DATA).mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    text = told(spec, place, instance).encode()
    temporary = folder / f"{START}.new"
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(file, 0o600)
        written = 0
        while written < len(text):
            written += os.write(file, text[written:])
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    finally:
        os.close(file)
    temporary.replace(folder / START)
    return folder


def unknown(folder: Path, names: Collection[str]) -> list[Path]:
    """The folders of components that are none of these."""
    if not folder.is_dir():
        return []
    return [each for each in folder.iterdir() if each.name not in names and _is_folder(each)]


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def remove(folder: Path) -> bool:
    """Takes the folder of a forgotten component away, its data too; False where a shim has it."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True
