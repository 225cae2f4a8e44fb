"""How long a worker may take: pure. Sizes, tokens and what was measured in, seconds out.

A deadline is where a worker is held to hang, and is killed. So an estimate is an upper bound: a cost rises to
a slow measurement at once and falls slowly, and a generation's is put together out of

    all its time / its generated tokens        ≥ what a generated token costs
    all its time / all its tokens              ≥ what a token of the prompt costs, which is less

Left out: a caller's own deadline, which never kills anybody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

_FALL = 0.2  # the weight of a measurement that is faster than what is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The numbers; seconds. `measurements`: how many make an estimate."""

    load_s: float = 180.0
    load_bytes_per_s: float = 100 * (1 << 20)
    factor: float = 4.0
    slack_s: float = 0.25
    floor_s: float = 1.0
    measurements: int = 3
    quantum_s: float = 60.0
    generation_s: float = 600.0


class Work(NamedTuple):  # made for each request, like Costs: less work than a frozen dataclass
    """What a request asks for: `read` tokens go in, at most `made` come out (0: no generation)."""

    read: int
    made: int = 0


class Costs(NamedTuple):
    """What is known of a (model, config): seconds a token, as upper bounds."""

    runs: int = 0
    read_s: float = 0.0
    made_s: float = 0.0


def load_deadline(rules: Rules, size: int) -> float:
    """For a LOAD of `size` bytes."""
    return rules.load_s + size / rules.load_bytes_per_s


def run_deadline(rules: Rules, costs: Costs, work: Work) -> float:
    """For a quantum or a generation."""
    if costs.runs < rules.measurements:
        return rules.generation_s if work.made else rules.quantum_s
    estimate = work.read * costs.read_s + work.made * costs.made_s
    return max(rules.floor_s, estimate * rules.factor + rules.slack_s)


def measured(costs: Costs, work: Work, took_s: float) -> Costs:
    """After a run that was answered; `work.made` is what was really made."""
    tokens = work.read + work.made
    if tokens == 0:
        return costs
    read_s = _learn(costs.read_s, took_s / tokens)
    made_s = _learn(costs.made_s, took_s / work.made) if work.made else costs.made_s
    return Costs(costs.runs + 1, read_s, made_s)


def overrun(costs: Costs, work: Work, waited_s: float) -> Costs:
    """After a timeout: it costs `waited_s` at the least. On a machine that became slow the next one gets
    more time, instead of every one being killed."""
    learnt = measured(costs, work, waited_s)
    return Costs(costs.runs, learnt.read_s, learnt.made_s)


def _learn(known: float, seen: float) -> float:
    return seen if seen >= known else known + (seen - known) * _FALL
