"""`<code>`: runs a snippet in a fresh interpreter process, as the script it would be in the bake's folder.

The source is put into a file of its own (an argument holds 128 KiB at most and is everybody's to read in the
process list), in a hidden folder, so that it shadows no module and no file of the bake. A Python snippet
behaves as a script that lies in its working folder: it imports from there, is `__main__`, has `__file__`,
and a traceback shows its own lines only.
"""

from __future__ import annotations

import os
import sys

from bakemesh.builder.steps.base import StepContext, StepResult, Stop
from bakemesh.builder.steps.paths import PathRefused, inside, place, reason_of
from bakemesh.builder.steps.process import Launch, ProcessRun
from bakemesh.protocol.builder.spec.model import CodeStep

FOLDER = ".snippets"
_SUFFIX = {"python": ".py", "sh": ".sh"}

# `-c` puts the working folder in front of sys.path, as a script there would have it. What a failing snippet
# shows begins with its own frame.
_PYTHON = """\
import sys
del sys.argv[0]
__file__ = sys.argv[0]
sys.excepthook = lambda kind, error, trace, shown=sys.__excepthook__: shown(
    kind, error.with_traceback(trace and trace.tb_next), trace and trace.tb_next)
del sys
exec(compile(open(__file__, "rb").read(), __file__, "exec", dont_inherit=True))
"""


class CodeRunner:
    """Runs a CodeStep. The source is taken as it is: references are not put into code."""

    async def run(self, context: StepContext, stop: Stop) -> StepResult:
        """One attempt, to its end."""
        step = context.step
        assert isinstance(step, CodeStep)

        def launch() -> Launch:
            path = _write(context, step)
            if step.language == "sh":
                return Launch(["/bin/sh", path], "/bin/sh")
            interpreter = sys.executable or "python3"
            return Launch([interpreter, "-c", _PYTHON, path], interpreter)

        return await ProcessRun(context, step, launch).run(stop)


def _write(context: StepContext, step: CodeStep) -> str:
    """The source as a file; a new attempt writes it anew. Raises PathRefused."""
    name = f"{step.index}-{step.name}{_SUFFIX[step.language]}"
    folder = inside(context.folder, FOLDER, written=FOLDER)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise PathRefused(FOLDER, reason_of(error)) from error
    place(context.folder, f"{FOLDER}/{name}", step.source.encode(), written=f"{FOLDER}/{name}")
    return os.fspath(folder / name)
