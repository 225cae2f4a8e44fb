"""What is asked for and what comes back, as values: a process to start, how it ended, what a sweep left."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_INSTANCE = re.compile(r"[!-~]{1,128}")


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """A program to start.

    `argv[0]` without a slash is looked for in the PATH of `env` (without one, in `os.defpath`); a relative
    one with a slash starts from `cwd`. `env` is the whole environment of the process, nothing is inherited.
    `cwd` None means the folder this process is in. Strings may carry surrogate escapes for bytes that are not
    UTF-8.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str | os.PathLike[str] | None = None


@dataclass(frozen=True, slots=True)
class Exit:
    """How a main process ended.

    `code` is its exit code, None where a signal ended it; `signal` is that signal, else None. `max_rss_kib`
    is the largest single process of the step so far (with a floor of 6 to 10 MiB), `cpu_s` the CPU time of
    every process of the step that ended so far. `lost`: the minder or the keeper died and the step was killed
    for it, so that `code` says nothing about the program.
    """

    code: int | None
    signal: int | None
    max_rss_kib: int
    cpu_s: float
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Survivor:
    """A process that SIGKILL did not end in time: `state` and `wchan` (a kernel function) say where it is."""

    pid: int
    comm: str
    state: str
    wchan: str

    def __str__(self) -> str:
        where = f" in {self.wchan}" if self.wchan else ""
        return f"{self.comm} (pid {self.pid}, state {self.state}{where})"


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep did: `killed` processes ended by SIGKILL, `survivors` still there (they go on being
    killed).

    No survivors is exact: nothing of the step is alive. `max_rss_kib` and `cpu_s` are those of `Exit`, with
    every process that ended since.
    """

    killed: int
    survivors: tuple[Survivor, ...] = ()
    max_rss_kib: int = 0
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShimSpec:
    """A component to start: a process that outlives this one, with a folder of its own.

    `instance` names this start of it for good (1 to 128 visible ASCII characters, never used again); it is in
    the environment of the process as BAKEMESH_INSTANCE. Its output goes to `out.log` in `folder`, turned over
    at `log_bytes`, with `log_files` older ones kept. `memory_max_bytes` is of all its processes together,
    `cpu_share` in cores. `module`: it is this Python module, `argv` is (this interpreter, "-m", module,
    argument…), and a `Nursery` may fork it. Raises ValueError.
    """

    process: ProcessSpec
    folder: Path
    instance: str
    log_bytes: int = 8 << 20
    log_files: int = 3
    memory_max_bytes: int | None = None
    cpu_share: float | None = None
    module: str | None = None

    def __post_init__(self) -> None:
        check_instance(self.instance)
        if self.log_bytes < 1 or self.log_files < 0:
            raise ValueError("a log has at least 1 byte, and 0 or more older files")


def check_instance(instance: str) -> None:
    """Raises ValueError where this cannot name an instance."""
    if not _INSTANCE.fullmatch(instance):
        raise ValueError(f"an instance is named by 1 to 128 visible ASCII characters, not {instance!r}")


@dataclass(frozen=True, slots=True)
class ShimExit:
    """How a component ended: `code`, or the `signal` that ended its main process, `at` a wall clock time.

    When this is told nothing of it is alive. `lost`: its shim died, and it was killed for that or is gone
    with the boot; then nothing else is known. `reason` is `memory limit` where it was killed for that.
    """

    code: int | None
    signal: int | None
    lost: bool
    at: float | None
    reason: str = ""
    killed: int = 0
    max_rss_kib: int = 0
    cpu_s: float = 0.0
