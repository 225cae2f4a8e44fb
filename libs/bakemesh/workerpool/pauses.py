"""When a worker that ended is started again: pure, over `bakemesh.restart`.

At once the first time; then after 0.25 s, doubled up to 10 s, each shortened by chance. What answered a run,
or ran for a minute, has proved itself: its end is a first one again. So pauses are for workers that do not
come up, or die at a LOAD; one that works and dies now and then serves again at once, and what holds that back
is the crash budget of the (model, config).
"""

from __future__ import annotations

from bakemesh.restart import Ended, Policy, Record, Restart, decide

# The first pause of the policy is the one that is left out, so that the second end waits for 0.25 s.
POLICY = Policy(never_quarantine=True, first_s=0.125, factor=2.0, most_s=10.0, stable_s=60.0)


def pause(record: Record, *, ran_s: float, proven: bool, now: float, draw: float) -> tuple[float, Record]:
    """Seconds to wait, and the record to keep. `proven`: it answered a run. `draw`: random from [0, 1)."""
    decision, after = decide(
        POLICY, Record() if proven else record, Ended(code=1, ran_s=ran_s, now=now, draw=draw)
    )
    assert isinstance(decision, Restart)  # the policy has no other
    return (0.0 if after.in_a_row == 1 else decision.pause_s), after
