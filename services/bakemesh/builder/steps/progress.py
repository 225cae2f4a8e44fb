"""A step's own percent, found on the lines of its output by the recipe's `progress` expression.

Guarantees: bounded memory and bounded work, however much the child prints: of a flood only the latest lines
are looked at, lines longer than LINE are no progress lines, and an expression that runs away is switched
off. Only a number from 0 to 100 ever leaves this room, never a text. `\\r` ends a line too: most programs
draw progress so.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

from bakemesh.builder.steps.runaway import RunsAway, limited

LINE = 1024
WINDOW = 65536
SEARCH_S = 0.05
REPORT_S = 0.5
_ENDS = re.compile(rb"[\r\n]+")


class ProgressLines:
    """The latest percent in one stream. Pure, but for the CPU time that a search may take."""

    def __init__(self, expression: re.Pattern[str]) -> None:
        self._expression = expression
        self._unseen = bytearray()
        self._cut = False  # the first unseen line lost its begin
        self.ran_away = False

    def feed(self, data: bytes) -> None:
        """Takes output as it comes; keeps the last WINDOW bytes of it."""
        if self.ran_away:
            return
        self._unseen += data[-WINDOW:]
        if len(self._unseen) > WINDOW or len(data) > WINDOW:
            del self._unseen[: max(0, len(self._unseen) - WINDOW)]
            self._cut = True

    def look(self) -> int | None:
        """The percent on the latest whole line that has one, among the lines not looked at before."""
        *lines, rest = _ENDS.split(bytes(self._unseen))
        if lines and self._cut:
            del lines[0]
            self._cut = False
        self._unseen = bytearray(rest)
        try:
            with limited(SEARCH_S):
                for line in reversed(lines):
                    if (percent := self._percent(line)) is not None:
                        return percent
        except RunsAway:
            self.ran_away = True
            self._unseen.clear()
        return None

    def _percent(self, line: bytes) -> int | None:
        if not line or len(line) > LINE:
            return None
        found = self._expression.search(line.decode("utf-8", "replace"))
        if found is None or found.re.groups < 1 or found[1] is None:
            return None
        try:
            value = float(found[1].strip().removesuffix("%"))
        except ValueError:
            return None
        return int(value) if 0 <= value <= 100 else None


class ProgressReporter:
    """Reports what ProgressLines finds, at most every REPORT_S, the last finding always."""

    def __init__(self, expression: str, report: Callable[[int | None, str | None], Awaitable[None]]) -> None:
        """Raises re.error where `expression` is none."""
        self._expression = re.compile(expression)
        self._report = report
        self._streams: dict[str, ProgressLines] = {}
        self._fed = asyncio.Event()

    def feed(self, stream: str, data: bytes) -> None:
        """Takes output; costs a copy, never a search."""
        lines = self._streams.get(stream)
        if lines is None:
            lines = self._streams[stream] = ProgressLines(self._expression)
        lines.feed(data)
        self._fed.set()

    @property
    def ran_away(self) -> bool:
        """Whether the expression was switched off because it took too long."""
        return any(lines.ran_away for lines in self._streams.values())

    async def run(self) -> None:
        """Reports until cancelled."""
        last: int | None = None
        while True:
            await self._fed.wait()
            self._fed.clear()
            found = [percent for lines in self._streams.values() if (percent := lines.look()) is not None]
            if found and found[-1] != last:
                last = found[-1]
                await self._report(last, None)
            await asyncio.sleep(REPORT_S)
