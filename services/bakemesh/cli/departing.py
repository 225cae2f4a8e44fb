"""Following a node that is taken out of work: what still runs there, until nothing does, or until it is down.

    drain: its SystemStatus says draining and nothing runs        down: and then its claim is gone

The nodes bucket is read again and again, so a bus that was away for a moment is no matter. A node that goes
down may take its own server with it: a bus that does not come back is its end where nothing ran there any
more, and on its own machine however quick it was. Elsewhere it is an error. Left out: asking for it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bakemesh.cli.call import Call
from bakemesh.cli.exits import Exit, Stopped
from bakemesh.cli.progress import counted
from bakemesh.settings import Origin

if TYPE_CHECKING:
    from bakemesh.protocol.builder.messages import SystemStatus
    from bakemesh.supervisor import NodeInfo, Supervisor

LOOK_S = 0.3
AWAY_S = 5.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What the last looks have shown. `began`: it was seen draining."""

    began: bool = False
    drained: bool = False


def step(seen: Seen, node: NodeInfo | None, *, down: bool) -> tuple[Seen, str | None]:
    """What is known after one more look, and its verdict: `done`, `resumed`, `lost`, or None: go on. Pure."""
    from bakemesh.supervisor.nodes import NodeState, is_drained

    if node is None:
        return seen, "done" if down and seen.drained else "lost"
    began = seen.began or bool(node.status.draining)
    now = Seen(began, is_drained(node.status) or (seen.drained and bool(node.status.draining)))
    if not node.alive or node.state is NodeState.GONE:
        if now.drained:
            return now, "done"
        return now, "lost" if node.state is NodeState.GONE else None
    if began and not node.status.draining:
        return now, "resumed"
    return now, "done" if now.drained and not down else None


def left(status: SystemStatus) -> str:
    """What still runs, in words."""
    from bakemesh.supervisor.nodes import running_components

    parts = []
    if status.bakes:
        parts.append(counted(status.bakes, "bake"))
    if status.queued:
        parts.append(f"{status.queued} queued")
    if names := running_components(status):
        shown = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
        parts.append(f"{counted(len(names), 'component')} ({shown})")
    return ", ".join(parts) or "nothing runs"


async def follow(
    call: Call, supervisor: Supervisor, node_id: str, interrupted: asyncio.Event, *, down: bool
) -> int:
    """Shows it to its end; the exit code. Raises Stopped."""
    from bakemesh.bus.errors import BusError

    loop, screen = asyncio.get_running_loop(), call.screen
    seen, shown, away = Seen(), "", None
    while not interrupted.is_set():
        try:
            node = await supervisor.directory.look(node_id)
        except BusError:
            away = away or loop.time()
            if loop.time() - away > AWAY_S:
                # A node with little to stop is gone between two looks; another's server says nothing of it.
                if down and (seen.drained or call.settings.kind("nats") is Origin.RUNNING):
                    return _end(call, node_id, "down", "its server went with it")
                raise
        else:
            away = None
            seen, verdict = step(seen, node, down=down)
            if verdict == "done":
                return _end(call, node_id, "down" if down else "drained", "")
            if verdict == "resumed":
                raise Stopped(Exit.FAILED, f"node {node_id} takes recipes again: somebody resumed it")
            if verdict == "lost":
                raise Stopped(
                    Exit.UNREACHABLE, f"node {node_id} is gone before it was drained; see `bakemesh nodes`"
                )
            if node is not None and seen.began and (text := left(node.status)) != shown:
                shown = text
                _progress(call, node, text)
        try:
            async with asyncio.timeout(LOOK_S):
                await interrupted.wait()
        except TimeoutError:
            continue
    screen.note(
        f"bakemesh: not followed any more; node {node_id} goes on, `bakemesh drain --resume` stops it"
    )
    return Exit.CANCELLED


def _progress(call: Call, node: NodeInfo, text: str) -> None:
    if call.screen.machine:
        from bakemesh.supervisor.nodes import running_components

        call.screen.event(
            "progress",
            node=node.name,
            nodeid=node.node_id,
            bakes=node.status.bakes,
            queued=node.status.queued,
            components=running_components(node.status),
        )
    else:
        call.screen.note(f"node {node.name}: {text}")


def _end(call: Call, node_id: str, what: str, more: str) -> int:
    if call.screen.machine:
        call.screen.event("end", nodeid=node_id, state=what)
    else:
        call.screen.say(f"node {node_id} is {what}" + (f": {more}" if more else ""))
    return Exit.DONE
