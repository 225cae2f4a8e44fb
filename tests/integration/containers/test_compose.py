"""compose.yaml as it is meant to be used: three nodes and the demo PsySpec, from images of this checkout."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from bakemesh.bus import Bus, BusSettings
from bakemesh.bus.errors import BusError
from bakemesh.bus.kv import Bucket
from bakemesh.protocol import storage
from bakemesh.protocol.message import decode
from bakemesh.protocol.startup import Ready
from bakemesh.supervisor import Supervisor
from support.containers import SERVICES, Composition, composition
from support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
NODES = ("alpha", "beta", "gamma")


@pytest.fixture(scope="module")
def mesh() -> Iterator[Composition]:
    with composition() as running:
        yield running


async def ready_of(url: str, node_id: str) -> tuple[str, Ready] | None:
    """The note of a node's Psyclone.Ready, with its envelope's id."""
    try:
        async with await Bus.connect(BusSettings(servers=(url,), name="tester", node_id="local")) as bus:
            entry = await Bucket(bus, storage.nodes_bucket(bus.mesh)).get(storage.ready_key(node_id))
    except BusError:
        return None
    if entry is None:
        return None
    told = decode(entry.value)
    assert isinstance(told.message, Ready)
    return told.id.hex(), told.message


async def test_the_composition_reaches_ready(mesh: Composition) -> None:
    for service in SERVICES:
        mesh.healthy(service)
    _, ready = await eventually(lambda: ready_of(mesh.url, "alpha"), what="Psyclone.Ready", within=120)
    assert ready.node_id == "alpha"
    assert ready.components
    async with Supervisor.connect(mesh.url, "host") as host:
        assert {node.node_id for node in await host.nodes() if node.alive} == set(NODES)


@pytest.mark.parametrize("node", NODES)
def test_a_node_has_no_rights_in_its_container(mesh: Composition, node: str) -> None:
    assert mesh.inside(node, "id", "-u").strip() == "10001"
    status = mesh.inside(node, "cat", "/proc/1/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert int(fields["CapEff"], 16) == 0
    assert int(fields["CapBnd"], 16) == 0
    assert fields["NoNewPrivs"].strip() == "1"
    assert fields["Uid"].split() == ["10001"] * 4


async def test_a_recipe_from_the_host_is_baked_on_each_node(mesh: Composition) -> None:
    async with Supervisor.connect(mesh.url, "host") as host:
        for node in NODES:
            bake = await host.bake('<recipe name="who"><cli command="id -un"/></recipe>', node=node)
            output = b"".join([chunk.data async for chunk in bake.data()])
            assert (await bake.outcome()).outcome == "success"
            assert output == b"bakemesh\n"


async def test_a_killed_container_comes_back_and_the_node_goes_on(mesh: Composition) -> None:
    before = await eventually(lambda: ready_of(mesh.url, "alpha"), what="Psyclone.Ready", within=120)
    for service in ("alpha", "beta"):
        mesh.healthy(service)
        async with Supervisor.connect(mesh.url, "host") as host:
            bake = await host.bake('<recipe name="long"><cli command="sleep 600"/></recipe>', node=service)
            pid = mesh.state(service)["Pid"]
            mesh.kill(service)
            mesh.until(
                lambda pid=pid, service=service: mesh.state(service)["Pid"] not in (0, pid),  # type: ignore[misc]
                f"{service} started again",
            )
            mesh.healthy(service)
            outcome = await asyncio.wait_for(bake.outcome(), 60)
            assert (outcome.outcome, outcome.code) == ("failed", "builder_restarted")
            after = await host.bake('<recipe name="after"><cli command="true"/></recipe>', node=service)
            assert (await asyncio.wait_for(after.outcome(), 60)).outcome == "success"
    now = await ready_of(mesh.url, "alpha")
    assert now is not None
    assert now[0] == before[0], "Ready is said once, crash or not"


async def test_a_stop_leaves_the_builder_its_time(mesh: Composition) -> None:
    async with Supervisor.connect(mesh.url, "host") as host:
        bake = await host.bake('<recipe name="long"><cli command="sleep 600"/></recipe>', node="gamma")
        await asyncio.to_thread(mesh.compose, "stop", "gamma")
        assert mesh.state("gamma")["ExitCode"] == 0, "not killed"
        await asyncio.to_thread(mesh.compose, "start", "gamma")
        mesh.healthy("gamma")
        outcome = await asyncio.wait_for(bake.outcome(), 60)
        assert (outcome.outcome, outcome.code) == ("failed", "builder_restarted")


def test_a_node_without_its_bus_is_not_healthy(mesh: Composition) -> None:
    mesh.compose("stop", "nats")
    code, said = mesh.container("beta").exec_run(["python3", "-I", "/opt/bakemesh/probe.py"])
    assert code == 1
    assert "nats://nats:4222" in said.decode()
    mesh.compose("start", "nats")
    mesh.healthy("nats")
    for node in NODES:
        mesh.healthy(node)
