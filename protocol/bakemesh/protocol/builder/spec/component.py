"""A component's spec as data: what a `<module>` (or `<supervisor>`) element says, references put in.

It is all that a Builder needs to create, run and heal it, and all that a crank host is told. `digest` tells
whether two specs are the same; it is what a changed PsySpec is compared by. Reading it from XML: `module`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any, Self

SERVICES = ("synapse", "lanes", "axon", "dashboard")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptCrank:
    """A Python function. `source`: the script's text, shipped with the spec; None: `script` is an absolute
    path on the node."""

    script: str
    function: str = "crank"
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandCrank:
    """A program, started without a shell."""

    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCrank:
    """One of the services that come with bakemesh."""

    service: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """`value` by its type: Integer → int, Float → float, String → str."""

    name: str
    value: int | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """Wakes the crank: `type` may hold `*` segments (`matches`). `durable`: the concrete types among them
    that are stored, and therefore delivered at least once. `after_ms` delays."""

    name: str
    type: str
    after_ms: int = 0
    durable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """What the crank may post, by name."""

    name: str
    type: str
    durable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A probe: a command (exit code 0), or a request on a subject of the component's own. One of the two."""

    argv: tuple[str, ...] = ()
    subject: str | None = None
    interval_ms: int = 5000
    timeout_ms: int = 2000
    misses: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentSpec:
    """The whole. `supervisor`: its crank gets the Supervisor SDK. Restart words are OTP's."""

    name: str
    crank: ScriptCrank | CommandCrank | ServiceCrank
    description: str = ""
    supervisor: bool = False
    parameters: tuple[Parameter, ...] = ()
    triggers: tuple[Trigger, ...] = ()
    posts: tuple[Post, ...] = ()
    restart: str = "always"  # always | on-failure | never
    max_restarts: int = 3
    restart_window_ms: int = 60_000
    shutdown_ms: int = 5_000
    ready_ms: int = 1_000
    health: Health | None = None
    env: tuple[tuple[str, str], ...] = ()
    depends: tuple[str, ...] = ()
    memory_max_bytes: int | None = None
    cpu_share: float | None = None  # of one core: 0.5 is half of it

    @property
    def digest(self) -> str:
        """The same for specs that are the same, of whatever version: 16 hexadecimal digits.

        What has its default is left out of it, so that a field that a newer version adds changes no digest
        and an upgrade restarts nothing.
        """
        told = json.dumps(_told(self), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """The spec as text, for a journal, a file, a process."""
        return json.dumps(
            {**asdict(self), "crank": {"kind": type(self.crank).__name__, **asdict(self.crank)}},
            sort_keys=True,
            ensure_ascii=False,
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The spec in `to_json`'s text; what a newer version added is left out. Raises ValueError."""
        try:
            given = json.loads(text)
            crank = given.pop("crank")
            kind = _CRANKS[crank.pop("kind")]
            made: dict[str, Any] = {
                **given,
                "crank": _made(kind, crank),
                "parameters": tuple(_made(Parameter, each) for each in given["parameters"]),
                "triggers": tuple(_made(Trigger, each) for each in given["triggers"]),
                "posts": tuple(_made(Post, each) for each in given["posts"]),
                "health": _made(Health, given["health"]) if given["health"] else None,
                "env": tuple((name, value) for name, value in given["env"]),
                "depends": tuple(given["depends"]),
            }
            spec: Self = _made(cls, made)
            return spec
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no component spec: {error}") from error


def matches(pattern: str, type_: str) -> bool:
    """Whether a trigger's type, `*` a segment each, takes messages of type `type_`."""
    wanted, given = pattern.split("."), type_.split(".")
    return len(wanted) == len(given) and all(
        each == "*" or each == other for each, other in zip(wanted, given, strict=True)
    )


def _told(value: Any) -> Any:
    """What a spec says beyond its defaults, as JSON takes it."""
    if isinstance(value, tuple):
        return [_told(each) for each in value]
    if not is_dataclass(value):
        return value
    said = {each.name: getattr(value, each.name) for each in fields(value)}
    defaults = {each.name: each.default for each in fields(value)}
    return {
        "kind": type(value).__name__,
        **{name: _told(each) for name, each in said.items() if each != defaults[name]},
    }


_CRANKS: dict[str, type[Any]] = {cls.__name__: cls for cls in (ScriptCrank, CommandCrank, ServiceCrank)}


def _made(cls: type[Any], given: dict[str, Any]) -> Any:
    known = {field.name for field in fields(cls)}
    return cls(
        **{
            name: tuple(value) if isinstance(value, list) else value
            for name, value in given.items()
            if name in known
        }
    )
