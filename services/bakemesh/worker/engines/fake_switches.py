"""How the fake engine is told to fail: its own keys of a LOAD's runtime_config, for tests of hosts.

| key | value | what happens |
|---|---|---|
| `start_error` | a code of the wire | LOAD is answered ERR with that code |
| `slow_load_ms` | milliseconds | LOAD takes that long, before the file is read |
| `slow_ms` | milliseconds | each embedding and reranking, and each generated token, takes that long |
| `exit_code_after` | `CODE:N` | the N-th request with ids ends the process with that code; negative: signal |
| `abort_on_item` | when | the process aborts (SIGABRT) |
| `hang_on_item` | when | the request never ends, and TERM does nothing |
| `garbage_frame` | when | the answer is a frame that is no JSON |
| `oversized_frame` | when | the answer announces a frame of 4 GiB less one |
| `half_frame` | when | half of the answer is sent, then the process exits with 1 |
| `wrong_req_id` | when | the answer has another req_id |
| `stdout_flood` | bytes | written to stdout before each answer |
| `dims` | a multiple of 8 | width of the vectors, default 8 |
| `endless` | `yes` | generation goes round the prompt's ids until max_tokens |

*when*: a token id (a request whose ids hold it: a poison item is poison wherever it is sent), or the name of
a stage: `load, embed, rerank, generate, info, unload, ping, any`. Comma for several.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bakemesh.protocol.numerals import whole
from bakemesh.protocol.worker.headers import CODES
from bakemesh.worker.config import ConfigInvalid

STAGES = {
    "LOAD": "load",
    "EMBED_BATCH": "embed",
    "RERANK": "rerank",
    "GENERATE": "generate",
    "GENERATE_STREAM": "generate",
    "MODEL_INFO": "info",
    "UNLOAD": "unload",
    "PING": "ping",
}
FAULTS = (
    "abort_on_item",
    "hang_on_item",
    "garbage_frame",
    "oversized_frame",
    "half_frame",
    "wrong_req_id",
)
KEYS = (
    *FAULTS, "start_error", "slow_load_ms", "slow_ms", "exit_code_after", "stdout_flood", "dims", "endless",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class When:
    """When a fault strikes."""

    tokens: frozenset[int]
    stages: frozenset[str]

    def strikes(self, stage: str, ids: memoryview | None) -> bool:
        """Whether it does at this request."""
        if stage in self.stages or "any" in self.stages:
            return True
        return ids is not None and any(each in ids for each in self.tokens)


@dataclass(frozen=True, slots=True)
class Switches:
    """The switches of one loaded model."""

    faults: dict[str, When] = field(default_factory=dict)
    start_error: str | None = None
    slow_load_ms: int = 0
    slow_ms: int = 0
    exit_code: int = 0
    exit_after: int = 0  # 0: never
    stdout_flood: int = 0
    dims: int = 8
    endless: bool = False

    @classmethod
    def of(cls, config: Mapping[str, str]) -> Switches:
        """Reads the fake engine's own keys. Raises ConfigInvalid."""
        code, after = _exit(config.get("exit_code_after"))
        error = config.get("start_error")
        if error is not None and error not in CODES:
            raise ConfigInvalid(
                f"runtime_config.start_error must be one of {', '.join(CODES)}, not {error!r}"
            )
        dims = _whole(config, "dims", 8)
        if not dims or dims % 8:
            raise ConfigInvalid(f"runtime_config.dims must be a multiple of 8, not {dims}")
        return cls(
            faults={name: _when(name, config[name]) for name in FAULTS if name in config},
            start_error=error,
            slow_load_ms=_whole(config, "slow_load_ms", 0),
            slow_ms=_whole(config, "slow_ms", 0),
            exit_code=code,
            exit_after=after,
            stdout_flood=_whole(config, "stdout_flood", 0),
            dims=dims,
            endless=config.get("endless") == "yes",
        )


def _when(name: str, value: str) -> When:
    tokens, stages = set(), set()
    for word in value.split(","):
        token = whole(word)
        if token is not None:
            tokens.add(token)
        elif word in ("any", *STAGES.values()):
            stages.add(word)
        else:
            can = ", ".join(sorted({*STAGES.values(), "any"}))
            raise ConfigInvalid(f"runtime_config.{name} must be a token id or one of {can}, not {word!r}")
    return When(frozenset(tokens), frozenset(stages))


def _whole(config: Mapping[str, str], name: str, default: int) -> int:
    value = config.get(name, str(default))
    number = whole(value, digits=9)
    if number is None:
        raise ConfigInvalid(f"runtime_config.{name} must be a whole number, not {value!r}")
    return number


def _exit(value: str | None) -> tuple[int, int]:
    if value is None:
        return 0, 0
    code, colon, after = value.partition(":")
    try:
        found = int(code), int(after)
    except ValueError:
        found = 0, 0
    if not colon or found[1] < 1 or not -64 <= found[0] <= 255:
        raise ConfigInvalid(f"runtime_config.exit_code_after must be CODE:N, as 1:50, not {value!r}")
    return found
