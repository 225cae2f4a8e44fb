"""What `up` runs: the small interface of a component, and the one that is a process and says `ready`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from bakemesh.cli.running.guard import GRACE_S
from bakemesh.cli.running.guarded import Guard

READY = b"ready "
STOP_GRACE_S = 15.0
LAST_WORDS_S = 0.25
Heard = Callable[[str, dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Ready:
    """A component said that it is ready: `text` for people, `facts` for machines."""

    text: str
    facts: dict[str, Any] = field(default_factory=dict)


class Died(Exception):
    """Raised when a component ends before it said that it is ready; `code` is its exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"ended with exit code {code} before it was ready")
        self.code = code


class Component(Protocol):
    """Something that runs. After `start` it is ready; `ended` waits for its end; `stop` and `kill` bring it
    about.
    """

    name: str

    async def start(self) -> Ready:
        """Starts it and returns when it said that it is ready. Raises Died."""

    async def ended(self) -> int:
        """Waits for its end and returns its exit code, minus the signal after one."""

    async def stop(self) -> bool:
        """An ordered end, then a forced one; False where it does not run."""

    async def kill(self) -> None:
        """A forced end, at once."""


class ProcessComponent:
    """A process that writes `ready {json}` to stdout. Its logs go where ours go, to stderr.

    `heard`: called with each further line of that form, a word and an object. `grace_s`: for its ordered
    end; `guard_s`: where this process died.
    """

    def __init__(
        self,
        name: str,
        command: Callable[[], Sequence[str]],
        describe: Callable[[dict[str, Any]], str],
        guard: Guard,
        *,
        heard: Heard | None = None,
        grace_s: float = STOP_GRACE_S,
        guard_s: float = GRACE_S,
    ) -> None:
        self.name = name
        self._command, self._describe, self._guard = command, describe, guard
        self._heard, self._grace_s, self._guard_s = heard, grace_s, guard_s
        self._process: asyncio.subprocess.Process | None = None
        self._rest: asyncio.Task[None] | None = None

    async def start(self) -> Ready:
        """See Component."""
        process = await asyncio.create_subprocess_exec(
            *self._command(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            env=self._guard.environ,
            start_new_session=True,  # Ctrl-C is ours to pass on, in order
        )
        self._guard.watch(process.pid, self._guard_s)
        self._process = process
        assert process.stdout is not None
        async for line in process.stdout:
            if line.startswith(READY):
                facts = _facts(line)
                self._rest = asyncio.create_task(_pass_on(process.stdout, self._heard))
                return Ready(self._describe(facts), facts)
            _to_stderr(line)
        raise Died(await self.ended())

    async def ended(self) -> int:
        """See Component."""
        assert self._process is not None
        code = await self._process.wait()
        self._guard.forget(self._process.pid)
        rest, self._rest = self._rest, None
        if rest is not None:
            # What it said last is in the pipe; a process that it left behind may hold that open.
            await asyncio.wait({rest}, timeout=LAST_WORDS_S)
            rest.cancel()
        return code

    async def stop(self) -> bool:
        """See Component."""
        if self._process is None or self._process.returncode is not None:
            return False
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(self._grace_s):
                await self.ended()
        except TimeoutError:
            await self.kill()
        return True

    async def kill(self) -> None:
        """See Component."""
        if self._process is not None and self._process.returncode is None:
            self._signal(signal.SIGKILL)
            await self.ended()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)


def _facts(line: bytes) -> dict[str, Any]:
    return _event(line)[1] or {}


def _event(line: bytes) -> tuple[str, dict[str, Any] | None]:
    """The word and the object of `word {json}`; None where it is no such line."""
    word, _, text = line.partition(b" ")
    try:
        found = json.loads(text)
        return word.decode(), found if isinstance(found, dict) else None
    except ValueError:
        return "", None


async def _pass_on(stream: asyncio.StreamReader, heard: Heard | None) -> None:
    async for line in stream:
        word, facts = _event(line) if heard else ("", None)
        if heard is None or facts is None:
            _to_stderr(line)
        else:
            heard(word, facts)


def _to_stderr(line: bytes) -> None:
    sys.stderr.buffer.write(line)
    sys.stderr.buffer.flush()
