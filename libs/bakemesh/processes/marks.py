"""How processes of a keeper are told from others: what is given to them that their descendants inherit.

| mark | on | inherited through | read |
|---|---|---|---|
| `BAKEMESH_KEEPER=<token>` in the environment | keeper, nursery, minders, shims | fork | same user |
| `BAKEMESH_STEP_OF=<token>` in the environment | steps | fork, exec; lost by `env -i` | same user |
| `BAKEMESH_INSTANCE=<instance>` in the environment | components | fork, exec; lost by `env -i` | same user |
| a limit of file locks, which has no effect | components, shims | fork, exec, `env -i` | anyone |
| raised `oom_score_adj` | steps; components less | fork, exec, `env -i` | anyone, zombies too |
| cgroup | keeper, minders, steps, where one can be made | everything | anyone, zombies too |
| command name | keeper, nursery, minders, shims | fork | anyone, zombies too |

A component that was forked and not executed writes its environment where the kernel looks for it.
What outlives its Builder (shims, components) has none of the marks by which steps are swept.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from bakemesh.processes import proc
from bakemesh.processes.spec import ProcessSpec

KEEPER_VARIABLE = "BAKEMESH_KEEPER"
STEP_VARIABLE = "BAKEMESH_STEP_OF"
INSTANCE_VARIABLE = "BAKEMESH_INSTANCE"
# Who has it dies with `bakemesh up`, by its guard. No component may, so no keeper does: a shim is its fork.
UP_VARIABLE = "_BAKEMESH_UP"
KEEPER_NAME = b"bakemesh-keeper"
NURSERY_NAME = b"bakemesh-nurse"
MINDER_NAME = b"bakemesh-minder"
SHIM_NAME = b"bakemesh-shim"
# Steps are to go first when memory runs out, then components, long before the Builder. Odd on purpose: nobody
# else chooses them.
OOM_RAISE = 503
OOM_RAISE_COMPONENTS = 307
OOM_HIGHEST = 1000


def oom_score(pid: int | str) -> int | None:
    """The `oom_score_adj` of a process, None where it is gone."""
    try:
        return int(proc.read(f"/proc/{pid}/oom_score_adj"))
    except (OSError, ValueError):
        return None


def step_oom_score() -> int | None:
    """The score that steps of this process get, None where it does not tell them from this and components."""
    own = oom_score("self") or 0
    return own + OOM_RAISE if own + OOM_RAISE_COMPONENTS < OOM_HIGHEST else None


def component(spec: ProcessSpec, instance: str) -> ProcessSpec:
    """A component's process with its own mark, and none of those that die with somebody.

    The mark comes first: a fork that shows its environment has room for the beginning, whatever follows.
    """
    others = (STEP_VARIABLE, KEEPER_VARIABLE, UP_VARIABLE, INSTANCE_VARIABLE)
    env = {name: value for name, value in spec.env.items() if name not in others}
    return replace(spec, env={INSTANCE_VARIABLE: instance, **env})


def component_mark(instance: str) -> int:
    """The limit by which a component's processes are known; no two instances have the same."""
    return int.from_bytes(hashlib.sha256(instance.encode()).digest()[:8]) >> 2 | 1


def lock_limit(pid: int) -> int | None:
    """The limit of file locks of a process; None: none, or the process is gone."""
    try:
        line = proc.read(f"/proc/{pid}/limits").partition(b"Max file locks")[2]
        return int(line.split(maxsplit=1)[0])
    except (OSError, ValueError, IndexError):
        return None


def entry(variable: str, token: str) -> bytes:
    """The environment entry that marks a process."""
    return f"{variable}={token}".encode()
