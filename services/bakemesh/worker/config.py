"""The keys of a LOAD's runtime_config: one table, text to text on the wire.

Guarantees: an unknown key, or a value that is none of its kind, is named in a ConfigInvalid before any file
is opened. Left out: what only an engine can know (whether a model can do the pooling).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from bakemesh.protocol.numerals import whole
from bakemesh.protocol.worker.headers import POOLINGS
from bakemesh.worker.engines.base import EngineError


class ConfigInvalid(EngineError):
    """Raised when a key or a value of runtime_config is not one that this worker has."""

    def __init__(self, msg: str) -> None:
        super().__init__("config_invalid", msg)


def _number(least: int) -> Callable[[str], None]:
    def check(value: str) -> None:
        size = whole(value.removeprefix("-"), digits=9)
        if size is None or int(value) < least:
            raise ValueError(f"must be a whole number from {least}")

    return check


def _one_of(*words: str) -> Callable[[str], None]:
    def check(value: str) -> None:
        if value not in words:
            raise ValueError(f"must be one of {', '.join(words)}")

    return check


def _anything(value: str) -> None:
    del value


_YES_NO = _one_of("yes", "no")

KEYS: dict[str, Callable[[str], None]] = {
    "ctx_size": _number(0),  # 0: as long as the model was trained for
    "batch_size": _number(1),
    "ubatch_size": _number(1),
    "gpu_layers": _number(-1),  # -1: all
    "threads": _number(1),
    "flash_attention": _one_of("auto", "enabled", "disabled"),
    "pooling": _one_of(*POOLINGS),
    "allow_unfaithful": _YES_NO,
    "allow_unverified": _YES_NO,
    # The published host sends these with every LOAD; they say nothing to a worker.
    "artifact_path": _anything,
    "model_path": _anything,
    "pooling_implementation": _anything,
    "forward_pass": _anything,
    "microllm_max_tokens": _anything,
}


def check(config: Mapping[str, str], switches: Iterable[str] = ()) -> None:
    """Raises ConfigInvalid, which names the key. `switches`: keys that the engine has of its own."""
    own = frozenset(switches)
    for key, value in config.items():
        if key in own:
            continue  # its engine reads it
        found = KEYS.get(key)
        if found is None:
            raise ConfigInvalid(f"runtime_config.{key} is no key of this worker; it has {', '.join(KEYS)}")
        try:
            found(value)
        except ValueError as error:
            raise ConfigInvalid(f"runtime_config.{key} {error}, not {value!r}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeConfig:
    """A checked runtime_config, typed. None: not said, the engine's own choice."""

    ctx_size: int | None = None
    batch_size: int | None = None
    ubatch_size: int | None = None
    gpu_layers: int | None = None
    threads: int | None = None
    flash_attention: str = "auto"
    pooling: str | None = None
    allow_unfaithful: bool = False
    allow_unverified: bool = False

    @classmethod
    def of(cls, config: Mapping[str, str]) -> RuntimeConfig:
        """Reads what `check` let pass."""

        def number(key: str) -> int | None:
            return int(config[key]) if key in config else None

        return cls(
            ctx_size=number("ctx_size"),
            batch_size=number("batch_size"),
            ubatch_size=number("ubatch_size"),
            gpu_layers=number("gpu_layers"),
            threads=number("threads"),
            flash_attention=config.get("flash_attention", "auto"),
            pooling=config.get("pooling"),
            allow_unfaithful=config.get("allow_unfaithful") == "yes",
            allow_unverified=config.get("allow_unverified") == "yes",
        )
