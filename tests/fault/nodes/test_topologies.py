"""Each topology by the flags of `bakemesh up`, on hosts of their own: a recipe sent anywhere reaches the node
that it names, and Status, Data and the answers to controls come back to where it was sent.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.hosts import Host, Net, Program, Server, far, free, hosts, local_bus, nats_server, up
from support.house import python

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("default::support.hosts.NoNamespaces"),
]

# The first step waits for its gate, so that a Pause is answered while it runs; then 200 lines.
STEERED = (
    '<recipe name="steered"><cli command="sleep 1"/>'
    f"<cli data-interval-ms='0'>{python('for n in range(200): print(n, flush=True)')}</cli></recipe>"
)
SIZE = len("".join(f"{n}\n" for n in range(200)))


async def send(host: Host, name: str, nats: list[str], node_id: str, audit: str) -> Program:
    """A Supervisor on the host sends the recipe, pauses and starts it, and follows it."""
    return await far(host, name, nats=nats, node_id=node_id, recipe=STEERED, steer=True, audit=audit)


async def came_back(boss: Program, node_id: str) -> None:
    """All of it came back."""
    told = await boss.event("followed", within=120)
    assert (told["outcome"], told["size"]) == ("success", SIZE)
    assert told["serials"] == list(range(1, len(told["serials"]) + 1))
    results = [one for one in boss.told() if one["event"] == "result"]
    assert [(one["verb"], one["accepted"], one["node_id"]) for one in results] == [
        ("Pause", True, node_id),
        ("Start", True, node_id),
    ]
    acks = [one for one in boss.told() if one["event"] == "status" and one["kind"] == "ack"]
    assert len(acks) == 2
    audit = await boss.event("audit")
    assert audit["serials"] == told["serials"]
    assert audit["seqs_in_order"]
    assert await boss.ended() == 0


async def test_one_server_of_its_own(tmp_path: Path) -> None:
    """`bakemesh up`: nothing leaves the host, and nobody else can reach it."""
    async with hosts(tmp_path, "a", "b") as net:
        await up(net["a"], "--node", "a")
        await came_back(await send(net["a"], "boss", [local_bus(net["a"])], "a", "shared"), "a")
        if net.wires.prefix("b"):  # on loopback everybody is on the same host
            port = int(local_bus(net["a"]).rpartition(":")[2])
            stranger = await far(
                net["b"], "stranger", nats=[await net.way("b", "a", port)], node_id="a", recipe=STEERED
            )
            assert await stranger.ended(within=60) != 0
            assert not stranger.lines


async def test_leaves_reach_each_other_through_the_hub(tmp_path: Path) -> None:
    """`--join`: from one leaf to the other, from the hub to a leaf, from a leaf to a node at the hub."""
    async with hosts(tmp_path, "hub", "b", "c") as net:
        hub = await nats_server(net["hub"])
        near = await net.way("hub", "hub", hub.port)
        await up(net["hub"], "--nats", near, "--node", "a")
        for host in ("b", "c"):
            await up(net[host], "--join", await net.way(host, "hub", hub.leaf_port), "--node", host)
        for number, (here, nats, there) in enumerate(
            [
                ("b", local_bus(net["b"]), "c"),
                ("c", local_bus(net["c"]), "a"),
                ("hub", near, "b"),
                ("c", local_bus(net["c"]), "c"),
            ]
        ):
            audit = "shared" if there == "a" else "leaf"
            await came_back(await send(net[here], f"boss-{number}", [nats], there, audit), there)


async def cluster(net: Net, names: tuple[str, ...]) -> dict[str, Server]:
    """Servers on these hosts, of one cluster."""
    clients = {name: free(net[name], 4222) for name in names}
    ports = {name: free(net[name], 6222) for name in names}
    servers = {}
    for name in names:
        routes = [await net.way(name, other, ports[other]) for other in names]
        servers[name] = await nats_server(
            net[name], name=name, route=(ports[name], routes), port=clients[name]
        )
    return servers


SLOW = "import time\nfor n in range(400): print(n, flush=True); time.sleep(0.05)"


async def test_a_cluster_of_three_of_which_each_is_killed_in_turn(tmp_path: Path) -> None:
    """`--nats URL,URL,URL`: whichever server dies, the leader of the streams among them, nothing is lost."""
    names = ("s0", "s1", "s2")
    async with hosts(tmp_path, *names, "a", "b") as net:
        servers = await cluster(net, names)

        async def everywhere(here: str) -> list[str]:
            return [await net.way(here, name, servers[name].port) for name in names]

        for node in ("a", "b"):
            nats = ",".join(await everywhere(node))
            await up(net[node], "--nats", nats, "--node", node, "--store-max-bytes", "64MiB")
        await came_back(await send(net["a"], "first", await everywhere("a"), "b", "shared"), "b")
        recipe = f"<recipe name='slow'><cli data-interval-ms='0'>{python(SLOW)}</cli></recipe>"
        boss = await far(
            net["a"], "boss", nats=await everywhere("a"), node_id="b", recipe=recipe, audit="shared"
        )
        for turn, name in enumerate(names):

            def beyond(_: list[str], turn: int = turn) -> bool:
                return any(one.get("chunks", 0) > 100 * turn for one in boss.told())

            await boss.said(beyond, what=f"more than {100 * turn} chunks", within=90)
            await servers[name].program.kill()
            routes = servers[name].routes
            servers[name] = await nats_server(
                net[name], name=name, route=routes, port=servers[name].port, leaf_port=servers[name].leaf_port
            )
        told = await boss.event("followed", within=150)
        assert (told["outcome"], told["size"]) == ("success", len("".join(f"{n}\n" for n in range(400))))
        assert told["serials"] == list(range(1, len(told["serials"]) + 1))
        audit = await boss.event("audit")
        assert audit["serials"] == told["serials"]
        assert (audit["seqs_from"], audit["seqs_to"]) == (1, told["chunks"])
        assert audit["seqs_in_order"]
