"""`bakemesh bake --cohort`: one recipe followed on every member, one summary of all, one exit code.

Each member is followed as a single bake is, on a screen of its own whose lines are marked with the node's
name; with `--output-dir` its output goes byte for byte into `DIR/<node>/stdout` and `stderr`. A member that
is silent holds nobody up. Ctrl-C cancels on all of them.

Exit code, the first that applies to any member: 4 integrity error, 1 failed, 2 the recipe was refused,
5 silent, 3 cancelled; 0 where every one succeeded.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, cast

from bakemesh.cli.answers import Answers
from bakemesh.cli.exits import Exit, Stopped
from bakemesh.cli.failures import explain
from bakemesh.cli.following import Follower
from bakemesh.cli.progress import Quiet, one_line, percent
from bakemesh.cli.screen import Screen, rich_on

if TYPE_CHECKING:
    from bakemesh.protocol.builder.messages import BakeStatus
    from bakemesh.supervisor import CohortBake

LOOK_S = 0.5
_ORDER = (Exit.INTEGRITY, Exit.FAILED, Exit.USAGE, Exit.UNREACHABLE, Exit.CANCELLED)


def verdict(codes: Iterable[int]) -> int:
    """The exit code of all, out of one a member; a cohort without members has done nothing wrong."""
    found = set(codes)
    return next((code for code in _ORDER if code in found), Exit.FAILED if found - {Exit.DONE} else Exit.DONE)


class Marked(io.RawIOBase):
    """Writes whole lines to a stream, each with a mark before it; the rest of a line waits for its end."""

    def __init__(self, target: BinaryIO, mark: bytes) -> None:
        self._target, self._mark, self._rest = target, mark, b""

    def write(self, data: Any) -> int:
        """Bytes as they come."""
        *lines, self._rest = (self._rest + bytes(data)).split(b"\n")
        if lines:
            self._target.write(b"".join(self._mark + line + b"\n" for line in lines))
            self._target.flush()
        return len(data)

    def finish(self) -> None:
        """Writes what waits, with an end."""
        if self._rest:
            self.write(b"\n")

    def flush(self) -> None:
        """What is whole is written already."""


class _Stream:
    """As much of a text stream as a screen's writers use."""

    def __init__(self, raw: Any) -> None:
        self.buffer = raw

    def write(self, text: str) -> int:
        self.buffer.write(text.encode())
        return len(text)

    def flush(self) -> None:
        self.buffer.flush()

    def isatty(self) -> bool:
        return False


class MemberScreen(Screen):
    """The screen of one member: its lines are marked, its events name the node."""

    def __init__(self, screen: Screen, node: str, node_id: str, folder: Path | None) -> None:
        self._node, self._node_id, self._screen = node, node_id, screen
        self._opened: list[Any] = []
        if folder is None:
            mark = f"[{node}] ".encode()
            streams = [Marked(cast(BinaryIO, each.buffer), mark) for each in (screen.out, screen.err)]
        else:
            folder.mkdir(parents=True, exist_ok=True)
            streams = [(folder / name).open("wb") for name in ("stdout", "stderr")]  # type: ignore[misc]
        self._opened = streams
        out, err = (cast(TextIO, _Stream(each)) for each in streams)
        super().__init__(screen.machine, out, err)

    def event(self, event: str, **fields: Any) -> None:
        """See Screen."""
        self._screen.event(event, **{"node": self._node, "nodeid": self._node_id, **fields})

    def note(self, text: str) -> None:
        """See Screen; never into a file of output."""
        self._screen.note(f"[{self._node}] {text}")

    def close(self) -> None:
        """Ends what is open."""
        for each in self._opened:
            if isinstance(each, Marked):
                with contextlib.suppress(BrokenPipeError):
                    each.finish()
            else:
                each.close()


class Summary:
    """The one progress of all: a bar on a terminal, a line a change when piped, nothing for machines."""

    def __init__(self, screen: Screen, title: str, *, quiet: bool) -> None:
        self._screen, self._quiet, self._shown = screen, quiet or screen.machine, ""
        self._bar: Any = None
        if not self._quiet and rich_on(screen.err):
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                TextColumn(title, markup=False),
                BarColumn(bar_width=24),
                TaskProgressColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.description}", markup=False),
                console=Console(file=screen.err),
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._task = self._bar.add_task("", total=100)
            self._bar.start()

    def show(self, baking: CohortBake) -> None:
        """How far it is."""
        summary = baking.summary
        if self._bar is not None:
            self._bar.update(self._task, description=str(summary), completed=summary.pct)
        elif not self._quiet and str(summary) != self._shown:
            self._shown = str(summary)
            self._screen.note(f"{percent(summary.pct)} {summary}")

    def close(self) -> None:
        """Nothing more comes."""
        if self._bar is not None:
            with contextlib.suppress(BrokenPipeError):
                self._bar.stop()


class _Member(Quiet):
    """A member's progress: news go to the summary, what stays is said."""

    def __init__(self, screen: Screen, news: Any, *, quiet: bool) -> None:
        self._screen, self._news, self._quiet = screen, news, quiet

    def show(self, status: BakeStatus) -> None:
        """See Quiet."""
        self._news()

    def say(self, text: str) -> None:
        """See Quiet."""
        if not self._quiet:
            self._screen.note(one_line(text))


class CohortFollower:
    """One cohort's bakes on one screen."""

    def __init__(self, screen: Screen, answers: Answers, output: Path | None, *, quiet: bool) -> None:
        self._screen, self._answers, self._output, self._quiet = screen, answers, output, quiet
        self._followers: list[Follower] = []
        self._interrupts = 0

    def interrupt(self) -> None:
        """Ctrl-C: on every member."""
        self._interrupts += 1
        for follower in self._followers:
            follower.interrupt()

    async def follow(self, baking: CohortBake, title: str) -> int:
        """Shows it until every member that was heard of has ended; the exit code."""
        codes: dict[str, int] = {}
        for node_id, error in baking.refused.items():
            codes[node_id] = self._stopped(node_id, explain(error))
        summary = Summary(self._screen, title, quiet=self._quiet)
        with contextlib.ExitStack() as stack:
            stack.callback(summary.close)
            tasks: dict[asyncio.Task[int], str] = {}
            for node_id, bake in baking.bakes.items():
                follower = stack.enter_context(self._member(baking, bake, summary))
                tasks[asyncio.create_task(follower.follow(bake))] = node_id
            try:
                while any(not baking.bakes[node_id].waiting for node_id in tasks.values()):
                    done, _ = await asyncio.wait(tasks, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        node_id = tasks.pop(task)
                        codes[node_id] = self._ended(node_id, task)
                    summary.show(baking)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        for node_id in tasks.values():
            codes[node_id] = Exit.UNREACHABLE
            self._note(node_id, "silent: the recipe waits in its inbox")
        self._end(baking, codes)
        return verdict(codes.values())

    @contextlib.contextmanager
    def _member(self, baking: CohortBake, bake: Any, summary: Summary) -> Iterator[Follower]:
        folder = None if self._output is None else self._output / bake.node
        screen = MemberScreen(self._screen, bake.node, bake.node_id, folder)
        shown = _Member(screen, lambda: summary.show(baking), quiet=self._quiet or screen.machine)
        follower = Follower(screen, shown, self._answers)
        self._followers.append(follower)
        for _ in range(self._interrupts):
            follower.interrupt()
        try:
            yield follower
        finally:
            screen.close()

    def _ended(self, node_id: str, task: asyncio.Task[int]) -> int:
        try:
            return task.result()
        except Exception as error:  # noqa: BLE001  # the border: one member's error ends nobody else
            return self._stopped(node_id, explain(error))

    def _stopped(self, node_id: str, stopped: Stopped) -> int:
        self._note(node_id, *stopped.lines)
        return stopped.code

    def _note(self, node_id: str, *lines: str) -> None:
        if self._screen.machine:
            self._screen.event("error", nodeid=node_id, text="\n".join(lines))
        else:
            for line in lines:
                self._screen.note(f"bakemesh: node {node_id}: {line}")

    def _end(self, baking: CohortBake, codes: Mapping[str, int]) -> None:
        summary = baking.summary
        if not self._screen.machine:
            if not self._quiet:
                self._screen.note(f"cohort: {summary}")
            return
        words = ("succeeded", "failed", "cancelled", "running", "refused", "silent")
        self._screen.event(
            "summary",
            **{word: list(getattr(summary, word)) for word in words},
            codes={node_id: int(code) for node_id, code in codes.items()},
        )
