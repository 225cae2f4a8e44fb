"""Brings this machine up as a node: a NATS server of its own (unless --nats names one) and a Builder, each
a process of its own, restarted when it dies. Ctrl-C stops them in reverse order; a second Ctrl-C kills
them."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

from bakemesh.cli.call import Call
from bakemesh.cli.exits import Exit, Stopped, usage
from bakemesh.cli.verbs.builder import builder_argv
from bakemesh.restart import BUILDER, Policy
from bakemesh.settings import Origin, add_flags, settle_node

EXAMPLE = """\
  bakemesh up                                      a server and a Builder on this machine
  bakemesh up --nats nats://10.0.0.5:4222          a Builder for a mesh that has its server
  bakemesh up --join nats://10.0.0.5:7422          a server that is a leaf of another, for a node that may
  be cut off"""

# A server that dies five times in a minute will not be mended by a sixth start at once; it is probed.
BUS = Policy(max_restarts=5, most_s=5.0, probe_s=10.0, probe_most_s=60.0)


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("psyspec", nargs="?", metavar="PSYSPEC", help=argparse.SUPPRESS)
    parser.add_argument(
        "--for", dest="for_s", type=float, metavar="SECONDS", help="stop by itself after so long"
    )
    add_flags(parser)


def run(call: Call) -> int:
    """Runs until it is stopped."""
    if call.args.psyspec is not None:
        raise usage(
            f"{call.args.psyspec}: this version has no Startup Supervisor that brings up a PsySpec; "
            "run `bakemesh up` without it and send recipes with `bakemesh bake`"
        )
    if call.args.for_s is not None and not call.args.for_s >= 0:  # nan too
        raise usage(f"--for {call.args.for_s:g}: expected seconds, 0 or more")
    settings = call.settings
    embedded = settings.kind("nats") in (Origin.DEFAULT, Origin.RUNNING)
    if settings.join is not None and not embedded:
        raise usage(
            f"--join (from {settings.origin('join')}) makes this node's own server a leaf, and nats (from "
            f"{settings.origin('nats')}) names another server; give one of the two"
        )
    return asyncio.run(_up(call, embedded))


async def _up(call: Call, embedded: bool) -> int:
    from bakemesh.bus.server import EmbeddedServer
    from bakemesh.cli.running.bus import BusComponent
    from bakemesh.cli.running.component import Component, ProcessComponent
    from bakemesh.cli.running.group import Group
    from bakemesh.cli.running.guarded import Guard
    from bakemesh.cli.running.upfile import announced, only_one

    settings = call.settings
    node = settle_node(settings)
    with contextlib.ExitStack() as stack:
        stack.enter_context(only_one(settings.state))
        guard = stack.enter_context(Guard())
        members: list[tuple[Component, Policy]] = []
        server: EmbeddedServer | None = None
        if embedded:
            host, port = settings.listen
            server = EmbeddedServer(
                settings.state / "bus",
                node.id,
                host=host,
                port=port,
                leaf_host=host,
                join=settings.join,
                durability=settings.durability,
            )
            members.append((BusComponent(server, guard), BUS))

        def command() -> list[str]:
            return builder_argv(call, nats=server.url if server else None)

        members.append((ProcessComponent("builder", command, _builder_text, guard), BUILDER))
        teller = _Teller(
            call, ready=lambda: _announce(stack, announced(settings.state, server.url)) if server else None
        )
        group = Group(members, teller.tell)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, group.stop)
        code = await group.run(teller.all_ready, call.args.for_s)
    if code is None:
        return Exit.DONE
    if code == Exit.TAKEN:
        raise Stopped(Exit.TAKEN, f"node {node.id} has a Builder already; see its log lines above")
    raise Stopped(Exit.FAILED, f"the Builder ended with exit code {code}; see its log lines above")


def _announce(stack: contextlib.ExitStack, entered: contextlib.AbstractContextManager[None]) -> None:
    stack.enter_context(entered)


def _builder_text(facts: dict[str, Any]) -> str:
    name, id_ = facts.get("node"), facts.get("nodeid")
    return f"node {name}" if name == id_ else f"node {name}, id {id_}"


class _Teller:
    """Says what happens: a line for people, an event for machines. A node outlives whoever reads that."""

    def __init__(self, call: Call, ready: Any) -> None:
        self._screen = call.screen
        self._announce, self._announced = ready, False

    def tell(self, what: Any, component: Any, text: str, facts: dict[str, object]) -> None:
        """One thing that happened to a component."""
        with _unread():
            if self._screen.machine:
                self._screen.event(str(what), component=component.name, **facts)
            else:
                self._screen.say(f"{component.name:9} {what:11} {text}".rstrip())
        if what == "ready" and component.name == "bus" and not self._announced:
            self._announced = True
            self._announce()

    def all_ready(self) -> None:
        """Everything is ready for the first time."""
        with _unread():
            if self._screen.machine:
                self._screen.event("up")
            else:
                self._screen.say("up        everything is ready; Ctrl-C stops it")


@contextlib.contextmanager
def _unread() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
