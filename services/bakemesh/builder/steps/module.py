"""`<module>`: makes, changes and starts a component, and waits until it is ready (`wait="no"`: does not).

Same spec and running, or in quarantine: nothing to do. Guarantees: the component is journaled with the
attempt that made it, so that one that a restart of the Builder cut, and that is run again whatever
`retryable` says, starts nothing twice. A step that is cancelled, skipped, retried or out of time while it
waits stops the component if this attempt started it; one whose Builder stops leaves it to the setting
`on-stop`.
"""

from __future__ import annotations

import asyncio

from bakemesh.builder.components.errors import CannotRun, NotYours
from bakemesh.builder.components.life import Stop as StopIt
from bakemesh.builder.components.states import State
from bakemesh.builder.steps import endings
from bakemesh.builder.steps.base import ComponentHost, StepContext, StepResult, Stop, StopReason
from bakemesh.builder.steps.watching import Watching, ready_or_hopeless, was_ready, where
from bakemesh.protocol.builder.codes import StepOutcome
from bakemesh.protocol.builder.spec.component import ComponentSpec
from bakemesh.protocol.builder.spec.model import ModuleStep
from bakemesh.protocol.builder.spec.module import ComponentRefused, component_of
from bakemesh.protocol.builder.spec.references import ReferenceFailed

END_SLACK_S = 2.0
_WORDS = {
    StopReason.CANCEL: "was cancelled",
    StopReason.SKIP: "was skipped",
    StopReason.RETRY: "is run again",
    StopReason.TIMEOUT: "timed out",
}


class ModuleRunner:
    """Runs a ModuleStep."""

    async def run(self, context: StepContext, stop: Stop) -> StepResult:
        """One attempt."""
        step, host = context.step, context.components
        assert isinstance(step, ModuleStep)
        assert host is not None
        if stop.reason is not None:
            return endings.stopped(stop.reason, "before it began")
        try:
            spec = component_of(step.xml, context.expand)
        except ReferenceFailed as error:
            return endings.failed(str(error))
        except ComponentRefused as error:
            return endings.failed(_wrong(error))
        began = context.clock()
        try:
            one, started = await host.create(
                spec, context.identity.supervisor, context.maker, again=context.again
            )
        except (NotYours, CannotRun) as error:
            return endings.failed(str(error))
        if not step.wait:
            if one.life.state is State.QUARANTINED:
                return StepResult(StepOutcome.OK, where(one))
            said = "was started" if started else "runs already as it is wanted"
            return StepResult(StepOutcome.OK, f"component {spec.name} {said}")
        # What is replaced ends first: its output is not the step's.
        watching = Watching(context, one, output=False)
        reason = await watching.until(lambda it: it.life.state is not State.STOPPING, stop)
        if reason is None:
            watching = Watching(context, one, output=True)
            reason = await watching.until(ready_or_hopeless, stop)
        if reason is not None:
            if started and reason is not StopReason.SHUTDOWN:
                await self._take_back(host, spec, reason)
                return endings.stopped(reason, f"and component {spec.name} was stopped")
            return endings.stopped(
                reason, f"after {endings.duration(context.clock() - began)} of waiting; {where(one)}"
            )
        if not was_ready(one):
            return endings.failed(where(one) + watching.note)
        took = endings.duration(context.clock() - began)
        return StepResult(StepOutcome.OK, f"{where(one)}, after {took}{watching.note}")

    async def _take_back(self, host: ComponentHost, spec: ComponentSpec, reason: StopReason) -> None:
        """What this attempt started is ended, as every step's processes are."""
        await host.ask(spec.name, StopIt(f"the step that started it {_WORDS[reason]}"))
        one = host.find(spec.name)
        if one is not None:
            try:
                async with asyncio.timeout(spec.shutdown_ms / 1000 + END_SLACK_S):
                    await one.until(lambda it: it.gone or not it.life.alive)
            except TimeoutError:
                pass  # it is being killed; the component's state says how far that is


def _wrong(error: ComponentRefused) -> str:
    """Where its spec is wrong; the values stay out: what references stand for may be pushed data."""
    places = []
    for problem in error.problems[:5]:
        attribute = f" {problem.attribute}=" if problem.attribute else ""
        places.append(f"<{problem.element or 'module'}>{attribute} in line {problem.line}")
    return "wrong once its references are put in: " + ", ".join(places)
