"""What `bake --data` and `--data-dir` answer a `<requestdata>` step with."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from bakemesh.cli.exits import usage


class Answers:
    """`--data NAME=FILE` answers that request, `--data FILE` (or `-`, stdin) any, `--data-dir DIR` by file
    name.
    """

    def __init__(self, data: Sequence[str], folder: str | None) -> None:
        self._named: dict[str, str] = {}
        self._any: str | None = None
        for given in data:
            name, equals, file = given.partition("=")
            if equals and not Path(given).exists():
                self._named[name] = file
            elif self._any is not None:
                raise usage(f"--data {given}: a second file for any request; give --data NAME=FILE for each")
            else:
                self._any = given
        self._folder = Path(folder) if folder else None
        self._stdin: bytes | None = None
        self._check()

    def _check(self) -> None:
        """Missing files are told before anything is sent."""
        for file in [*self._named.values(), self._any]:
            if file not in (None, "-") and not Path(str(file)).is_file():
                raise usage(f"--data {file}: no such file")
        if self._folder is not None and not self._folder.is_dir():
            raise usage(f"--data-dir {self._folder}: no such folder")

    async def find(self, request: str) -> bytes | None:
        """The bytes for a request, None where nothing answers it."""
        return await asyncio.to_thread(self._find, request)

    def _find(self, request: str) -> bytes | None:
        file = self._named.get(request)
        if file is None and self._folder is not None and (self._folder / request).is_file():
            return (self._folder / request).read_bytes()
        file = file or self._any
        if file is None:
            return None
        if file != "-":
            return Path(file).read_bytes()
        if self._stdin is None:
            self._stdin = sys.stdin.buffer.read()
        return self._stdin
