"""`<requestdata>`: asks the Supervisor for data and waits for the push that answers.

Guarantees: the answer is kept as an entry before the step is done, and its file appears whole or not at all.
Left out: parts and repeats of a push (intake joins them), the timeout (the session stops the step).
"""

from __future__ import annotations

import asyncio

from bakemesh.builder.steps import endings
from bakemesh.builder.steps.base import StepContext, StepResult, Stop
from bakemesh.builder.steps.paths import PathRefused, place
from bakemesh.protocol.builder.codes import StepOutcome
from bakemesh.protocol.builder.spec.model import RequestDataStep
from bakemesh.protocol.builder.spec.references import ReferenceFailed


class RequestDataRunner:
    """Runs a RequestDataStep."""

    async def run(self, context: StepContext, stop: Stop) -> StepResult:
        """One attempt: ask, wait, keep. A push that came before the question answers it at once."""
        step = context.step
        assert isinstance(step, RequestDataStep)
        try:
            # A path that cannot be is said before anybody is asked for data.
            into = None if step.into is None else context.expand(step.into)
        except ReferenceFailed as error:
            return endings.failed(str(error))
        began = context.clock()
        await context.ask(step.name)
        pushed = asyncio.create_task(context.pushes.wait(step.name), name=f"push for {step.name}")
        asked = asyncio.create_task(stop.wait(), name=f"stop of {step.name}")
        try:
            await asyncio.wait({pushed, asked}, return_when=asyncio.FIRST_COMPLETED)
            if not pushed.done():
                waited = endings.duration(context.clock() - began)
                return endings.stopped(asked.result(), f"after {waited} of waiting for a push")
            data = pushed.result()
        finally:
            for task in (pushed, asked):
                task.cancel()
            await asyncio.gather(pushed, asked, return_exceptions=True)
        return await self._keep(context, step, data, into)

    async def _keep(
        self, context: StepContext, step: RequestDataStep, data: bytes, into: str | None
    ) -> StepResult:
        done = [f"received {len(data):,} bytes"]
        if step.entry is not None:
            await context.keep_entry(step.entry, data)
            done.append(f"kept as entry {step.entry}")
        if into is not None and step.into is not None:
            try:
                await asyncio.to_thread(place, context.folder, into, data, written=step.into)
            except PathRefused as error:
                return endings.failed(f"into: {error}")
            done.append(f"written to {step.into[:100]}")
        return StepResult(StepOutcome.OK, ", ".join(done))
