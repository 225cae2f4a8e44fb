"""Brings this machine up as a node: a NATS server of its own (unless --nats names one), a Builder, and a
Startup Supervisor that brings up what PSYSPEC says, on this node and on its peers; each a process of its own,
restarted when it dies. Ctrl-C stops them in reverse order, the components first; a second Ctrl-C kills them.
Without PSYSPEC the last one of the state folder counts, or one that is given by `bakemesh apply`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakemesh.cli.call import Call
from bakemesh.cli.exits import Exit, Stopped, usage
from bakemesh.cli.psyspecs import groups_of, read_psyspec_file
from bakemesh.cli.running.told import Told
from bakemesh.cli.verbs.builder import builder_argv
from bakemesh.cli.verbs.startup import startup_argv
from bakemesh.restart import BUILDER, Policy
from bakemesh.settings import Origin, add_flags, settle_node
from bakemesh.settings.node import Node

if TYPE_CHECKING:
    from bakemesh.bus.server import EmbeddedServer

EXAMPLE = """\
  bakemesh up                                      a server and a Builder on this machine
  bakemesh up cluster.xml --node alpha             and what cluster.xml says, here and on its other nodes
  bakemesh up --nats nats://10.0.0.5:4222          a Builder for a mesh that has its server
  bakemesh up --join nats://10.0.0.5:7422          a server that is a leaf of another, for a node that may
  be cut off"""

# A server that dies five times in a minute will not be mended by a sixth start at once; it is probed.
BUS = Policy(max_restarts=5, most_s=5.0, probe_s=10.0, probe_most_s=60.0)
STARTUP = Policy(never_quarantine=True, most_s=5.0, final_codes=frozenset({2, 6}))
# Steps, their grace, the outbox, and each component's own time to end; where `up` was killed, less of that.
BUILDER_GRACE_S, BUILDER_GUARD_S = 60.0, 20.0


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("psyspec", nargs="?", metavar="PSYSPEC", help="what is to run, on which nodes")
    parser.add_argument(
        "--for", dest="for_s", type=float, metavar="SECONDS", help="stop by itself so long after it was ready"
    )
    add_flags(parser)


def run(call: Call) -> int:
    """Runs until it is stopped."""
    if call.args.for_s is not None and not call.args.for_s >= 0:  # nan too
        raise usage(f"--for {call.args.for_s:g}: expected seconds, 0 or more")
    settings = call.settings
    embedded = settings.kind("nats") in (Origin.DEFAULT, Origin.RUNNING)
    if settings.join is not None and not embedded:
        raise usage(
            f"--join (from {settings.origin('join')}) makes this node's own server a leaf, and nats (from "
            f"{settings.origin('nats')}) names another server; give one of the two"
        )
    text: str | None = None
    if call.args.psyspec is not None:
        text, psyspec = read_psyspec_file(call.args.psyspec, call.screen)
        groups_of(call.args.psyspec, psyspec, settle_node(settings))
    return asyncio.run(_up(call, embedded, text))


async def _up(call: Call, embedded: bool, psyspec: str | None) -> int:
    from bakemesh.cli.running.bus import BusComponent
    from bakemesh.cli.running.component import Component, ProcessComponent
    from bakemesh.cli.running.group import Group
    from bakemesh.cli.running.guarded import Guard
    from bakemesh.cli.running.sweep import sweep_components
    from bakemesh.cli.running.upfile import announced, given, only_one

    settings = call.settings
    node = settle_node(settings)
    key = _startup_key(call, node, psyspec is not None)
    stops = settings.on_stop != "keep"
    with contextlib.ExitStack() as stack:
        stack.enter_context(only_one(settings.state))
        last = [sys.executable, "-m", "bakemesh.cli.running.sweep", str(settings.state.absolute())]
        guard = stack.enter_context(Guard(last if stops else ()))
        spec = given(settings.state, psyspec) if psyspec is not None else None
        members: list[tuple[Component, Policy]] = []
        server = _server(call, node) if embedded else None
        if server is not None:
            members.append((BusComponent(server, guard), BUS))

        def builder() -> list[str]:
            argv = builder_argv(call, nats=server.url if server else None)
            return [*argv, "--on-stop=stop"] if settings.on_stop == "auto" else argv

        def startup() -> list[str]:
            return startup_argv(call, spec, nats=server.url if server else None, creds=key)

        async def sweep() -> None:
            if stops:
                await sweep_components(settings.state)

        teller = _Teller(
            call, ready=lambda: _announce(stack, announced(settings.state, server.url)) if server else None
        )
        kept = ProcessComponent(
            "builder", builder, _node_text, guard, grace_s=BUILDER_GRACE_S, guard_s=BUILDER_GUARD_S
        )
        members.append((kept, BUILDER))
        if key is not None or settings.creds is None:
            members.append(
                (ProcessComponent("startup", startup, _node_text, guard, heard=teller.heard), STARTUP)
            )
        group = Group(members, teller.tell, beside=("startup",), last=sweep)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, group.stop)
        code = await group.run(teller.all_ready, call.args.for_s)
    if code is None or (group.let_be == "builder" and code == Exit.DOWN):
        return Exit.DONE
    who = {"builder": "Builder", "startup": "Startup Supervisor"}.get(group.let_be or "", "server")
    if code == Exit.TAKEN:
        raise Stopped(Exit.TAKEN, f"node {node.id} has a {who} already; see its log lines above")
    raise Stopped(Exit.FAILED, f"the {who} ended with exit code {code}; see its log lines above")


def _server(call: Call, node: Node) -> EmbeddedServer:
    from bakemesh.bus.server import EmbeddedServer
    from bakemesh.cli.running.bus import FOLDER
    from bakemesh.cli.running.ports import last_ports

    settings = call.settings
    host, port = settings.listen
    last = last_ports(settings.state / FOLDER, host)
    return EmbeddedServer(
        settings.state / FOLDER,
        node.id,
        host=host,
        port=port or last.client or port,
        leaf_host=host,
        leaf_port=last.leaf,
        join=settings.join,
        durability=settings.durability,
    )


def _startup_key(call: Call, node: Node, wanted: bool) -> Path | None:
    """The key file of the Startup Supervisor, on a mesh where everybody has one. Raises Stopped."""
    settings = call.settings
    if settings.creds is None:
        return None
    name = f"startup-{node.id}.nk"
    if settings.keys_dir is not None and (settings.keys_dir / name).is_file():
        return Path(settings.keys_dir / name)
    where = f"{name} in the folder of --keys-dir"
    if wanted:
        raise usage(f"a PsySpec needs a Startup Supervisor, and that a key of its own: put {where}")
    call.screen.note(
        f"bakemesh: no Startup Supervisor is run, for it has no key of its own: {where} is missing"
    )
    return None


def _announce(stack: contextlib.ExitStack, entered: contextlib.AbstractContextManager[None]) -> None:
    stack.enter_context(entered)


def _node_text(facts: dict[str, Any]) -> str:
    name, id_ = facts.get("node"), facts.get("nodeid")
    return f"node {name}" if name == id_ else f"node {name}, id {id_}"


class _Teller:
    """Says what happens: a line for people, an event for machines. A node outlives whoever reads that."""

    def __init__(self, call: Call, ready: Any) -> None:
        self._call, self._screen = call, call.screen
        self._announce, self._announced = ready, False
        self._told = Told()

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

    def heard(self, word: str, facts: dict[str, Any]) -> None:
        """One thing that the Startup Supervisor told."""
        line = self._told.line(word, facts)
        with _unread():
            if self._screen.machine:
                self._screen.event(word, component="startup", **facts)
            elif line is not None:
                self._screen.say(f"{line[0]:9} {line[1]}")

    def all_ready(self) -> None:
        """Every process is ready for the first time; a PsySpec's components are said one by one."""
        with _unread():
            if self._screen.machine:
                self._screen.event("up")
            else:
                given = self._call.args.psyspec
                what = (
                    f"the node is ready, what {given} says is brought up" if given else "everything is ready"
                )
                self._screen.say(f"up        {what}; Ctrl-C stops it")


@contextlib.contextmanager
def _unread() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
