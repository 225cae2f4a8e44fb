"""The inference client as the verbs use it: opened from the settings, what every call takes as flags, and
what Ctrl-C does.
"""

from __future__ import annotations

import argparse
import asyncio
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakemesh.cli import link
from bakemesh.cli.call import Call
from bakemesh.cli.exits import Exit, Stopped, usage
from bakemesh.settings import Settings, add_flags

if TYPE_CHECKING:
    from bakemesh.inference import Inference

SETTINGS = ("nats", "mesh", "supervisor", "creds", "state")
Work = Callable[["Inference"], Awaitable[int]]


def add_call(parser: argparse.ArgumentParser, kind: str) -> None:
    """Arguments of every call for work. `kind`: what the model is."""
    parser.add_argument("--model", required=True, metavar="ALIAS", help=f"the {kind}; see `bakemesh models`")
    parser.add_argument(
        "--node", dest="target", metavar="N", help="the only node to ask; else the one that is done first"
    )
    parser.add_argument(
        "--deadline", type=seconds, metavar="SECONDS", help="give up after so long; default 60"
    )
    parser.add_argument(
        "--class",
        dest="work_class",
        choices=("interactive", "bulk", "control"),
        help="bulk lets others go first; default interactive",
    )
    parser.add_argument(
        "--priority", type=int, metavar="P", help="-100 to 100 within the class, higher goes first; default 0"
    )
    add_flags(parser, SETTINGS)


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """Arguments of a generation."""
    parser.add_argument("--max-tokens", type=int, metavar="N", help="at most so many; default 128")
    parser.add_argument(
        "--temperature", type=float, metavar="T", help="absent or 0: the likeliest token always"
    )
    parser.add_argument("--top-k", type=int, metavar="K", help="of the K likeliest tokens only")
    parser.add_argument("--top-p", type=float, metavar="P", help="of the likeliest that make up P, 0 to 1")
    parser.add_argument("--min-p", type=float, metavar="P", help="at least P of the likeliest one, 0 to 1")
    parser.add_argument("--seed", type=int, metavar="N", help="the same seed gives the same tokens")
    parser.add_argument(
        "--stop", action="append", metavar="TEXT", help="end before this text; may be given up to 16 times"
    )
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--grammar", metavar="FILE", help="what the text must be, in GBNF")
    shape.add_argument("--json-schema", metavar="FILE", help="the JSON Schema that the text must follow")


def call_options(args: argparse.Namespace) -> dict[str, Any]:
    """The keywords of a call for work."""
    found = {
        "node": args.target,
        "deadline_s": args.deadline,
        "work_class": args.work_class,
        "priority": args.priority,
    }
    return {name: value for name, value in found.items() if value is not None}


def sampling_options(args: argparse.Namespace) -> dict[str, Any]:
    """The keywords of a generation. Raises OSError for a file that cannot be read."""
    names = ("max_tokens", "temperature", "top_k", "top_p", "min_p", "seed", "stop")
    found = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    for name in ("grammar", "json_schema"):
        if (file := getattr(args, name)) is not None:
            found[name] = Path(file).read_text(encoding="utf-8")
    return {**found, **call_options(args)}


def connection(settings: Settings) -> dict[str, Any]:
    """What the client is connected with."""
    from bakemesh.bus import Credentials

    return {
        "nats": settings.nats,
        "name": settings.supervisor,
        "mesh": settings.mesh,
        "connect_timeout_s": link.CONNECT_S,
        "credentials": Credentials(nkey_file=settings.creds) if settings.creds else None,
    }


def require() -> None:
    """Raises Stopped where the client's own package is not there."""
    try:
        import numpy  # noqa: F401
    except ImportError:
        raise usage("inference needs numpy, which is missing: pip install 'bakemesh[inference]'") from None


def answered(call: Call, work: Work) -> int:
    """Does it with a client. Ctrl-C cancels what was sent; nothing is left running on the node."""
    require()
    return link.run(_answered(call, work))


async def _answered(call: Call, work: Work) -> int:
    from bakemesh.inference import Inference

    async def whole() -> int:
        async with Inference.connect(**connection(call.settings)) as inference:
            sent.append(True)
            return await work(inference)

    def cancel() -> None:
        task.cancel()

    sent: list[bool] = []
    task = asyncio.create_task(whole())
    with link.on_interrupt(cancel):
        try:
            return await task
        except asyncio.CancelledError:
            if not sent:
                raise Stopped(Exit.INTERRUPTED, "interrupted before anything was sent") from None
            raise Stopped(Exit.CANCELLED, "cancelled") from None


def seconds(text: str) -> float:
    """A flag's seconds."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text!r}: expected seconds above 0")
    return value
