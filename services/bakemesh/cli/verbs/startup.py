"""Runs one Startup Supervisor in the foreground: what compose.yaml and systemd start beside a Builder. It
brings the mesh up from PSYSPEC, stays, and takes changed ones (`bakemesh apply`). Within one boot of the node
one that was applied stands over restarts; PSYSPEC counts again at the next boot, or once it has changed.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from bakemesh.cli.call import Call
from bakemesh.settings import add_flags

EXAMPLE = "  bakemesh startup cluster.xml --nats nats://10.0.0.5:4222 --node alpha --state /srv/bakemesh"

STARTUP_SETTINGS = ("nats", "node", "state", "creds", "mesh", "operators", "log-format", "log-level")


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument(
        "psyspec", nargs="?", metavar="PSYSPEC", help="the file; without one it waits for one"
    )
    add_flags(parser, STARTUP_SETTINGS)


def startup_argv(
    call: Call, psyspec: Path | None, *, nats: str | None = None, creds: Path | None = None
) -> list[str]:
    """The command of a Startup Supervisor with this call's settings; `nats`, `creds` in place of theirs."""
    names = [name for name in STARTUP_SETTINGS if name not in ("nats", "creds")]
    settings = call.settings
    bus = [f"--nats={nats}"] if nats else settings.as_flags(["nats"])
    key = [f"--creds={creds}"] if creds else settings.as_flags(["creds"])
    config = [f"--config={call.toml_path}"] if call.toml_path else []
    spec = [str(psyspec)] if psyspec else []
    return [sys.executable, "-m", "bakemesh.startup", *bus, *key, *settings.as_flags(names), *config, *spec]


def run(call: Call) -> int:
    """Becomes the Startup Supervisor: same process, so that signals and the exit code are its own."""
    psyspec = Path(call.args.psyspec) if call.args.psyspec is not None else None
    argv = startup_argv(call, psyspec)
    if call.args.json:
        argv.append("--log-format=json")
    sys.stdout.flush()
    os.execv(argv[0], argv)
