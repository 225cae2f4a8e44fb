"""Runs one lane host in the foreground: engine workers of this node, each offered to the modules of the mesh
as a lane. As a component of a PsySpec it is `<crank service="lanes"/>` with the same names as parameters.
"""

from __future__ import annotations

import argparse
import os
import sys

from bakemesh.cli.call import Call
from bakemesh.settings import add_flags

ENGINES = ("llama", "fake")  # as bakemesh.lanes.settings.ENGINES: no service imports another
EXAMPLE = "  bakemesh lanes --nats nats://10.0.0.5:4222 --node gamma --workers 2"

LANES_SETTINGS = ("nats", "node", "state", "creds", "mesh", "log-format", "log-level")


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments: those of the process."""
    add_flags(parser, LANES_SETTINGS)
    parser.add_argument("--name", metavar="NAME", help="its name on the bus; default lanes")
    parser.add_argument("--workers", type=int, metavar="N", help="how many lanes; default: one a core")
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0], help="default %(default)s")
    parser.add_argument(
        "--cache", metavar="DIR", help="where artifacts are kept, maybe a module's; default STATE/lanes/cache"
    )


def run(call: Call) -> int:
    """Becomes the lane host: same process, so that signals and the exit code are its own."""
    args = call.args
    argv = [sys.executable, "-m", "bakemesh.lanes", *call.settings.as_flags(LANES_SETTINGS)]
    if call.toml_path:
        argv.append(f"--config={call.toml_path}")
    given = {"name": args.name, "workers": args.workers, "engine": args.engine, "cache": args.cache}
    argv += [f"--{name}={value}" for name, value in given.items() if value is not None]
    if args.json:
        argv.append("--log-format=json")
    sys.stdout.flush()
    os.execv(argv[0], argv)
