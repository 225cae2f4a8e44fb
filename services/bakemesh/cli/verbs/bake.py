"""Sends a recipe to a node and follows it: progress on stderr, the steps' output on stdout and stderr, byte
for byte. Ctrl-C cancels the bake and waits until it is cancelled."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

from bakemesh.cli import link, progress
from bakemesh.cli.answers import Answers
from bakemesh.cli.call import Call
from bakemesh.cli.exits import Exit, usage
from bakemesh.cli.failures import explain
from bakemesh.cli.following import Follower
from bakemesh.cli.verbs.check import read_spec
from bakemesh.settings import add_flags

EXAMPLE = """\
  bakemesh bake examples/hello/recipe.xml
  bakemesh bake index.xml --node beta --param day=monday --data words.txt
  bakemesh bake update.xml --cohort web --output-dir out"""


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("recipe", metavar="RECIPE.xml", help="the recipe's file; - reads it from stdin")
    parser.add_argument(
        "--node", dest="target", default="any", metavar="N", help="name or id; any: the least loaded"
    )
    parser.add_argument(
        "--cohort", metavar="C", help="on every node of this cohort, with one summary and one exit code"
    )
    parser.add_argument(
        "--output-dir",
        metavar="DIR",
        help="with --cohort: each node's output into DIR/NODE/stdout and stderr, instead of marked lines",
    )
    parser.add_argument(
        "--expires", type=float, metavar="SECONDS", help="refused where it has not begun by then"
    )
    parser.add_argument("--detach", action="store_true", help="send it, print its RecipeID, and leave it")
    parser.add_argument(
        "--data",
        action="append",
        default=[],
        metavar="[NAME=]FILE|-",
        help="answers <requestdata>: the one called NAME, or any; - reads stdin",
    )
    parser.add_argument("--data-dir", metavar="DIR", help="answers <requestdata> NAME with the file DIR/NAME")
    parser.add_argument(
        "--param", action="append", default=[], metavar="K=V", help="for ${param:K} in the recipe"
    )
    parser.add_argument("--quiet", action="store_true", help="the steps' output alone, no progress")
    add_flags(parser, ("nats", "mesh", "supervisor", "creds", "state"))


def run(call: Call) -> int:
    """Bakes it."""
    args = call.args
    xml = read_spec(args.recipe)
    if args.expires is not None and not 0 < args.expires < math.inf:
        raise usage(f"--expires {args.expires:g}: expected seconds above 0")
    if args.recipe == "-" and "-" in [given.rpartition("=")[2] for given in args.data]:
        raise usage("the recipe and --data cannot both come from stdin; give one of them as a file")
    params, answers = read_params(args.param), Answers(args.data, args.data_dir)
    if args.cohort is None:
        if args.output_dir is not None:
            raise usage("--output-dir is for --cohort; one bake's output goes to stdout and stderr")
        return link.run(_bake(call, xml, params, answers))
    if args.target != "any":
        raise usage(f"--cohort {args.cohort} and --node {args.target}: give one of the two")
    return link.run(_bake_cohort(call, xml, params, answers))


def read_params(given: Sequence[str]) -> dict[str, str]:
    """`K=V` each. Raises Stopped."""
    params: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise usage(f"--param {text}: expected K=V")
        if key in params:
            raise usage(f"--param {text}: {key} is given twice")
        params[key] = value
    return params


async def _bake(call: Call, xml: str, params: dict[str, str], answers: Answers) -> int:
    args, screen = call.args, call.screen
    async with link.open_supervisor(call.settings) as supervisor:
        shown = progress.make(screen, "bake", quiet=args.quiet or args.detach)
        follower = Follower(screen, shown, answers)
        with link.on_interrupt(follower.interrupt):
            try:
                bake = await supervisor.bake(
                    xml, node=args.target, params=params or None, expires_s=args.expires, result_timeout_s=2.0
                )
                if screen.machine:
                    screen.event("sent", **bake.identity.fields(), waiting=bake.waiting)
                if args.detach and not follower.interrupted:
                    return _left(call, bake)
                shown.say(f"bake {bake.recipe_id} on node {bake.node}")
                return await follower.follow(bake)
            finally:
                shown.close()


async def _bake_cohort(call: Call, xml: str, params: dict[str, str], answers: Answers) -> int:
    from bakemesh.cli.cohorts import CohortFollower, verdict

    args, screen = call.args, call.screen
    output = None if args.output_dir is None else Path(args.output_dir)
    follower = CohortFollower(screen, answers, output, quiet=args.quiet)
    async with link.open_supervisor(call.settings) as supervisor:
        with link.on_interrupt(follower.interrupt):
            baking = await supervisor.cohort(args.cohort).bake(
                xml, params=params or None, expires_s=args.expires, result_timeout_s=2.0
            )
            if screen.machine:
                for bake in baking.bakes.values():
                    screen.event("sent", **bake.identity.fields(), waiting=bake.waiting)
            if not args.detach:
                return await follower.follow(baking, f"bake on {args.cohort}")
            for bake in baking.bakes.values():
                _left(call, bake)
            for node_id, error in baking.refused.items():
                screen.note(f"bakemesh: node {node_id}: {error}")
            return verdict(explain(error).code for error in baking.refused.values())


def _left(call: Call, bake: object) -> int:
    recipe_id, node = bake.recipe_id, bake.node  # type: ignore[attr-defined]
    if not call.screen.machine:
        call.screen.say(recipe_id)
    if bake.waiting:  # type: ignore[attr-defined]
        call.screen.note(f"bakemesh: nothing heard of node {node} yet; the recipe waits in its inbox")
    return Exit.DONE
