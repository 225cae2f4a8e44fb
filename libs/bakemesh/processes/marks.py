"""How processes of a keeper are told from others: what is given to them that their descendants inherit.

| mark | on | inherited through | read |
|---|---|---|---|
| `BAKEMESH_KEEPER=<token>` in the environment | keeper, minders | fork | same user |
| `BAKEMESH_STEP_OF=<token>` in the environment | steps | fork, exec; lost by `env -i` | same user |
| raised `oom_score_adj` | steps | fork, exec, `env -i` | anyone, zombies too |
| cgroup | all of them, where one can be made | everything | anyone, zombies too |
| command name | keeper, minders | fork | anyone, zombies too |
"""

from __future__ import annotations

from bakemesh.processes import proc

KEEPER_VARIABLE = "BAKEMESH_KEEPER"
STEP_VARIABLE = "BAKEMESH_STEP_OF"
KEEPER_NAME = b"bakemesh-keeper"
MINDER_NAME = b"bakemesh-minder"
# Steps are to go first when memory runs out, long before the Builder. Odd on purpose: nobody else chooses it.
OOM_RAISE = 503
OOM_HIGHEST = 1000


def oom_score(pid: int | str) -> int | None:
    """The `oom_score_adj` of a process, None where it is gone."""
    try:
        return int(proc.read(f"/proc/{pid}/oom_score_adj"))
    except (OSError, ValueError):
        return None


def step_oom_score() -> int:
    """The score steps of this process get."""
    return min(OOM_HIGHEST, (oom_score("self") or 0) + OOM_RAISE)


def entry(variable: str, token: str) -> bytes:
    """The environment entry that marks a process."""
    return f"{variable}={token}".encode()
