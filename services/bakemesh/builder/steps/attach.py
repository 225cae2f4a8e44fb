"""`<attach>`: waits until a component is ready; with `follow="yes"` passes its output on until it ends.

It fails at once where the component cannot become ready by itself: there is none, or it is quarantined,
stopped, or has ended otherwise than well after it was ready. One in a pause before its restart is waited for.
Followed, a component ends when it is stopped, removed, let be by its policy (its exit code is the step's) or
quarantined; a restart by its policy is no end. A step that is cancelled or run again changes nothing about
the component; run again it passes the output of the present instance on from its beginning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bakemesh.builder.components.states import State
from bakemesh.builder.steps import endings
from bakemesh.builder.steps.base import StepContext, StepResult, Stop
from bakemesh.builder.steps.watching import Watching, ready_or_hopeless, was_ready, where
from bakemesh.protocol.builder.codes import StepOutcome
from bakemesh.protocol.builder.spec.model import AttachStep

if TYPE_CHECKING:
    from bakemesh.builder.components.component import Component

_OVER = (State.ENDED, State.STOPPED, State.QUARANTINED)


class AttachRunner:
    """Runs an AttachStep."""

    async def run(self, context: StepContext, stop: Stop) -> StepResult:
        """One attempt."""
        step = context.step
        assert isinstance(step, AttachStep)
        assert context.components is not None
        if stop.reason is not None:
            return endings.stopped(stop.reason, "before it began")
        one = context.components.find(step.module)
        if one is None:
            return endings.failed(f"this node has no component {step.module}")
        if step.follow:
            return await self._followed(context, one, stop)
        began = context.clock()
        reason = await Watching(context, one, output=False).until(ready_or_hopeless, stop)
        if reason is not None:
            return endings.stopped(
                reason, f"after {endings.duration(context.clock() - began)} of waiting; {where(one)}"
            )
        if not was_ready(one):
            return endings.failed(where(one))
        return StepResult(StepOutcome.OK, where(one))

    async def _followed(self, context: StepContext, one: Component, stop: Stop) -> StepResult:
        if one.life.state in (State.STOPPED, State.QUARANTINED):
            return endings.failed(where(one))
        watching = Watching(context, one, output=True)
        reason = await watching.until(lambda it: it.life.state in _OVER, stop)
        if reason is not None:
            return endings.stopped(reason, "the component is left as it is")
        life, said = one.life, where(one) + watching.note
        if one.gone or life.state is State.STOPPED:
            return StepResult(StepOutcome.OK, said)
        well = life.state is State.ENDED and life.exitcode == 0
        return StepResult(StepOutcome.OK if well else StepOutcome.FAILED, said, life.exitcode)
