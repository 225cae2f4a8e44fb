"""The lane host as a component of a Builder, with the keys of its role, by hand, and by `bakemesh lanes`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bakemesh.bus.errors import AccessDenied, NoResponder
from bakemesh.protocol.builder.messages import BakeSuccess
from bakemesh.protocol.inference import lanes as m
from bakemesh.protocol.psyspec import bringup, groups, load_psyspec
from bakemesh.protocol.subjects import WORKER_STATUS, build
from bakemesh.workerpool import Call, Sampling, Text
from support.lanehosts import embed, lanehost, module, served
from support.mesh import Mesh, mesh
from support.modules import board
from support.nats import server
from support.processes import gone
from support.startup import startup
from support.waiting import eventually
from support.workerpools import ids

SPEC = """<psySpec name="p"><module name="workers" {attributes}>
  <crank service="lanes"/>
  <parameter name="engine" type="String" value="fake"/><parameter name="{count}" type="Integer" value="2"/>
</module></psySpec>"""


async def bring_up(net: Mesh, *, count: str = "workers", attributes: str = "") -> object:
    """Gives what became of the bake that starts it."""
    async with net.supervisor("boss") as boss:
        (group,) = groups(load_psyspec(SPEC.format(count=count, attributes=attributes)), "alpha", "alpha")
        bake = await boss.bake(bringup(group), node_id="alpha")
        return await bake.outcome()


async def test_a_psyspec_brings_it_up_and_its_lanes_come_back_after_a_kill(tmp_path: Path) -> None:
    async with (
        mesh(tmp_path, guard=False) as net,
        net.connect("eyes") as bus,
        board(bus) as seen,
        module(tmp_path, net.url, "beta") as mine,
    ):
        outcome = await bring_up(net)
        assert isinstance(outcome, BakeSuccess), outcome
        assert await mine.idle(2) == ["alpha/workers-w0", "alpha/workers-w1"]
        key = mine.know()
        assert (await embed(mine.lanes, "alpha/workers-w0", key, [1])).n == 1
        row = await seen.until("workers", "ready", within=60)
        pid = int(str(row["pid"]))
        os.kill(pid, signal.SIGKILL)
        await seen.until("workers", lambda now: now["state"] == "ready" and now["pid"] != pid, within=60)
        await mine.idle(2)
        assert (await embed(mine.lanes, "alpha/workers-w0", key, [2])).n == 1
        assert len(mine.served) == 1  # its cache is on the disk
        again = int(str((await seen.until("workers", "ready", within=60))["pid"]))
        assert await net.node.stop() == 0
        await eventually(lambda: gone(again), what="the lane host's end")
        await eventually(lambda: not mine.lanes.views(), what="its lanes closed")


async def test_a_parameter_that_is_none_is_told_to_the_builder(tmp_path: Path) -> None:
    async with mesh(tmp_path, guard=False) as net, net.connect("eyes") as bus, board(bus) as seen:
        bringing = asyncio.create_task(bring_up(net, count="worker", attributes='restart="never"'))
        row = await seen.until("workers", lambda now: "'worker'" in str(now.get("reason")), within=60)
        assert "workers, engine, cache" in str(row["reason"])
        bringing.cancel()
        await asyncio.gather(bringing, return_exceptions=True)


async def test_the_rights_of_its_role_are_enough_and_others_may_not_ask(tmp_path: Path) -> None:
    roles = {"synapse": "alpha", "lanes": "gamma"}
    async with mesh(tmp_path, nodes=(), inference=roles) as net, AsyncExitStack() as stack:
        host = await stack.enter_async_context(
            lanehost(tmp_path, net.url, "gamma", *net.key_flags("lanes"), workers=1)
        )
        bus = await stack.enter_async_context(net.connect("synapse"))
        mine = await stack.enter_async_context(served(bus, tmp_path))
        key = mine.know()
        (lane,) = await mine.idle()
        assert (await embed(mine.lanes, lane, key, [1], [2])).n == 2  # its artifact pulled too
        stream = mine.lanes.generate_stream(lane, key, ids(7, 8), 10, Sampling(), Call())
        assert [each async for each in stream][-1] == Text("7 8 ", 2, 2, "stop")
        for party in ("boss", "ops"):
            other = await stack.enter_async_context(net.connect(party))
            with pytest.raises(AccessDenied):
                await other.request(
                    build(other.mesh, "gamma", party, "lanes-w0", m.LanePing.TYPE), m.LanePing()
                )
        status = m.LaneStatus(
            node="G", node_id="gamma", lane="lanes-w0", run="x", serial=1, state="closed", models=[]
        )
        await bus.publish(build(bus.mesh, "gamma", "synapse", "lanes-w0", WORKER_STATUS), status)
        await bus.link.barrier()
        assert mine.view(lane).up  # a module of node alpha cannot speak for gamma
        assert await host.stop() == 0
        assert "denied" not in host.log.read_text().lower()
        assert "may not" not in host.log.read_text().lower()


async def test_two_hosts_of_one_node_have_lanes_of_their_own_names(tmp_path: Path) -> None:
    async with (
        server(tmp_path) as nats,
        lanehost(tmp_path, nats.url, "gamma", "--name=one") as first,
        module(tmp_path, nats.url) as mine,
    ):
        command = [each for each in first.command if not each.startswith("--name")]
        process = await asyncio.create_subprocess_exec(
            *command, "--name=two", stdout=asyncio.subprocess.DEVNULL
        )
        try:
            assert await mine.idle(2) == ["gamma/one-w0", "gamma/two-w0"]
        finally:
            process.kill()
            await process.wait()


async def test_the_verb_of_the_command_line_is_the_same_process(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, module(tmp_path, nats.url) as mine:
        flags = ("--nats", nats.url, "--node", "gamma", "--state", str(tmp_path / "state"))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bakemesh.cli", "lanes", *flags, "--engine=fake", "--workers=1"),
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert await mine.idle() == ["gamma/lanes-w0"]
            process.terminate()
            assert await process.wait() == 0
            assert process.stdout is not None
            assert (await process.stdout.read()).startswith(b"ready {")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def test_a_second_host_on_the_same_folder_says_why_it_ends(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, lanehost(tmp_path, nats.url) as first:
        process = await asyncio.create_subprocess_exec(*first.command, stderr=asyncio.subprocess.PIPE)
        _, said = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 1
        assert b"is another pool's at this time" in said


async def test_a_bus_that_is_not_there_is_said(tmp_path: Path) -> None:
    async with startup(
        tmp_path, "nats://127.0.0.1:1", "gamma", None, "--engine=fake", program="bakemesh.lanes", wait=False
    ) as running:
        assert await running.ended() == 5
        assert "no NATS server reached" in running.log.read_text()


async def test_when_it_has_ended_nobody_answers(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, module(tmp_path, nats.url) as mine:
        async with lanehost(tmp_path, nats.url) as host:
            await mine.idle()
            assert await host.stop() == 0
        with pytest.raises(NoResponder):
            await mine.bus.request(
                build(mine.bus.mesh, "gamma", "synapse", "lanes-w0", m.LanePing.TYPE), m.LanePing()
            )
