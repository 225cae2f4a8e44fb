"""Resolution: flag, then environment, then `bakemesh.toml`, then default; each value with its origin.

`load` reads one TOML file and nothing else of the machine except what a default needs (uid, home). All bad
values are reported at once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from bakemesh.settings.table import ROWS, Row, row_of
from bakemesh.settings.toml import read_toml
from bakemesh.settings.values import NodeName, Refused, SettingRefused

UP_FILE = "up.json"


class Origin(StrEnum):
    """The kinds of places that a value comes from."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    FILE = "file"
    RUNNING = "running"  # a `bakemesh up` on the same state folder
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class NatsFound:
    """What a running `bakemesh up` wrote into its state folder: where its bus is."""

    url: str
    pid: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Every setting's value. `origin(name)` says where one came from, `kind(name)` what sort of place that
    is.
    """

    nats: tuple[str, ...]
    join: str | None
    listen: tuple[str, int | None]
    node: NodeName | None
    state: Path
    creds: Path | None
    mesh: str
    supervisor: str
    operators: tuple[str, ...]
    accept_forwarded: bool | None
    max_bakes: int
    store_max_bytes: int | None
    nodes_expected: int
    durability: str
    kill_grace_ms: int
    unreachable_ms: int
    control_rate: float
    recipe_rate: float
    outbox_max_bytes: int
    on_stop: str
    keys_dir: Path | None
    log_format: str
    log_level: str
    origins: Mapping[str, tuple[Origin, str]] = field(default_factory=dict, compare=False, repr=False)

    def origin(self, name: str) -> str:
        """Where the value of `name` came from: `--nats`, `BAKEMESH_NATS`, `<file>: nats`, `default`."""
        return self.origins[row_of(name).name][1]

    def kind(self, name: str) -> Origin:
        """What sort of place that is."""
        return self.origins[row_of(name).name][0]

    def value(self, name: str) -> Any:
        """The value by key or attribute name."""
        return getattr(self, row_of(name).name)

    def shown(self, name: str) -> str:
        """The value as text that its reader takes again; the row's `shown` for an absent one."""
        row = row_of(name)
        value = self.value(name)
        return row.shown if value is None and row.default is None else _as_text(row, value)

    def as_flags(self, names: Iterable[str]) -> list[str]:
        """Flags that give another process these values; absent values give none."""
        flags: list[str] = []
        for name in names:
            row, value = row_of(name), self.value(name)
            if value is None and row.default is None:
                continue
            parts = value if row.repeatable else (_as_text(row, value),)
            flags += [f"{row.flag}={part}" for part in parts]
        return flags


def _as_text(row: Row, value: Any) -> str:
    if row.key == "listen":
        host, port = value
        shown = f"[{host}]" if ":" in host else host
        return shown if port is None else f"{shown}:{port}"
    if value is None:
        return "auto"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ",".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def default_state(environ: Mapping[str, str], uid: int) -> Path:
    """/var/lib/bakemesh for root, else `$XDG_STATE_HOME/bakemesh`, else ~/.local/state/bakemesh."""
    if uid == 0:
        return Path("/var/lib/bakemesh")
    if base := environ.get("XDG_STATE_HOME"):
        return Path(base) / "bakemesh"
    return Path(environ.get("HOME") or "~").expanduser() / ".local" / "state" / "bakemesh"


def load(flags: Mapping[str, object], environ: Mapping[str, str], toml_path: Path | None = None) -> Settings:
    """Resolves every setting. `flags`: name (either spelling) → value, None where the flag was not given.

    Raises SettingRefused with every problem: bad values, unknown keys of the file, a file that cannot be
    read.
    """
    problems: list[Refused] = []
    from_file: dict[str, object] = {}
    if toml_path is not None:
        try:
            from_file = read_toml(toml_path)
        except SettingRefused as error:
            problems += error.problems
    given = {name.replace("_", "-"): value for name, value in flags.items() if value is not None}
    values: dict[str, Any] = {}
    origins: dict[str, tuple[Origin, str]] = {}
    for row in ROWS:
        raw, kind, where = _pick(row, given, environ, from_file, toml_path)
        origins[row.name] = kind, where
        if raw is None:
            values[row.name] = None
            continue
        try:
            values[row.name] = row.read(raw)
        except ValueError as error:
            problems.append(Refused(row.key, where, str(error)))
            continue
        if row.is_path:
            base = toml_path.parent if kind is Origin.FILE and toml_path is not None else Path.cwd()
            values[row.name] = Path(os.path.normpath(base.absolute() / values[row.name]))
    if problems:
        raise SettingRefused(problems)
    if values["state"] is None:
        values["state"] = default_state(environ, os.getuid())
    if origins["nats"][0] is Origin.DEFAULT and (found := running_up(values["state"])) is not None:
        values["nats"] = (found.url,)
        origins["nats"] = Origin.RUNNING, f"`bakemesh up`, process {found.pid}, in {values['state']}"
    return Settings(**values, origins=origins)


def _pick(
    row: Row,
    given: Mapping[str, object],
    environ: Mapping[str, str],
    from_file: Mapping[str, object],
    toml_path: Path | None,
) -> tuple[object | None, Origin, str]:
    if row.key in given:
        return given[row.key], Origin.FLAG, row.flag
    if environ.get(row.env):
        return environ[row.env], Origin.ENVIRONMENT, row.env
    if row.key in from_file:
        return from_file[row.key], Origin.FILE, f"{toml_path}: {row.key}"
    return row.default, Origin.DEFAULT, "default"


def running_up(state: Path) -> NatsFound | None:
    """The bus of the `bakemesh up` that runs on this state folder, if one does."""
    try:
        found = json.loads((state / UP_FILE).read_text(encoding="utf-8"))
        url, pid = str(found["nats"]), int(found["pid"])
        os.kill(pid, 0)
    except PermissionError:
        pass  # the process is there, and somebody else's
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return NatsFound(url, pid)
