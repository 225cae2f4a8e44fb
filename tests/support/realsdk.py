"""The real Bittensor SDK, in an interpreter of its own and in children of the test.

    sdk = real_sdk()                             makes the interpreter once, in run/ of the repository
    async with real_dendrite(sdk, home) as theirs:
        found = await theirs.call("Echo", port, text="a")
    async with real_axon(sdk, home) as port: …

Where it cannot be installed the tests are skipped; with BAKEMESH_REALSDK=required they fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

import pytest

from support.recorded import ALICE

VERSION = "10.5.0"
RUN = Path(__file__).parents[2] / "run"
CHILD = Path(__file__).with_name("realsdk_child.py")
MARK = b"@@ "
INSTALL_S = 900
START_S = 60
ANSWER_S = 60
REQUIRED = os.environ.get("BAKEMESH_REALSDK") == "required"


@lru_cache(maxsize=1)
def real_sdk() -> Path:
    """The interpreter that has it. Skips, or fails where it is required."""
    folder = RUN / f"realsdk-{VERSION}"
    python, ready = folder / "bin" / "python", folder / "ready"
    RUN.mkdir(exist_ok=True)
    with (RUN / "realsdk.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes of one test run
        if ready.exists() and ready.read_text() == sys.version:
            return python
        shutil.rmtree(folder, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(folder)])
        install = [str(python), "-m", "pip", "install", "--quiet", f"--cache-dir={RUN / 'pip-cache'}"]
        _run([*install, f"bittensor=={VERSION}"])
        ready.write_text(sys.version)
    return python


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_S)
    except subprocess.CalledProcessError as error:
        _missing(f"{' '.join(command)}: {error.stderr.strip()[-2000:]}")
    except (OSError, subprocess.TimeoutExpired) as error:
        _missing(str(error))


def _missing(why: str) -> NoReturn:
    told = f"bittensor {VERSION} cannot be installed: {why}"
    if REQUIRED:
        pytest.fail(told)
    pytest.skip(told)


class Child:
    """A process of the real SDK; its log is `log`."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process, self.log = process, log

    async def heard(self, within: float) -> Any:
        """The next line that is meant for the test."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(within):
                while line := await self._process.stdout.readline():
                    if line.startswith(MARK):
                        return json.loads(line.removeprefix(MARK))
        except TimeoutError:
            raise AssertionError(f"the real SDK said nothing within {within} s\n{self._told()}") from None
        raise AssertionError(f"the real SDK's process ended\n{self._told()}")

    async def call(
        self,
        kind: str,
        port: int,
        *,
        hotkey: str = ALICE.address,
        how: dict[str, Any] | None = None,
        **fields: Any,
    ) -> Any:
        """What its dendrite made of a call. `how`: timeout, forged, times, array and dtype."""
        assert self._process.stdin is not None
        asked = {"kind": kind, "port": port, "hotkey": hotkey, "fields": fields, **(how or {})}
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        await self._process.stdin.drain()
        return await self.heard(ANSWER_S)

    def _told(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]


@asynccontextmanager
async def _child(python: Path, home: Path, *words: str) -> AsyncIterator[Child]:
    home.mkdir(exist_ok=True)
    log = home / f"{words[0]}.log"
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            str(python),
            "-P",  # its neighbours here have names of packages
            str(CHILD),
            *words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**kept, "HOME": str(home), "TMPDIR": str(home)},
            cwd=home,
            limit=1 << 26,
        )
    try:
        child = Child(process, log)
        assert await child.heard(START_S) == "ready"
        yield child
    finally:
        assert process.stdin is not None
        process.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(10):
                await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()


@asynccontextmanager
async def real_dendrite(python: Path, home: Path) -> AsyncIterator[Child]:
    """Its dendrite, with //Bob's key."""
    async with _child(python, home, "dendrite") as child:
        yield child


@asynccontextmanager
async def real_axon(python: Path, home: Path) -> AsyncIterator[int]:
    """The port of its axon, with //Alice's key."""
    with socket.socket() as free:  # it is told its port, and takes no 0
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with _child(python, home, "axon", str(port)):
        yield port
