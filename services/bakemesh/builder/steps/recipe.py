"""`<recipe>`: an inner recipe is another Builder's bake; this step follows it to its end
(`builder.children`)."""

from __future__ import annotations

from bakemesh.builder.steps import endings
from bakemesh.builder.steps.base import StepContext, StepResult, Stop


class RecipeRunner:
    """Runs a RecipeStep."""

    async def run(self, context: StepContext, stop: Stop) -> StepResult:
        """One attempt is one child, with a RecipeID of its own."""
        if stop.reason is not None:
            return endings.stopped(stop.reason, "before it began")
        if context.children is None:
            return endings.failed("this Builder sends no recipes to other nodes")
        return await context.children.follow(context, stop)
