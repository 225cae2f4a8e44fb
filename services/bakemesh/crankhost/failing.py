"""How a crank's failure is told: a line and its traceback, without the host's own frames. Pure."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from types import TracebackType

from bakemesh.protocol.builder.messages import clip
from bakemesh.protocol.builder.node import TRACEBACK_BYTES


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a component failed: one line, and where."""

    summary: str
    trace: str


def failure_of(error: BaseException, file: str, doing: str = "") -> Failure:
    """The failure that `error` is. Frames before the first one in `file` are left out; the traceback's end
    is kept, TRACEBACK_BYTES of it.
    """
    shown = error.with_traceback(_from(file, error.__traceback__))
    trace = "".join(traceback.format_exception(shown)).encode("utf-8", "replace")
    what = "".join(traceback.format_exception_only(error)).strip().rpartition("\n")[2]
    return Failure(
        clip(f"{doing}{_line(error, file)}{_worded(error) or what}"),
        trace[-TRACEBACK_BYTES:].decode("utf-8", "ignore"),
    )


def _worded(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it called sys.exit({error.code!r}); return from the function to end well"
    if isinstance(error, KeyboardInterrupt):
        return "KeyboardInterrupt was raised in it"
    return ""


def _line(error: BaseException, file: str) -> str:
    """`line 7: ` of the deepest frame in `file`."""
    if isinstance(error, SyntaxError) and error.filename == file and error.lineno:
        return f"line {error.lineno}: "
    lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == file]
    return f"line {lines[-1]}: " if lines else ""


def _from(file: str, trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the first frame in `file` on; the whole one where it has none."""
    here = trace
    while here is not None and here.tb_frame.f_code.co_filename != file:
        here = here.tb_next
    return here if here is not None else trace
