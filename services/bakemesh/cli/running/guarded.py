"""This side of the guard: starts it, tells it of every start and end."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Self

from bakemesh.cli.running import guard


class Guard:
    """Ends watched processes if this process dies. `environ` is what every started process must be given."""

    def __init__(self, last: Sequence[str] = ()) -> None:
        """`last`: a command that the guard runs at its end where this process died."""
        self._last = list(last)
        self.token = secrets.token_hex(16)
        self.environ = {**os.environ, guard.TOKEN: self.token}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Starts it."""
        # Children of others (the embedded server's) inherit the token from here.
        os.environ[guard.TOKEN] = self.token
        environ = {key: value for key, value in self.environ.items() if key != guard.TOKEN}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(guard.__file__)), self.token, *self._last],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=environ,
        )
        return self

    def watch(self, pid: int, grace_s: float = guard.GRACE_S) -> None:
        """Tells of a start. `grace_s`: between TERM and KILL where this process died."""
        self._tell(f"watch {pid} {grace_s:g}\n")

    def forget(self, pid: int) -> None:
        """Tells of an end."""
        self._tell(f"forget {pid}\n")

    def _tell(self, line: str) -> None:
        assert self._process is not None
        stdin: IO[bytes] | None = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(line.encode())
            stdin.flush()
        except BrokenPipeError:
            return  # somebody killed the guard; `up` still ends its own on every ordinary way out

    def __exit__(self, *_: object) -> None:
        """Lets it go; it ends what is still watched, and itself."""
        assert self._process is not None
        process = self._process
        self._tell("done\n")
        if process.stdin is not None:
            try:
                process.stdin.close()
            except BrokenPipeError:
                process.stdin = None
        process.wait()
        os.environ.pop(guard.TOKEN, None)
