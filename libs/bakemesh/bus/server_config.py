"""The configuration of an embedded nats-server, as text out of a value. Pure; opens and checks nothing."""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass, field
from pathlib import Path

from bakemesh.bus.jsapi import HUB_DOMAIN
from bakemesh.bus.settings import Tls

MAX_PAYLOAD = 8 * 1024 * 1024
LOG_BYTES = 32 * 1024 * 1024
ANY_PORT = 0


@dataclass(frozen=True, slots=True)
class Join:
    """The link to a hub: the address of its leaf listener, the link's nkey seed file, the authority
    to trust.
    """

    url: str
    nkey_seed: str | None = field(default=None, repr=False)
    ca: Path | None = None


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One server. Ports: 0 is any free one. `leaf_port` None: no leaves are taken; a server that joins takes
    none.

    `authorization` is the text of the block of that name. `sync_always`: every write is on the disk before it
    is acknowledged; else a power cut loses what the disk had not synced.
    """

    name: str
    folder: Path
    host: str = "127.0.0.1"
    port: int = ANY_PORT
    leaf_host: str = "127.0.0.1"
    leaf_port: int | None = ANY_PORT
    join: Join | None = None
    authorization: str | None = None
    tls: Tls | None = None
    sync_always: bool = False
    max_payload: int = MAX_PAYLOAD

    @property
    def domain(self) -> str:
        """The JetStream domain: the node's name on a leaf, else the hub's."""
        return self.name if self.join else HUB_DOMAIN

    @property
    def store(self) -> Path:
        """Where the streams are."""
        return self.folder / "jetstream"

    @property
    def log_file(self) -> Path:
        """The server's own log; it is kept, and rotated by the server."""
        return self.folder / "nats-server.log"

    @property
    def ports_folder(self) -> Path:
        """Where the server writes which ports it took."""
        return self.folder / "ports"


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine alone. A name other than localhost counts as
    reachable.
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def open_to_others(config: ServerConfig) -> str | None:
    """Why a configuration must not be started: it listens off loopback and asks nobody who he is. None: it
    may.
    """
    if config.authorization is not None:
        return None
    listeners = [("listen", config.host)]
    if config.join is None and config.leaf_port is not None:
        listeners.append(("leaf listen", config.leaf_host))
    for what, host in listeners:
        if not is_loopback(host):
            return (
                f"{what} address {host} is reachable from other machines, and there is no authorization: "
                "anybody could run programs through the mesh. Listen on 127.0.0.1, or run a nats-server "
                "with authorization of your own and name it with --nats"
            )
    return None


def render(config: ServerConfig) -> str:
    """The configuration file's text. It may hold the link's seed: keep it from others."""
    lines = [
        f"server_name: {_text(config.name)}",
        f"listen: {_text(_address(config.host, config.port))}",
        f"ports_file_dir: {_text(config.ports_folder)}",
        f"log_file: {_text(config.log_file)}",
        f"log_size_limit: {LOG_BYTES}",
        "logfile_max_num: 3",
        f"max_payload: {config.max_payload}",
        # A link that died without a word is noticed by pings alone, and the server's default takes minutes.
        'ping_interval: "2s"',
        "ping_max: 3",
        "jetstream {",
        f"  store_dir: {_text(config.store)}",
        f"  domain: {_text(config.domain)}",
        *(["  sync_interval: always"] if config.sync_always else []),
        "}",
    ]
    if config.tls:
        lines += ["tls {", *_tls(config.tls), "}"]
    if config.join:
        lines += ["leafnodes {", '  reconnect: "1s"', "  remotes: [ {", *_remote(config.join), "  } ]", "}"]
    elif config.leaf_port is not None:
        lines += ["leafnodes {", f"  listen: {_text(_address(config.leaf_host, config.leaf_port))}"]
        # A leaf goes on using the address that it was given, also through a tunnel or a proxy.
        lines += ["  no_advertise: true"]
        lines += ["  tls {", *_tls(config.tls), "  }"] if config.tls else []
        lines += ["}"]
    if config.authorization:
        lines.append(config.authorization.rstrip())
    return "\n".join(lines) + "\n"


def _address(host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{port or -1}"


def _remote(join: Join) -> list[str]:
    lines = [f"    url: {_text(join.url)}"]
    if join.nkey_seed:
        lines.append(f"    nkey: {_text(join.nkey_seed)}")
    if join.ca:
        lines.append(f"    tls {{ ca_file: {_text(join.ca)} }}")
    return lines


def _tls(tls: Tls) -> list[str]:
    pairs = (("cert_file", tls.cert), ("key_file", tls.key), ("ca_file", tls.ca))
    return [f"    {key}: {_text(path)}" for key, path in pairs if path]


def _text(value: object) -> str:
    """A quoted string; JSON's escapes are a subset of what the server reads."""
    return json.dumps(str(value), ensure_ascii=False)
