"""`watch` as a process: what it tells, what it misses while the bus is away, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import signal
from pathlib import Path

from bakemesh.protocol.builder.messages import BakeSuccess
from support.commandline import PROGRAM, environment
from support.following import Commands
from support.house import Gate
from support.mesh import mesh
from support.modules import module, recipe
from support.waiting import eventually


def held(gate: Gate) -> str:
    return f'<recipe name="held"><cli shell="yes" command="{gate.wait}"/></recipe>'


async def test_nodes_components_and_bakes_of_everybody_as_they_change(tmp_path: Path) -> None:
    async with (
        mesh(tmp_path, "--operator", "ops", "--on-stop", "stop") as net,
        net.supervisor("boss") as boss,
    ):
        cli, gate = Commands(net, tmp_path), Gate(tmp_path / "gate")
        before = await boss.bake(held(gate))
        async with cli.following("watch", party="ops") as watch:
            await watch.until("node", node="alpha", state="ready")
            await watch.until("bake", recipeid=before.recipe_id, state="running")
            assert isinstance(await (await boss.bake(recipe(module("one")))).outcome(), BakeSuccess)
            await watch.until("component", name="one", state="ready")
            said = await watch.until("performance", node="alpha")
            assert 0 <= said["memory"] <= said["memorytotal"]
            gate.open()
            await watch.until("bake", recipeid=before.recipe_id, state="succeeded")
            assert (await cli.run("drain", "alpha", party="ops")).returncode == 0
            await watch.until("node", state="drained")
            await watch.until("component", name="one", state="stopped")
            assert await watch.interrupt() == 0, watch.said()


async def test_what_ended_while_the_bus_was_away_is_told_when_it_is_back(tmp_path: Path) -> None:
    async with mesh(tmp_path, guard=False) as net, net.supervisor("boss") as boss:
        cli, gate = Commands(net, tmp_path), Gate(tmp_path / "gate")
        bake = await boss.bake(held(gate))
        async with cli.following("watch", party="boss") as watch:
            await watch.until("bake", state="running")
            await net.nats.kill()
            gate.open()
            await net.nats.start()
            await watch.until("bake", recipeid=bake.recipe_id, state="succeeded")
            assert await watch.interrupt() == 0


async def test_a_node_that_dies_is_unresponsive(tmp_path: Path) -> None:
    async with (
        mesh(tmp_path, nodes=("alpha", "beta")) as net,
        Commands(net, tmp_path).following("watch", party="ops") as watch,
    ):
        await watch.until("node", node="beta", state="ready")
        await net.nodes["beta"].stop()
        await watch.until("node", node="beta", state="unresponsive")
        await net.nodes["beta"].start()
        await watch.until("node", node="beta", state="ready")


async def test_a_supervisor_sees_its_own_bakes_and_lines_are_plain_when_piped(tmp_path: Path) -> None:
    async with (
        mesh(tmp_path, guard=True) as net,
        net.supervisor("boss") as boss,
        net.supervisor("other") as other,
    ):
        cli = Commands(net, tmp_path)
        async with cli.following("watch", party="boss", machine=False) as watch:
            first = (await watch.line()).decode()
            assert first == "node alpha ready: 0 bakes, 0 queued\n"
            theirs = await other.bake('<recipe name="theirs"><cli command="true"/></recipe>')
            await theirs.outcome()
            ours = await boss.bake('<recipe name="ours"><cli command="true"/></recipe>')
            await ours.outcome()
            lines = [first]
            while not ("ours" in lines[-1] and "succeeded" in lines[-1]):
                lines.append((await watch.line()).decode())
            assert not any("theirs" in line for line in lines), (lines, watch.said())
            assert "sees the bakes of boss alone" in watch.said()
            assert await watch.interrupt() == 0


async def test_a_dashboard_sees_what_is_said_and_is_told_what_it_may_not_read(tmp_path: Path) -> None:
    async with (
        mesh(tmp_path) as net,
        net.supervisor("boss") as boss,
        Commands(net, tmp_path).following("watch", party="board") as watch,
    ):
        await watch.until("node", node="alpha", state="ready")
        await watch.until("performance", node="alpha")
        bake = await boss.bake('<recipe name="quick"><cli command="true"/></recipe>')
        await watch.until("bake", recipeid=bake.recipe_id, state="succeeded")
        assert await watch.interrupt() == 0
        assert "may not read the nodes bucket" in watch.said()


async def test_a_picture_on_a_terminal_and_a_time_limit(tmp_path: Path) -> None:
    async with mesh(tmp_path, guard=False) as net:
        master, slave = pty.openpty()
        process = await asyncio.create_subprocess_exec(
            *PROGRAM,
            *("watch", "--nats", net.url),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment(tmp_path, TERM="xterm", COLUMNS="120", LINES="40"),
            cwd=tmp_path,
        )
        os.close(slave)
        os.set_blocking(master, False)
        shown = b""

        def drawn() -> bool:
            nonlocal shown
            with contextlib.suppress(OSError):  # nothing new, or its end
                shown += os.read(master, 65536)
            return b"alpha" in shown and b"ready" in shown

        try:
            await eventually(drawn, within=40, what="the picture")
            process.send_signal(signal.SIGINT)
            await eventually(lambda: drawn() and process.returncode is not None, what="its end")
            assert process.returncode == 0, shown
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            os.close(master)
        done = await Commands(net, tmp_path).run("watch", "--for", "0.2", party="boss")
        assert done.returncode == 0, done.stderr
