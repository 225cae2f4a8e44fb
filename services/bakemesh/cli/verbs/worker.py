"""Runs one engine worker in the foreground, for the host that listens on the socket: see
protocol/worker-v1.md. A lane host starts its workers itself; this is for trying one out.
"""

from __future__ import annotations

import argparse
import os
import sys

from bakemesh.cli.call import Call

ENGINES = ("llama", "fake")  # as bakemesh.worker.engines.NAMES: no service imports another
EXAMPLE = "  bakemesh worker --socket /run/bakemesh/synapse/workers/w1.sock --nonce 5f0c… --engine fake"


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments: those of the process."""
    parser.add_argument("--socket", required=True, metavar="PATH", help="where the host listens")
    parser.add_argument("--nonce", required=True, metavar="HEX", help="what the host knows its worker by")
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0], help="default %(default)s")


def run(call: Call) -> int:
    """Becomes the worker: same process, so that signals and the exit code are its own."""
    given = call.args
    argv = [sys.executable, "-m", "bakemesh.worker"]
    argv += [f"--socket={given.socket}", f"--nonce={given.nonce}", f"--engine={given.engine}"]
    sys.stdout.flush()
    os.execv(argv[0], argv)
