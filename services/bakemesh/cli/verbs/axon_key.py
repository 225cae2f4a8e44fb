"""The API keys of a gateway's OpenAI-style routes: `new` makes one and shows it, this once; `list` shows
whose there are; `revoke` ends one. A running gateway sees it within a second."""

from __future__ import annotations

import argparse
from pathlib import Path

from bakemesh.cli.call import Call
from bakemesh.cli.exits import Exit, usage
from bakemesh.settings import add_flags

EXAMPLE = """\
  bakemesh axon-key new notebook
  bakemesh axon-key list
  bakemesh axon-key revoke notebook"""

FILE = Path("axon") / "api-keys"  # in the state folder, where the gateway looks too


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("verb", choices=("new", "list", "revoke"), help="make one, show all, end one")
    parser.add_argument("words", nargs="*", metavar="NAME", help="whose key: who will be counted")
    parser.add_argument("--file", type=Path, metavar="FILE", help=f"the key file; default STATE/{FILE}")
    add_flags(parser, ("state",))


def run(call: Call) -> int:
    """Does it."""
    from bakemesh.apikeys import KeyFileRefused

    verb, words = call.args.verb, call.args.words
    if verb == "list" and words:
        raise usage(f"axon-key list {' '.join(words)}: expected nothing more")
    if verb != "list" and len(words) != 1:
        raise usage(f"axon-key {verb}: expected one NAME")
    path = call.args.file or call.settings.state / FILE
    try:
        return _list(call, path) if verb == "list" else _change(call, path, verb, words[0])
    except KeyFileRefused as error:
        raise usage(str(error)) from None


def _change(call: Call, path: Path, verb: str, name: str) -> int:
    from datetime import UTC, datetime

    from bakemesh.apikeys import add as add_key
    from bakemesh.apikeys import revoke

    if verb == "revoke":
        revoke(path, name)
        if call.screen.machine:
            call.screen.document({"name": name, "revoked": True})
        else:
            call.screen.say(f"{name} is revoked")
        return Exit.DONE
    secret = add_key(path, name, datetime.now(UTC))
    if call.screen.machine:
        call.screen.document({"name": name, "key": secret, "file": str(path)})
    else:
        call.screen.say(secret)
        call.screen.note(f"that is {name}'s key; it is kept nowhere, only its hash in {path}")
    return Exit.DONE


def _list(call: Call, path: Path) -> int:
    from bakemesh.apikeys import load

    keys = load(path)
    if call.screen.machine:
        call.screen.document([{"name": key.name, "created": key.created} for key in keys])
    else:
        rows = [(key.name, key.created) for key in keys]
        call.screen.table(("name", "created"), rows, empty=f"no API key in {path}")
    return Exit.DONE
