"""The words in which an attempt's end is told: pure, the Builder's own, never a child's output.

Where a text comes from the recipe it is shown as written, references not put in: what they stand for may be
pushed data or a parameter, and a Status carries neither.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection

from bakemesh.builder.steps.base import StepResult, StopReason
from bakemesh.processes import Exit, Refusal, SpawnRefused, Swept
from bakemesh.protocol.builder.codes import Code, StepOutcome

_SHOWN = 80
_WHY = {
    StopReason.CANCEL: "cancelled",
    StopReason.SKIP: "killed by SkipStep",
    StopReason.RETRY: "killed by RetryStep",
    StopReason.TIMEOUT: "timed out",
    StopReason.SHUTDOWN: "killed, the Builder stops",
}
_LOST = "the process that minds this step's processes was killed, and they with it"
_REFUSED = {
    Refusal.INTERPRETER_MISSING: "the file is there, but the interpreter it names is not "
    "(a script's first line '#!…', or the loader of a binary)",
    Refusal.NOT_EXECUTABLE: "not an executable file for this user",
    Refusal.BAD_FORMAT: "neither a binary for this machine nor a script that begins with '#!'",
    Refusal.BAD_CWD: "its working folder cannot be entered",
    Refusal.TOO_LARGE: "an argument or variable is larger than the 128 KiB that the system takes, or all are "
    "together (see `ulimit -s`)",
    Refusal.BAD_ARGUMENT: "an argument or variable holds a NUL character, or a variable's name an '='",
    Refusal.NO_RESOURCES: "no further process or file is to be had here",
}


def failed(summary: str) -> StepResult:
    """A failure of the Builder's side: no process ran."""
    return StepResult(StepOutcome.FAILED, summary)


def stopped(reason: StopReason, summary: str | None = None, exitcode: int | None = None) -> StepResult:
    """An attempt that `Stop` ended. `summary` follows the reason."""
    text = _WHY[reason] + (f" {summary}" if summary else "")
    if reason is StopReason.TIMEOUT:
        return StepResult(StepOutcome.TIMEOUT, text, exitcode, Code.TIMEOUT)
    return StepResult(StepOutcome.CANCELLED, text, exitcode)


def refused(program: str, error: SpawnRefused) -> StepResult:
    """The program did not start. `program` as the recipe has it."""
    shown = repr(program if len(program) <= _SHOWN else program[:_SHOWN] + "…")
    if error.what is Refusal.KEEPER_LOST:
        return StepResult(StepOutcome.FAILED, f"{shown} was not started: {_LOST}", lost=True)
    return failed(f"{shown} cannot be started: {why_refused(program, error)}")


def why_refused(program: str, error: SpawnRefused) -> str:
    """Why it did not start; of the program nothing is said."""
    if error.what is Refusal.PROGRAM_MISSING:
        return "there is no such file" if "/" in program else "not found in PATH"
    return _REFUSED.get(error.what) or (os.strerror(error.errno) if error.errno else "the system refused it")


def ended(
    found: Exit, swept: Swept, seconds: float, success: Collection[int], *, notes: Collection[str] = ()
) -> StepResult:
    """The main process ended by itself."""
    if found.lost:
        head = f"{_LOST}, after {duration(seconds)}"
        return StepResult(StepOutcome.FAILED, "; ".join([head, *_leftovers(swept), *notes]), lost=True)
    code = exitcode(found)
    outcome = StepOutcome.OK if code in success else StepOutcome.FAILED
    head = f"{_how(found)} after {duration(seconds)}, {peak(found, swept)}"
    return StepResult(outcome, "; ".join([head, *_leftovers(swept), *notes]), code)


def killed(
    reason: StopReason, found: Exit | None, swept: Swept, seconds: float, *, notes: Collection[str] = ()
) -> StepResult:
    """The tree was killed for `reason`. `found`: how the main process ended, None where it did not."""
    text = "; ".join([f"after {duration(seconds)}, {_alive(swept) or 'no survivors'}", *notes])
    return stopped(reason, text, None if found is None or found.lost else exitcode(found))


def exitcode(found: Exit) -> int | None:
    """The exit code, after a signal minus the signal."""
    return found.code if found.signal is None else -found.signal


def duration(seconds: float) -> str:
    """Three digits are enough: `0.12 s`, `12.3 s`, `3 min 4 s`, `2 h 5 min`."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def peak(found: Exit, swept: Swept) -> str:
    """The largest single process of the step."""
    return f"peak memory {max(found.max_rss_kib, swept.max_rss_kib) / 1024:.0f} MiB"


def _how(found: Exit) -> str:
    if found.signal is None:
        return f"exit code {found.code}"
    try:
        name = signal.Signals(found.signal).name
    except ValueError:
        name = "signal"
    return f"killed by {name} ({found.signal})"


def _leftovers(swept: Swept) -> list[str]:
    said = []
    if swept.killed:
        said.append(f"{swept.killed} left-over process{'es were' if swept.killed > 1 else ' was'} killed")
    if alive := _alive(swept):
        said.append(alive)
    return said


def _alive(swept: Swept) -> str | None:
    """Who did not die: pid, state, kernel function. A process chooses its own name, so that is left out."""
    if not swept.survivors:
        return None
    shown = [
        f"pid {survivor.pid} (state {survivor.state}{f' in {survivor.wchan}' if survivor.wchan else ''})"
        for survivor in swept.survivors[:5]
    ]
    more = f" and {len(swept.survivors) - 5} more" if len(swept.survivors) > 5 else ""
    return f"not dead yet: {', '.join(shown)}{more}"
