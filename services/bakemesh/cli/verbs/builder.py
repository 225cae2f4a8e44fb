"""Runs one Builder in the foreground: what compose.yaml and systemd start. It needs a bus, see `bakemesh
up`.
"""

from __future__ import annotations

import argparse
import os
import sys

from bakemesh.cli.call import Call
from bakemesh.settings import ROWS, add_flags

EXAMPLE = "  bakemesh builder --nats nats://10.0.0.5:4222 --node alpha --state /srv/bakemesh"

# What a Builder reads; the rest belongs to `up` and to the command line.
BUILDER_SETTINGS = tuple(row.key for row in ROWS if row.key not in ("listen", "join", "supervisor"))


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    add_flags(parser, BUILDER_SETTINGS)


def builder_argv(call: Call, *, nats: str | None = None) -> list[str]:
    """The command of a Builder with this call's settings; `nats` in place of the setting."""
    names = [name for name in BUILDER_SETTINGS if name != "nats"]
    bus = [f"--nats={nats}"] if nats else call.settings.as_flags(["nats"])
    config = [f"--config={call.toml_path}"] if call.toml_path else []
    return [sys.executable, "-m", "bakemesh.builder", *bus, *call.settings.as_flags(names), *config]


def run(call: Call) -> int:
    """Becomes the Builder: same process, so that signals and the exit code are its own."""
    argv = builder_argv(call)
    if call.args.json:
        argv.append("--log-format=json")
    sys.stdout.flush()
    os.execv(argv[0], argv)
