"""The one line that a heartbeat says of a bake. Builder's words only, never a child's output."""

from __future__ import annotations

from bakemesh.builder.bake.state import State
from bakemesh.protocol.builder.lifecycle import Phase
from bakemesh.protocol.builder.spec.model import Recipe


def describe(recipe: Recipe, state: State, *, store_full: bool = False) -> str:
    """What the bake is doing right now."""
    if store_full:
        return "output store full: waiting for room"
    if state.ending is not None:
        return "ending: its output is being stored"
    if state.phase is Phase.QUEUED:
        return "queued: as many bakes as may run are running"
    step = (
        f"step {state.cursor} ({recipe.steps[state.cursor].name})"
        if state.cursor < len(recipe.steps)
        else "the end"
    )
    if state.phase is Phase.PAUSED:
        return f"paused before {step}"
    if state.phase is Phase.HELD:
        return f"held: {step} failed; RetryStep or SkipStep goes on"
    if state.retry_waiting:
        return f"{step} failed and will be run again"
    if state.child_paused:
        return f"{step}: its child is paused"
    pause = ", will pause after it" if state.rest else ""
    waits = state.running and recipe.steps[state.cursor].KIND == "requestdata"
    return f"{step} {'waits for data' if waits else 'is running'}{pause}"
