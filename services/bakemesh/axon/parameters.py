"""A gateway's parameters: `<parameter>`s of its component, or flags, as one value. Pure.

    hotkey="/etc/bakemesh/axon.json" bind="0.0.0.0:8091" routes="/srv/synapses.py" hotkey-rate="50"

Every problem is told at once, a name that is none with the nearest one that is. Left out: what only the files
can tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bakemesh.axon.apikeys import OpenRefused, check_open
from bakemesh.axon.mesh import Models
from bakemesh.axon.settings import HOST, PORT, Limits, Tls
from bakemesh.protocol.axon.freshness import AHEAD_MS, BACK_MS, Window
from bakemesh.protocol.builder.spec.problems import suggestion
from bakemesh.settings import values

Given = int | float | str
WALLETS = Path("~/.bittensor/wallets")


class ParametersRefused(ValueError):
    """Raised when parameters cannot be taken; `problems` has a line for each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Wallet:
    """A hotkey in a folder of the SDK's wallets."""

    name: str
    hotkey: str
    base: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """docs/axon.md says what they are. `hotkey`: a file, or one of a wallet. `api_keys` None: the state's."""

    hotkey: Path | Wallet
    host: str = HOST
    port: int = PORT
    routes: tuple[Path, ...] = ()
    tls: Tls | None = None
    deny: Path | None = None
    api_keys: Path | None = None
    open: bool = False
    models: Models = field(default_factory=Models)
    window: Window = field(default_factory=Window)
    limits: Limits = field(default_factory=Limits)


def read(given: Mapping[str, Given]) -> Parameters:
    """The value. Raises ParametersRefused."""
    problems: list[str] = []
    found: dict[str, Any] = {}
    for name, value in given.items():
        row = ROWS.get(name)
        if row is None:
            near = suggestion(name, ROWS) or f"; there are {', '.join(ROWS)}"
            problems.append(f"parameter {name!r} is none of a gateway{near}")
            continue
        try:
            found[name] = row.read(value)
        except ValueError as error:
            problems.append(f"parameter {name!r}: {error}")
    if not problems:
        problems = _together(found)
    if problems:
        raise ParametersRefused(problems)
    host, port = found.get("bind", (HOST, None))
    limits = {row.limit: found[name] for name, row in ROWS.items() if row.limit and name in found}
    return Parameters(
        hotkey=found["hotkey"] if "hotkey" in found else _wallet(found),
        host=host,
        port=PORT if port is None else port,
        routes=found.get("routes", ()),
        tls=Tls(cert=found["tls-cert"], key=found["tls-key"]) if "tls-cert" in found else None,
        deny=found.get("deny"),
        api_keys=found.get("api-keys"),
        open=found.get("open", False),
        models=Models(found.get("embed-model"), found.get("rerank-model"), found.get("chat-model")),
        window=Window(found.get("nonce-window-ms", BACK_MS), found.get("nonce-ahead-ms", AHEAD_MS)),
        limits=Limits(**limits),
    )


def _together(found: Mapping[str, Any]) -> list[str]:
    """What is wrong with values that are right by themselves."""
    problems = []
    if ("hotkey" in found) == ("wallet" in found):
        told = "both hotkey and wallet are given" if "hotkey" in found else "the gateway has no hotkey"
        problems.append(
            f"{told}: give hotkey=FILE (`bakemesh hotkey new FILE` makes one), or wallet=NAME with "
            "wallet-hotkey=NAME"
        )
    if ("tls-cert" in found) != ("tls-key" in found):
        problems.append("tls-cert and tls-key go together")
    if found.get("open"):
        try:
            check_open(found.get("bind", (HOST, None))[0])
        except OpenRefused as error:
            problems.append(str(error))
    return problems


def _wallet(found: Mapping[str, Any]) -> Wallet:
    base = found.get("wallets", WALLETS.expanduser())
    return Wallet(found["wallet"], found.get("wallet-hotkey", "default"), base)


# -- the table


@dataclass(frozen=True, slots=True)
class Row:
    """`limit`: the field of Limits that it sets."""

    read: Callable[[Given], Any]
    text: str
    limit: str | None = None


def _number_from(least: float) -> Callable[[Given], float]:
    def read(value: Given) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not (least <= number < math.inf):
            raise ValueError(f"{value!r} is no number from {least:g} on")
        return number

    return read


def _seconds(value: Given) -> float:
    """Of milliseconds."""
    return float(values.integer(1, 86_400_000)(value)) / 1000


def _paths(value: Given) -> tuple[Path, ...]:
    return tuple(values.path(part.strip()) for part in str(value).split(",") if part.strip())


def _word(value: Given) -> str:
    if not str(value).strip():
        raise ValueError("is empty")
    return str(value)


ROWS: dict[str, Row] = {
    "hotkey": Row(values.path, "its key file (0600)"),
    "wallet": Row(_word, "instead of hotkey: a wallet of the SDK"),
    "wallet-hotkey": Row(_word, "the hotkey in it; default: default"),
    "wallets": Row(values.path, f"where wallets are; default {WALLETS}"),
    "bind": Row(values.listen, f"HOST or HOST:PORT; default {HOST}:{PORT}; port 0: any free one"),
    "routes": Row(_paths, "Python files with synapses, separated by commas"),
    "tls-cert": Row(values.path, "PEM file: the server speaks TLS"),
    "tls-key": Row(values.path, "PEM file of its key"),
    "deny": Row(values.path, "a file of addresses, networks and hotkeys that are not served, one a line"),
    "api-keys": Row(values.path, "the key file of the OpenAI-style routes; default STATE/axon/api-keys"),
    "open": Row(values.yes_no, "yes: those routes need no key, on 127.0.0.1 alone; default no"),
    "embed-model": Row(_word, "alias for embeddings; default: the first of the mesh"),
    "rerank-model": Row(_word, "alias for rerankings"),
    "chat-model": Row(_word, "alias for text"),
    "nonce-window-ms": Row(values.integer(1, 3_600_000), f"how old a nonce may be; default {BACK_MS}"),
    "nonce-ahead-ms": Row(values.integer(0, 3_600_000), f"how far ahead; default {AHEAD_MS}"),
    "max-header": Row(values.size(1024), "bytes of a header block; default 16KiB", "header_bytes"),
    "max-body": Row(values.size(0), "bytes of a body; default 16MiB", "body_bytes"),
    "max-connections": Row(values.integer(1, 1_000_000), "default 4096", "connections"),
    "max-requests": Row(values.integer(1, 1_000_000), "at once, of all; default 512", "in_flight"),
    "max-unverified": Row(
        values.integer(1, 1_000_000),
        "of these, not verified before their body is read; default 64",
        "unverified",
    ),
    "hotkey-requests": Row(
        values.integer(1, 1_000_000), "at once, of one hotkey; default 64", "hotkey_requests"
    ),
    "hotkey-rate": Row(_number_from(0), "a second, of one hotkey; 0: no limit; default 200", "hotkey_rate"),
    "max-hotkeys": Row(values.integer(1, 10_000_000), "that are remembered; default 65536", "hotkeys"),
    "max-nonces": Row(values.integer(1, 100_000_000), "that are remembered; default 500000", "nonces"),
    "request-ms": Row(_seconds, "the most that a request may take; default 120000", "request_s"),
    "header-ms": Row(_seconds, "for a header block to arrive; default 10000", "header_s"),
    "body-ms": Row(_seconds, "for a body to arrive; default 30000", "body_s"),
    "keep-alive-ms": Row(_seconds, "for the next request to begin; default 75000", "keep_alive_s"),
    "threads": Row(values.integer(1, 1024), "for handlers that are plain functions; default 32", "threads"),
}
NAMES = tuple(ROWS)
