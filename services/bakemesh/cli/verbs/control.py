"""Sends one control to a running bake and prints the Builder's typed answer."""

from __future__ import annotations

import argparse

from bakemesh.cli import link
from bakemesh.cli.call import Call
from bakemesh.cli.exits import Exit
from bakemesh.cli.failures import code_of_result
from bakemesh.settings import add_flags

EXAMPLE = "  bakemesh control pause nightly-index-7"

_VERBS = {"pause": "Pause", "start": "Start", "cancel": "Cancel", "skip": "SkipStep", "retry": "RetryStep"}


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument(
        "verb", choices=_VERBS, help="pause at the next step, start again, cancel, skip, retry"
    )
    parser.add_argument(
        "--as", dest="issuer", metavar="NAME", help="who sends it: the owner (default) or an operator"
    )
    add_bake(parser)


def add_bake(parser: argparse.ArgumentParser) -> None:
    """Arguments that name a bake."""
    parser.add_argument("recipe_id", metavar="RECIPEID", help="as `bakemesh bakes` shows it")
    parser.add_argument(
        "--supervisor", dest="owner", metavar="NAME", help="its owner, where the RecipeID is ambiguous"
    )
    parser.add_argument(
        "--node", dest="target", metavar="N", help="its node, where the RecipeID is ambiguous"
    )
    add_flags(parser, ("nats", "mesh", "creds", "state"))


def run(call: Call) -> int:
    """Sends it."""
    return link.run(_control(call))


async def _control(call: Call) -> int:
    from bakemesh.protocol.builder.codes import Verb

    async with link.attached(call, call.args.recipe_id, name=call.args.issuer) as (_, bake):
        result = await bake.control(Verb(_VERBS[call.args.verb]))
    return show_result(call, result)


def show_result(call: Call, result: object, about: str | None = None) -> int:
    """Prints a typed Result; its exit code. `about`: what it was asked of, if no bake."""
    accepted, code = bool(result.accepted), str(result.code)  # type: ignore[attr-defined]
    if call.screen.machine:
        call.screen.document({**result.entries(), "accepted": accepted})  # type: ignore[attr-defined]
    else:
        word = "accepted" if accepted else f"refused, {code}"
        what = call.args.recipe_id if about is None else about
        text = f"{result.verb} {what}: {word}: {result.summary}"  # type: ignore[attr-defined]
        (call.screen.say if accepted else call.screen.note)(text if accepted else f"bakemesh: {text}")
    return Exit.DONE if accepted else code_of_result(code)
