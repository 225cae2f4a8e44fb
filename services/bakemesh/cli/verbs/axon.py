"""Runs one gateway in the foreground: synapses of your own, and those of the mesh, over signed HTTP, with
OpenAI-style routes beside them. As a component of a PsySpec it is `<crank service="axon"/>` with the same
names as parameters. Without --nats it serves FILE.py alone and needs no mesh.
"""

from __future__ import annotations

import argparse
import os
import sys

from bakemesh.cli.call import Call
from bakemesh.cli.extras import EDGE, want
from bakemesh.settings import Origin, add_flags

EXAMPLE = """\
  bakemesh hotkey new axon.json
  bakemesh axon echo.py --hotkey axon.json
  bakemesh axon --nats nats://10.0.0.5:4222 --hotkey axon.json --bind 0.0.0.0:8091"""

AXON_SETTINGS = ("nats", "node", "state", "creds", "mesh", "log-format", "log-level")
# As bakemesh.axon.parameters.ROWS: no service imports another.
PARAMETERS = {
    "hotkey": "its key file (0600)",
    "wallet": "instead of hotkey: a wallet of the SDK",
    "wallet-hotkey": "the hotkey in it; default: default",
    "wallets": "where wallets are; default ~/.bittensor/wallets",
    "bind": "HOST or HOST:PORT; default 127.0.0.1:8091; port 0: any free one",
    "tls-cert": "PEM file: the server speaks TLS",
    "tls-key": "PEM file of its key",
    "deny": "a file of addresses, networks and hotkeys that are not served, one a line",
    "api-keys": "the key file of the OpenAI-style routes; default STATE/axon/api-keys",
    "open": "yes: those routes need no key, on 127.0.0.1 alone; default no",
    "embed-model": "alias for embeddings; default: the first of the mesh",
    "rerank-model": "alias for rerankings",
    "chat-model": "alias for text",
    "nonce-window-ms": "how old a nonce may be; default 10000",
    "nonce-ahead-ms": "how far ahead; default 2000",
    "max-header": "bytes of a header block; default 16KiB",
    "max-body": "bytes of a body; default 16MiB",
    "max-connections": "default 4096",
    "max-requests": "at once, of all; default 512",
    "max-unverified": "of these, not verified before their body is read; default 64",
    "hotkey-requests": "at once, of one hotkey; default 64",
    "hotkey-rate": "a second, of one hotkey; 0: no limit; default 200",
    "max-hotkeys": "that are remembered; default 65536",
    "max-nonces": "that are remembered; default 500000",
    "request-ms": "the most that a request may take; default 120000",
    "header-ms": "for a header block to arrive; default 10000",
    "body-ms": "for a body to arrive; default 30000",
    "keep-alive-ms": "for the next request to begin; default 75000",
    "threads": "for handlers that are plain functions; default 32",
}


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments: those of the process."""
    add_flags(parser, AXON_SETTINGS)
    parser.add_argument("files", nargs="*", metavar="FILE.py", help="synapses of your own: `axon = Axon()…`")
    parser.add_argument("--name", metavar="NAME", help="its name on the bus; default axon")
    for name, text in PARAMETERS.items():
        parser.add_argument(f"--{name}", metavar="VALUE", help=text)


def run(call: Call) -> int:
    """Becomes the gateway: same process, so that signals and the exit code are its own."""
    want("a gateway", "axon", *EDGE)
    args, settings = call.args, call.settings
    handed = [name for name in AXON_SETTINGS if name != "nats" or settings.kind("nats") is not Origin.DEFAULT]
    argv = [sys.executable, "-m", "bakemesh.axon", *args.files, *settings.as_flags(handed)]
    if call.toml_path:
        argv.append(f"--config={call.toml_path}")
    given = {name: getattr(args, name.replace("-", "_")) for name in ("name", *PARAMETERS)}
    argv += [f"--{name}={value}" for name, value in given.items() if value is not None]
    if args.json:
        argv.append("--log-format=json")
    sys.stdout.flush()
    os.execv(argv[0], argv)
