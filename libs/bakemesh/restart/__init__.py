"""Restart: when something that ended is started again, as a pure value. Facts in, decision out.

`decide(policy, record, ended)` reads no clock and draws no random number: time and the jitter's draw are in
the facts. Left out: starting, waiting and killing, which belong to whoever owns the process.
"""

from bakemesh.restart.policy import (
    BUILDER,
    Decision,
    Ended,
    LetBe,
    Policy,
    Quarantine,
    Record,
    Restart,
    When,
    decide,
)

__all__ = [
    "BUILDER",
    "Decision",
    "Ended",
    "LetBe",
    "Policy",
    "Quarantine",
    "Record",
    "Restart",
    "When",
    "decide",
]
