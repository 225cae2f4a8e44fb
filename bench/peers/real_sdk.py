"""The real Bittensor SDK as a peer: an interpreter of its own, made once in run/, and its children.

The peers' scripts (`real_*.py`) run there and import nothing of ours.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import common

VERSION = "10.5.0"
HERE = Path(__file__).parent
RUN = HERE.parents[1] / "run"


def interpreter() -> Path:
    """Its Python; installs the SDK where it is not there (a minute or two)."""
    folder = RUN / f"realsdk-{VERSION}"
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists() or ready.read_text() != sys.version:
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", f"bittensor=={VERSION}"]
        subprocess.run(install, check=True)
        ready.write_text(sys.version)
    return python


@asynccontextmanager
async def child(where: Path, script: str, *words: object, **environ: str) -> AsyncIterator[common.Role]:
    """One of the peers' scripts, with a home of its own; it has not said `ready` yet."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    with (where / f"{script}.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            str(interpreter()),
            "-P",
            str(HERE / script),
            *map(str, words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env={**kept, "HOME": str(where), "TMPDIR": str(where), "BT_NO_PARSE_CLI_ARGS": "true", **environ},
        )
    started = common.Role(process, script)
    try:
        yield started
    finally:
        await started.end()
