"""The node's name and id: settled once, kept in the state folder.

The id never changes after the first start on a state folder, for streams, claims and journal are named by
it; the name may. The file is written by rename and synced, so a crash leaves the old one or the new one.
"""

from __future__ import annotations

import json
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path

from bakemesh.protocol import names
from bakemesh.protocol.errors import NameRefused
from bakemesh.settings.load import Settings
from bakemesh.settings.values import NodeName

NODE_FILE = "node.json"


@dataclass(frozen=True, slots=True)
class Node:
    """A node as the mesh knows it."""

    name: str
    id: str


class NodeRefused(Exception):
    """Raised when the node cannot be settled: the state folder is another node's, or cannot be written."""


def settle_node(settings: Settings) -> Node:
    """The node of this state folder; keeps name and id there. Raises NodeRefused."""
    path = settings.state / NODE_FILE
    kept = read_node(settings.state)
    node = decide(settings.node, kept, socket.gethostname(), str(settings.state))
    if node != kept:
        try:
            settings.state.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(path, json.dumps({"node": node.name, "nodeid": node.id}) + "\n")
        except OSError as error:
            raise NodeRefused(
                f"state folder {settings.state} (from {settings.origin('state')}): {error.strerror}; "
                "name a folder that can be written with --state"
            ) from error
    return node


def read_node(state: Path) -> Node | None:
    """The node that the state folder holds, None for a new folder. Raises NodeRefused for a broken file."""
    path = state / NODE_FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return Node(names.check("Node", found["node"]), names.check("NodeID", found["nodeid"]))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NodeRefused(f"{path}: {error.strerror}; the state folder must be readable") from error
    except (ValueError, KeyError, TypeError, NameRefused) as error:
        raise NodeRefused(
            f'{path} is broken ({error}); write {{"node": NAME, "nodeid": ID}} into it, '
            "with the id that the node's streams carry"
        ) from error


def decide(given: NodeName | None, kept: Node | None, hostname: str, folder: str) -> Node:
    """Pure: what was given, what is kept, the host's name → the node. Raises NodeRefused."""
    if given is None:
        if kept is not None:
            return kept
        name = from_hostname(hostname)
        return Node(name, name)
    if kept is not None:
        if given.id is not None and given.id != kept.id:
            raise NodeRefused(
                f"state folder {folder} belongs to the node id {kept.id!r}, not {given.id!r}; "
                "start that node on a state folder of its own (--state)"
            )
        return Node(given.name, kept.id)
    id_ = given.id or given.name
    if not names.is_valid("NodeID", id_):
        limit = names.LIMITS["NodeID"]
        raise NodeRefused(
            f"node name {id_!r} is too long for an id ({limit} characters); give one: --node {given.name}=ID"
        )
    return Node(given.name, id_)


def from_hostname(hostname: str) -> str:
    """A node name out of a host's name: its first label, with what no token may hold replaced."""
    label = re.sub(r"[^A-Za-z0-9_-]+", "-", hostname.split(".")[0]).strip("-")
    return label[: names.LIMITS["NodeID"]] or "node"


def _write(path: Path, text: str) -> None:
    temporary = path.with_suffix(f".{os.getpid()}.new")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
