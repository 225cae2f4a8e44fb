"""How to reach the bus, as a value. Where the values come from is the caller's business."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from bakemesh.protocol import names

DEFAULT_SERVER = "nats://127.0.0.1:4222"
DEFAULT_MESH = "psyclone"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who one is to the server: an nkey seed (given or in a file), or user and password, or a token.

    Nothing of it appears in a repr. A user and password may also stand in the URL.
    """

    nkey_seed: str | None = field(default=None, repr=False)
    nkey_file: Path | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Tls:
    """Files in PEM form: the authority to trust (None: the system's), and a certificate of one's own with its
    key.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def context(self) -> ssl.SSLContext:
        """A client's context out of the files. Raises OSError (ssl.SSLError included) where one cannot be
        used.
        """
        made = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=self.ca)
        if self.cert:
            made.load_cert_chain(self.cert, self.key)
        return made


@dataclass(frozen=True, slots=True)
class BusSettings:
    """Everything a connection needs.

    `name` and `node_id` make the envelope's `from` (`<name>@<node_id>`). `identity` is the token under which
    the server knows this party and behind which its private inboxes are (`_INBOX.<identity>.…`): a
    Supervisor's name, `builder-<NodeID>`; left out, it is `name`. `connect_timeout_s` bounds the first
    connection as a whole, all servers and retries; a connection once made is made again for ever.
    """

    servers: tuple[str, ...] = (DEFAULT_SERVER,)
    mesh: str = DEFAULT_MESH
    name: str = "client"
    node_id: str = "local"
    identity: str | None = None
    credentials: Credentials | None = None
    tls: Tls | None = None
    connect_timeout_s: float = 5.0
    request_timeout_s: float = 5.0
    close_timeout_s: float = 5.0

    def __post_init__(self) -> None:
        if isinstance(self.servers, str):
            object.__setattr__(self, "servers", tuple(part.strip() for part in self.servers.split(",")))
        if not self.servers or not all(self.servers):
            raise ValueError("servers: at least one URL is needed, for instance nats://127.0.0.1:4222")
        names.check("mesh", self.mesh)
        names.check("name", self.name)
        names.check("NodeID", self.node_id)
        names.check("identity", self.party)

    @property
    def party(self) -> str:
        """The identity's token."""
        return self.identity or self.name

    @property
    def sender(self) -> str:
        """The envelope's `from`."""
        return f"{self.name}@{self.node_id}"
