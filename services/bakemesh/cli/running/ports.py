"""The ports that this state folder's server had last: taken again where they are free.

Components that outlived an `up` (on-stop keep, or its death) and leaves elsewhere then find it again. A port
that was asked for by number is taken as it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path

PORTS_FILE = "ports.json"


@dataclass(frozen=True, slots=True)
class Ports:
    """For clients and for leaves; 0: any free one."""

    client: int = 0
    leaf: int = 0


def last_ports(folder: Path, host: str) -> Ports:
    """Those of the last time that are free now."""
    try:
        found = json.loads((folder / PORTS_FILE).read_text("utf-8"))
        ports = Ports(int(found["client"]), int(found["leaf"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Ports()
    return Ports(*(port if _is_free(host, port) else 0 for port in (ports.client, ports.leaf)))


def keep_ports(folder: Path, ports: Ports) -> None:
    """Remembers them; one that is 0 as it was."""
    temporary = folder / f"{PORTS_FILE}.new"
    kept = {"client": ports.client, "leaf": ports.leaf}
    with contextlib.suppress(OSError):  # a convenience: without it the next `up` takes another port
        temporary.write_text(json.dumps(kept) + "\n", encoding="utf-8")
        os.replace(temporary, folder / PORTS_FILE)


def _is_free(host: str, port: int) -> bool:
    if not 0 < port < 65536:
        return False
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
