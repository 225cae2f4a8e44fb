"""`<cli>`: runs a program, without a shell unless the recipe asks for one."""

from __future__ import annotations

from bakemesh.builder.steps.base import StepContext, StepResult, Stop
from bakemesh.builder.steps.process import Launch, ProcessRun
from bakemesh.protocol.builder.spec.model import CliStep

SHELL = "/bin/sh"


class CliRunner:
    """Runs a CliStep. With `shell` its one text goes to `/bin/sh -c`; else each argument arrives as it is."""

    async def run(self, context: StepContext, stop: Stop) -> StepResult:
        """One attempt, to its end."""
        step = context.step
        assert isinstance(step, CliStep)

        def launch() -> Launch:
            argv = [context.expand(argument) for argument in step.argv]
            if step.shell:
                return Launch([SHELL, "-c", *argv], SHELL)
            return Launch(argv, step.argv[0])

        return await ProcessRun(context, step, launch).run(stop)
