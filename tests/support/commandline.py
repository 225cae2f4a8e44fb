"""The command line as a user runs it: a process of its own, in an environment that holds nothing of ours."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

PROGRAM = [sys.executable, "-m", "bakemesh.cli"]
TIMEOUT_S = 60


def environment(home: Path, **more: str) -> dict[str, str]:
    """An environment without BAKEMESH_… variables, whose home and state are in `home`."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("BAKEMESH_", "_BAKEMESH_"))
    }
    return (
        kept | {"HOME": str(home), "XDG_CONFIG_HOME": str(home), "BAKEMESH_STATE": str(home / "state")} | more
    )


def bakemesh(
    *args: str, home: Path, stdin: bytes | None = None, timeout: float = TIMEOUT_S, **more: str
) -> subprocess.CompletedProcess[bytes]:
    """Runs a command to its end."""
    return subprocess.run(
        [*PROGRAM, *args],
        input=stdin or b"",
        capture_output=True,
        timeout=timeout,
        env=environment(home, **more),
        cwd=home,
        check=False,
    )


class Up:
    """A running `bakemesh up --json`. `events` holds what it told so far."""

    def __init__(self, home: Path, *args: str) -> None:
        self.home = home
        self.events: list[dict[str, Any]] = []
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self.log = home / "up.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*PROGRAM, "up", "--json", *args],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment(home),
                cwd=home,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def until(self, event: str, **fields: object) -> dict[str, Any]:
        """The next event of that name with those fields. Fails where `up` ends before, or in time."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {event} {fields}: {self.events}\n{self.said()}") from None
            assert line is not None, f"up ended before {event} {fields}: {self.events}\n{self.said()}"
            self.events.append(json.loads(line))
            if self.events[-1].items() >= {"event": event, **fields}.items():
                return self.events[-1]

    def said(self) -> str:
        """What it and its components wrote to stderr."""
        return self.log.read_text(errors="replace")

    def processes(self) -> list[psutil.Process]:
        """Itself and everything below it."""
        itself = psutil.Process(self.process.pid)
        return [itself, *itself.children(recursive=True)]

    def stop(self) -> int:
        """Ctrl-C; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(TIMEOUT_S)
        finally:
            self.process.kill()
            self._reader.join()
            if self.process.stdout is not None:
                self.process.stdout.close()


@contextlib.contextmanager
def running_up(home: Path, *args: str) -> Iterator[Up]:
    """`up` on a free port, ready; stopped afterwards."""
    up = Up(home, "--node", "alpha", *(args or ("--listen", "127.0.0.1:0")))
    try:
        up.until("up")
        yield up
    finally:
        up.stop()
