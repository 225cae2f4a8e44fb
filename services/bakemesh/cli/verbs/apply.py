"""Gives the Startup Supervisor of a node a changed PsySpec, and shows what it does about it: what is added,
removed and restarted on each node. What did not change keeps running. --node: whose Startup Supervisor;
without it that of this machine's state folder, else of the only node there is.

It ends when every node of the PsySpec has done its part (exit 0), or after --timeout with those that have
not (exit 1); the Startup Supervisor goes on with them.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from bakemesh.cli import link
from bakemesh.cli.call import Call
from bakemesh.cli.exits import Exit, Stopped, usage
from bakemesh.cli.failures import code_of_result
from bakemesh.cli.psyspecs import groups_of, read_psyspec_file
from bakemesh.cli.running.told import changes
from bakemesh.settings import add_flags
from bakemesh.settings.node import Node, read_node

if TYPE_CHECKING:
    from bakemesh.protocol.admit import Delivery
    from bakemesh.protocol.builder.messages import BakeOutcome, Result
    from bakemesh.protocol.psyspec import PsySpec
    from bakemesh.protocol.startup import Reconciled
    from bakemesh.supervisor import Supervisor

EXAMPLE = "  bakemesh apply cluster.xml --node alpha"
ANSWER_S, TIMEOUT_S = 10.0, 120.0


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("psyspec", metavar="PSYSPEC", help="the file")
    parser.add_argument("--node", dest="target", metavar="N", help="by name or id")
    parser.add_argument(
        "--timeout", type=float, default=TIMEOUT_S, metavar="SECONDS", help=f"default {TIMEOUT_S:g}"
    )
    add_flags(parser, ("nats", "mesh", "creds", "state", "supervisor"))


def run(call: Call) -> int:
    """Sends it, and follows."""
    text, psyspec = read_psyspec_file(call.args.psyspec, call.screen)
    return link.run(_apply(call, text, psyspec))


async def _apply(call: Call, text: str, psyspec: PsySpec) -> int:
    from bakemesh.bus.errors import NoResponder
    from bakemesh.protocol.builder.messages import Result
    from bakemesh.protocol.rights import startup_name
    from bakemesh.protocol.startup import PsySpecMessage
    from bakemesh.protocol.subjects import build

    async with link.open_supervisor(call.settings) as supervisor:
        node = await _node(call, supervisor)
        waiting = {group.node for group in groups_of(call.args.psyspec, psyspec, node)}
        async with _Following(call, supervisor, node, psyspec.digest, waiting) as following:
            message = PsySpecMessage(psyspec=text, issuedby=supervisor.name)
            name = startup_name(node.id)
            subject = build(supervisor.bus.mesh, node.id, supervisor.name, name, message.type)
            try:
                answer = (await supervisor.bus.request(subject, message, ANSWER_S)).message
            except NoResponder:
                raise Stopped(
                    Exit.UNREACHABLE,
                    f"no Startup Supervisor on node {node.name}; start one there: `bakemesh up` or `startup`",
                ) from None
            if not isinstance(answer, Result):
                raise Stopped(Exit.FAILED, f"node {node.name} answered with {answer.type}, not with a Result")
            _show(call, answer)
            if not answer.accepted:
                return code_of_result(answer.code)
            return await following.to_its_end(call.args.timeout)


def _show(call: Call, answer: Result) -> None:
    from bakemesh.supervisor.errors import describe_problem

    if call.screen.machine:
        call.screen.event("result", **{**answer.entries(), "accepted": bool(answer.accepted)})
        return
    if answer.accepted:
        call.screen.say(answer.summary)
        return
    call.screen.note(f"bakemesh: refused, {answer.code}: {answer.summary}")
    for problem in answer.problems or ():
        call.screen.note(f"  {describe_problem(problem)}")


async def _node(call: Call, supervisor: Supervisor) -> Node:
    if call.args.target:
        place = await supervisor.directory.find(call.args.target)
        return Node(place.name, place.node_id)
    own = read_node(call.settings.state)
    if own is not None:
        return own
    alive = [node for node in await supervisor.nodes() if node.alive]
    if len(alive) == 1:
        return Node(alive[0].name, alive[0].node_id)
    there = ", ".join(node.label for node in alive) or "no node has reported"
    raise usage(f"whose Startup Supervisor is to have it? give --node ({there})")


class _Following:
    """What the Startup Supervisor says about it, until every node has done its part."""

    def __init__(
        self, call: Call, supervisor: Supervisor, node: Node, digest: str, waiting: set[str]
    ) -> None:
        self._call, self._bus = call, supervisor.bus
        self._node, self._digest, self._waiting = node, digest, waiting
        self._news = asyncio.Event()
        # What is heard before its Result was shown: the two come on ways of their own.
        self._held: list[Callable[[], None]] | None = []

    async def __aenter__(self) -> _Following:
        from bakemesh.bus.errors import AccessDenied
        from bakemesh.protocol.rights import startup_name
        from bakemesh.protocol.subjects import BAKE, STARTUP_RECONCILED, pattern

        party = startup_name(self._node.id)
        mesh = self._bus.mesh
        self._subscriptions = [
            await self._bus.subscribe(pattern(mesh, STARTUP_RECONCILED, party=party), self._reconciled)
        ]
        try:  # why it takes long; a Supervisor that is no operator may not hear that
            failing = pattern(mesh, f"{BAKE}.Failed", party=party)
            self._subscriptions.append(await self._bus.subscribe(failing, self._failed))
        except AccessDenied:
            pass
        return self

    async def __aexit__(self, *_: object) -> None:
        for subscription in self._subscriptions:
            await subscription.stop()

    async def to_its_end(self, timeout: float) -> int:
        """The exit code. What was heard meanwhile is shown now."""
        held, self._held = self._held, None
        for show in held or ():
            show()
        try:
            async with asyncio.timeout(timeout):
                while self._waiting:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            late = ", ".join(sorted(self._waiting))
            raise Stopped(
                Exit.FAILED,
                f"not done within {timeout:g} s on: {late}; it is done there when they come, or when what "
                "fails there works (see `bakemesh nodes`, `bakemesh components`)",
            ) from None
        return Exit.DONE

    def _reconciled(self, delivery: Delivery) -> None:
        if self._held is not None:
            self._held.append(lambda: self._reconciled(delivery))
            return
        message: Reconciled = delivery.received.message  # type: ignore[assignment]
        if message.digest != self._digest:
            return
        self._waiting -= {message.node, message.node_id}
        self._news.set()
        entries = message.entries()
        if self._call.screen.machine:
            self._call.screen.event("reconciled", **entries)
        else:
            self._call.screen.say(f"node {message.node}: {changes(entries)}")

    def _failed(self, delivery: Delivery) -> None:
        if self._held is not None:
            self._held.append(lambda: self._failed(delivery))
            return
        message: BakeOutcome = delivery.received.message  # type: ignore[assignment]
        if self._call.screen.machine:
            self._call.screen.event("failed", **message.entries())
        else:
            self._call.screen.note(
                f"bakemesh: bring-up of node {message.node} failed, and is tried again: {message.summary}"
            )
