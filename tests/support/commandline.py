"""The command line as a user runs it: a process of its own; the environment holds nothing of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
    *args: str, home: Path, stdin: bytes | None = None, **more: str
) -> subprocess.CompletedProcess[bytes]:
    """Runs a command to its end."""
    return subprocess.run(
        [*PROGRAM, *args],
        input=stdin or b"",
        capture_output=True,
        timeout=TIMEOUT_S,
        env=environment(home, **more),
        cwd=home,
        check=False,
    )
