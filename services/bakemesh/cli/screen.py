"""What is printed, for people and for machines.

`--json`: one JSON document, or one JSON line an event, on stdout. Otherwise tables, with rich on a terminal
and as plain, tab-free columns when piped, when rich is missing or `NO_COLOR` is set. Errors are single
lines on stderr.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO


class Screen:
    """Where a verb prints. `machine`: JSON was asked for."""

    def __init__(self, machine: bool = False, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.machine = machine
        self.out = sys.stdout if out is None else out
        self.err = sys.stderr if err is None else err

    def document(self, value: Any) -> None:
        """One JSON document."""
        print(json.dumps(value, ensure_ascii=False, indent=2, default=str), file=self.out, flush=True)

    def event(self, event: str, **fields: Any) -> None:
        """One JSON line: `event` first, absent fields left out."""
        found = {"event": event, **{key: value for key, value in fields.items() if value is not None}}
        print(json.dumps(found, ensure_ascii=False, default=str), file=self.out, flush=True)

    def say(self, text: str) -> None:
        """A line for people on stdout."""
        print(text, file=self.out, flush=True)

    def note(self, text: str) -> None:
        """A line for people on stderr: progress, warnings."""
        print(text, file=self.err, flush=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str) -> None:
        """A table; `empty` where there is no row."""
        if not rows:
            self.say(empty)
            return
        texts = [[_cell(value) for value in row] for row in rows]
        if rich_on(self.out):
            self._rich_table(columns, texts)
            return
        widths = [max(len(text) for text in column) for column in zip(columns, *texts, strict=True)]
        for line in ([name.upper() for name in columns], *texts):
            self.say("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())

    def _rich_table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name in columns:
            table.add_column(name, overflow="fold")
        for row in rows:
            table.add_row(*[Text(text, style=_COLOURS.get(text, "")) for text in row])
        Console(file=self.out).print(table)


_COLOURS: Mapping[str, str] = {
    "ok": "green",
    "succeeded": "green",
    "running": "cyan",
    "ready": "green",
    "failed": "red",
    "missing": "red",
    "cancelled": "yellow",
    "waiting": "yellow",
    "paused": "yellow",
    "held": "yellow",
    "warning": "yellow",
}


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return "".join(char if char.isprintable() else "?" for char in text)


def rich_on(stream: TextIO) -> bool:
    """Whether rich may draw on this stream: a terminal that is not dumb, no `NO_COLOR`, rich installed."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    try:
        if not stream.isatty():
            return False
        import rich  # noqa: F401
    except (ImportError, ValueError):
        return False
    return True
