"""`python -m bakemesh.worker --socket PATH --nonce HEX [--engine llama|fake]`: one engine, for one host.

The host listens on the socket before it starts this. SYNAPSE_WORKER_ID names the worker in its log, which is
stderr; stdout is nobody's channel. TERM and INT: the request in flight is finished and answered first.

Exit codes: 0 SHUTDOWN, TERM, or the host ended the connection · 2 usage · 3 the host broke the protocol or
does not take this worker · 4 nobody listens on the socket · 5 the engine cannot be made.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

USAGE, PROTOCOL, NO_HOST, NO_ENGINE = 2, 3, 4, 5
_HELP = "usage: python -m bakemesh.worker --socket PATH --nonce HEX [--engine llama|fake]"
_NAMES = ("socket", "nonce", "engine")


def main(argv: Sequence[str]) -> int:
    """Runs the worker and returns its exit code."""
    try:
        given = arguments(argv)
    except ValueError as error:
        return _end(USAGE, f"{error}\n{_HELP}")
    if given is None:
        print(__doc__)
        return 0
    from bakemesh.protocol.worker import headers
    from bakemesh.protocol.worker.ends import WorkerEnd
    from bakemesh.protocol.worker.errors import PeerError
    from bakemesh.protocol.worker.frames import MAX_FRAME
    from bakemesh.worker import engines, orphaned, transport
    from bakemesh.worker.requests import Desk
    from bakemesh.worker.serving import Server

    orphaned.die_with_parent()
    try:
        engine = engines.make(given["engine"])
    except engines.NoSuchEngine as error:
        return _end(USAGE, f"{error}\n{_HELP}")
    except ImportError as error:
        return _end(NO_ENGINE, f"the engine {given['engine']} cannot be imported: {error}")
    try:
        channel = transport.connect(given["socket"])
    except OSError as error:
        return _end(NO_HOST, f"nobody listens on {given['socket']}: {error}")
    hello = headers.Hello(
        v=headers.VERSION,
        nonce=given["nonce"],
        engine={"name": engine.name, "version": engine.version, "build_flags": engine.build_flags},
        pid=os.getpid(),
        max_frame=MAX_FRAME,
        types=engine.types,
    )
    server = Server(channel, WorkerEnd(hello), Desk(engine), getattr(engine, "spoil", None))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    orphaned.watch(channel.fileno())
    try:
        server.run()
    except PeerError as error:
        return _end(PROTOCOL, str(error))
    return 0


def arguments(argv: Sequence[str]) -> dict[str, str] | None:
    """Reads `--name value` and `--name=value`; None: help is wanted. Raises ValueError.

    By hand: argparse is a tenth of a worker's start, and a worker is started after every crash.
    """
    found: dict[str, str] = {"engine": "llama"}
    left = list(argv)
    while left:
        word, _, value = left.pop(0).partition("=")
        if word in ("-h", "--help"):
            return None
        name = word.removeprefix("--")
        if not word.startswith("--") or name not in _NAMES:
            raise ValueError(f"no argument {word!r}")
        if not _ and left:
            value = left.pop(0)
        if not value:
            raise ValueError(f"{word} wants a value")
        found[name] = value
    for name in _NAMES:
        if name not in found:
            raise ValueError(f"--{name} is missing")
    return found


def _end(code: int, why: str) -> int:
    who = os.environ.get("SYNAPSE_WORKER_ID", "")
    sys.stderr.write(f"bakemesh worker{f' {who}' if who else ''}: {why}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
