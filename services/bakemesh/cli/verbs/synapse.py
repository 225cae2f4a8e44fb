"""Runs one synapse module in the foreground: inference for the mesh, with engine workers of its own, or with
lanes that are on the bus. As a component of a PsySpec it is `<crank service="synapse"/>` with the same names
as parameters.
"""

from __future__ import annotations

import argparse
import os
import sys

from bakemesh.cli.call import Call
from bakemesh.settings import add_flags

EXAMPLE = (
    "  bakemesh synapse --nats nats://10.0.0.5:4222 --node alpha --model chat=/models/chat.gguf --workers 2"
)

SYNAPSE_SETTINGS = ("nats", "node", "state", "creds", "mesh", "log-format", "log-level")
# As bakemesh.synapse.parameters.NAMES: no service imports another.
PARAMETERS = {
    "lanes": "local (default): workers of its own; bus: lanes that others offer; both",
    "workers": "how many workers of its own; default: one a core",
    "weights": "asis (default), or fastest: bf16 where the CPU runs that fastest",
    "engine": "llama (default), or fake: arithmetic, to try things out",
    "memory-mib": "for all models together; default: most of what the machine has",
    "max-queue-ms": "how long a request may wait before it begins",
    "telemetry": "off (default), or otlp: traces and metrics, to where OTEL_EXPORTER_OTLP_ENDPOINT says",
}


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments: those of the process."""
    add_flags(parser, SYNAPSE_SETTINGS)
    parser.add_argument("--name", metavar="NAME", help="its name on the bus; default synapse")
    for name, text in PARAMETERS.items():
        parser.add_argument(f"--{name}", metavar="VALUE", help=text)
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="ALIAS=PATH",
        help="a model to have, a file or a folder; ALIAS.KEY=VALUE: a runtime key of it (ctx_size, …)",
    )


def run(call: Call) -> int:
    """Becomes the module: same process, so that signals and the exit code are its own."""
    args = call.args
    argv = [sys.executable, "-m", "bakemesh.synapse", *call.settings.as_flags(SYNAPSE_SETTINGS)]
    if call.toml_path:
        argv.append(f"--config={call.toml_path}")
    given = {name: getattr(args, name.replace("-", "_")) for name in ("name", *PARAMETERS)}
    argv += [f"--{name}={value}" for name, value in given.items() if value is not None]
    argv += [f"--model={each}" for each in args.model]
    if args.json:
        argv.append("--log-format=json")
    sys.stdout.flush()
    os.execv(argv[0], argv)
