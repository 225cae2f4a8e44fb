"""How a bake's progress is shown on stderr: a bar on a terminal, lines when piped, nothing with --quiet or
--json.

The bar and a step's output share the terminal: the bar is taken away before output is written and comes
back when the output stands at the start of a line, so that no byte of it is changed.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from bakemesh.cli.screen import Screen, rich_on

if TYPE_CHECKING:
    from bakemesh.protocol.builder.messages import BakeStatus


class Quiet:
    """Shows nothing."""

    def show(self, status: BakeStatus) -> None:
        """A Status came."""

    def say(self, text: str) -> None:
        """A line that stays."""

    def before_output(self) -> None:
        """Output is about to be written."""

    def after_output(self, last: bytes) -> None:
        """Output was written; `last` is its last byte."""

    def close(self) -> None:
        """Nothing more comes."""


class Lines(Quiet):
    """A line for each Status that says something new; heartbeats say nothing new."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._shown = ""

    def show(self, status: BakeStatus) -> None:
        """See Quiet."""
        if status.kind == "interim" and status.request is None and status.pct < 0:
            return
        line = f"{percent(status.pct)} {status.summary}"
        if line != self._shown:
            self._shown = line
            self._screen.note(line)

    def say(self, text: str) -> None:
        """See Quiet."""
        self._screen.note(text)


class Bar(Quiet):
    """A live bar with the newest summary; beginnings and ends of steps stay as lines above it."""

    def __init__(self, screen: Screen, title: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
        from rich.table import Column

        self._console = Console(file=screen.err)
        self._progress = Progress(
            TextColumn("{task.fields[title]}", markup=False),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn(
                "{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")
            ),
            console=self._console,
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._progress.add_task("", total=None, title=title)
        self._on = False
        self._line_start = True
        self._place(True)

    def show(self, status: BakeStatus) -> None:
        """See Quiet."""
        known = status.pct >= 0
        self._progress.update(
            self._task,
            description=one_line(status.summary),
            total=100 if known else None,
            completed=status.pct if known else 0,
        )
        if status.kind != "interim" or status.request is not None:
            self.say(f"{percent(status.pct)} {one_line(status.summary)}")
        elif self._on:
            self._progress.refresh()

    def say(self, text: str) -> None:
        """See Quiet."""
        self._place(False)
        if not self._line_start:
            self._console.file.write("\n")
            self._line_start = True
        self._console.print(text, markup=False, highlight=False, style="dim", soft_wrap=True)
        self._place(True)

    def before_output(self) -> None:
        """See Quiet."""
        self._place(False)

    def after_output(self, last: bytes) -> None:
        """See Quiet."""
        self._line_start = last == b"\n"
        self._place(self._line_start)

    def close(self) -> None:
        """See Quiet."""
        self._place(False)

    def _place(self, on: bool) -> None:
        if on == self._on:
            return
        self._on = on
        if on:
            self._progress.start()
            self._progress.refresh()
        else:
            with contextlib.suppress(BrokenPipeError):
                self._progress.stop()


def make(screen: Screen, title: str, *, quiet: bool) -> Quiet:
    """The right one for where stderr goes."""
    if quiet or screen.machine:
        return Quiet()
    return Bar(screen, title) if rich_on(screen.err) else Lines(screen)


def percent(pct: int) -> str:
    """`[ 42%]`, or blanks where it is not applicable."""
    return f"[{pct:3}%]" if pct >= 0 else "[    ]"


def counted(count: int, what: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def one_line(text: Any) -> str:
    """Text without what would leave its line or colour the terminal."""
    return "".join(char if char.isprintable() else " " for char in str(text))
