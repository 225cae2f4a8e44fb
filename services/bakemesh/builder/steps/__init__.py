"""The kinds of steps that a Builder runs, one file each behind `base.StepRunner`."""

from __future__ import annotations

from bakemesh.builder.steps.attach import AttachRunner
from bakemesh.builder.steps.base import StepRunner
from bakemesh.builder.steps.cli import CliRunner
from bakemesh.builder.steps.code import CodeRunner
from bakemesh.builder.steps.module import ModuleRunner
from bakemesh.builder.steps.recipe import RecipeRunner
from bakemesh.builder.steps.requestdata import RequestDataRunner
from bakemesh.protocol.builder.spec.model import (
    AttachStep,
    CliStep,
    CodeStep,
    ModuleStep,
    RecipeStep,
    RequestDataStep,
    Step,
)

_RUNNERS: dict[str, StepRunner] = {
    CliStep.KIND: CliRunner(),
    CodeStep.KIND: CodeRunner(),
    RequestDataStep.KIND: RequestDataRunner(),
    RecipeStep.KIND: RecipeRunner(),
    ModuleStep.KIND: ModuleRunner(),
    AttachStep.KIND: AttachRunner(),
}
SUPPORTED = frozenset(_RUNNERS)


class StepUnsupported(Exception):
    """Raised when a step has a kind that this Builder does not run; intake refuses such a recipe."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"<{kind}> steps are not run here; known are {', '.join(sorted(SUPPORTED))}")
        self.kind = kind


def runner_for(step: Step) -> StepRunner:
    """The runner of the step's kind; runners keep nothing between attempts. Raises StepUnsupported."""
    try:
        return _RUNNERS[step.KIND]
    except KeyError:
        raise StepUnsupported(step.KIND) from None
