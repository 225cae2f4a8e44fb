"""Every setting, a row each: flag, environment variable, key in `bakemesh.toml`, default, type, text.

The name in kebab-case is the TOML key; flag and variable follow from it unless the row says otherwise. A
row's `default` is text that the row's own reader takes, or None for a value that is absent or found out by
the one who uses it (`shown` says how).
"""

from __future__ import annotations

from dataclasses import dataclass

from bakemesh.settings import values
from bakemesh.settings.values import Reader

MIB = 1024**2


@dataclass(frozen=True, slots=True)
class Row:
    """One setting."""

    key: str
    read: Reader
    default: str | None
    doc: str
    metavar: str = "VALUE"
    flag_name: str | None = None
    repeatable: bool = False
    shown: str = "none"  # what `config` prints for a default that is None
    is_path: bool = False

    @property
    def name(self) -> str:
        """The attribute of Settings."""
        return self.key.replace("-", "_")

    @property
    def flag(self) -> str:
        """The command line's `--flag`."""
        return self.flag_name or f"--{self.key}"

    @property
    def env(self) -> str:
        """The environment variable."""
        return f"BAKEMESH_{self.key.replace('-', '_').upper()}"


ROWS: tuple[Row, ...] = (
    Row(
        "nats",
        values.urls,
        "nats://127.0.0.1:4222",
        "the NATS server or servers, separated by commas",
        metavar="URL",
    ),
    Row(
        "join",
        values.url,
        None,
        "run the node's own server as a leaf of this one: a node cut off keeps its bus and its bakes",
        metavar="URL",
    ),
    Row(
        "listen",
        values.listen,
        "127.0.0.1",
        "where the server of `bakemesh up` listens: HOST (port 4222, else a free one) or HOST:PORT (0: free)",
        metavar="HOST[:PORT]",
    ),
    Row(
        "node",
        values.node,
        None,
        "this node's name, and its id where it is not the name; the id is kept in the state folder",
        metavar="NAME[=ID]",
        shown="the state folder's, else the host's name",
    ),
    Row(
        "state",
        values.path,
        None,
        "the state folder: journal, stores, the node's id",
        metavar="DIR",
        shown="/var/lib/bakemesh (root), else ~/.local/state/bakemesh",
        is_path=True,
    ),
    Row(
        "creds",
        values.path,
        None,
        "the nkey seed file of this identity",
        metavar="FILE",
        is_path=True,
    ),
    Row(
        "mesh",
        values.token("mesh"),
        "psyclone",
        "the mesh: several share a NATS server without meeting",
        "NAME",
    ),
    Row(
        "supervisor",
        values.token("Supervisor"),
        "cli",
        "the name under which the command line mints recipes and issues controls",
        metavar="NAME",
    ),
    Row(
        "operators",
        values.token_list("Supervisor"),
        "",
        "who else than its owner may control a bake",
        metavar="NAME",
        flag_name="--operator",
        repeatable=True,
    ),
    Row(
        "accept-forwarded",
        values.yes_no_auto,
        "auto",
        "take recipes that another Builder forwards; auto: only where the server asks for no authentication",
        metavar="yes|no|auto",
    ),
    Row("max-bakes", values.integer(1, 10_000), "64", "bakes side by side; further ones queue", "N"),
    Row(
        "store-max-bytes",
        values.size(16 * MIB),
        None,
        "size of the node's Data stream on the server",
        metavar="SIZE",
        shown="10 GiB, or the node's share of a quarter of the server's free store if that is less",
    ),
    Row("nodes-expected", values.integer(1, 100_000), "1", "nodes that share one server's store", "N"),
    Row(
        "durability",
        values.one_of("process", "power"),
        "process",
        "what must lose nothing: the crash of a process, or a power cut too (slower)",
        metavar="process|power",
    ),
    Row(
        "kill-grace-ms",
        values.integer(0, 600_000),
        "2000",
        "between TERM and KILL of a step's processes",
        "MS",
    ),
    Row(
        "unreachable-ms",
        values.integer(0),
        "300000",
        "a child recipe whose node stays silent for so long fails its step; 0: never",
        metavar="MS",
    ),
    Row(
        "control-rate", values.rate, "200", "controls a second from one issuer (burst: five times that)", "N"
    ),
    Row(
        "recipe-rate", values.rate, "50", "recipes a second from one Supervisor (burst: four times that)", "N"
    ),
    Row(
        "outbox-max-bytes",
        values.size(MIB),
        "256MiB",
        "output journaled and not yet stored on the bus; beyond it the steps' pipes are not read",
        metavar="SIZE",
    ),
    Row(
        "on-stop",
        values.one_of("auto", "stop", "keep"),
        "auto",
        "what becomes of the node's components when its Builder is stopped by TERM; auto: `up` stops them, "
        "`builder` keeps them running",
        metavar="auto|stop|keep",
    ),
    Row(
        "keys-dir",
        values.path,
        None,
        "a folder with <module>.nk, the nkey seed file of each component that has one",
        metavar="DIR",
        is_path=True,
    ),
    Row(
        "log-format",
        values.one_of("auto", "text", "json"),
        "auto",
        "auto: text on a terminal, else JSON lines",
        metavar="auto|text|json",
    ),
    Row(
        "log-level",
        values.one_of("debug", "info", "warning", "error"),
        "info",
        "the least that is logged",
        metavar="debug|info|warning|error",
    ),
)

_BY_KEY = {row.key: row for row in ROWS}


def row_of(name: str) -> Row:
    """The row of a setting, by key or attribute name. Raises KeyError."""
    return _BY_KEY[name.replace("_", "-")]


def known(name: str) -> bool:
    """Whether there is a setting of that name."""
    return name.replace("_", "-") in _BY_KEY
