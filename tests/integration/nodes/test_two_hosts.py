"""Two nodes on hosts of their own: a recipe from one to the other, 10,000 chunks of output back.

The Supervisor is on the first node's host, then on a third one; the nodes are on one shared server, then the
far one is on a leaf. What arrived is compared with what the step wrote, by SHA-256, and with the streams.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from support.hosts import Net, Program, far, hosts, local_bus, nats_server, up
from support.house import python

CHUNKS, CHUNK_BYTES = 10_000, 1024

# Full chunks of a size that one read of the pipe holds many of; the digest lies beside, for the test alone.
WRITES = f"""
import hashlib, os, sys
digest = hashlib.sha256()
for number in range({CHUNKS}):
    piece = os.urandom({CHUNK_BYTES})
    digest.update(piece)
    sys.stdout.buffer.write(piece)
sys.stdout.flush()
open(sys.argv[1], "w").write(digest.hexdigest())
"""


def recipe(digest: Path) -> str:
    """Its output comes as exactly CHUNKS chunks, and perhaps an empty last one."""
    return (
        f'<recipe name="ten-thousand"><cli max-data-bytes="{CHUNK_BYTES}">{python(WRITES)}'
        f"<arg>{digest}</arg></cli></recipe>"
    )


@asynccontextmanager
async def two_nodes(folder: Path, topology: str) -> AsyncIterator[tuple[Net, int]]:
    """Hosts a (the server and node a), b (node b), c (nothing); gives the server's port too."""
    async with hosts(folder, "a", "b", "c") as net:
        hub = await nats_server(net["a"])
        await up(
            net["a"], "--nats", await net.way("a", "a", hub.port), "--node", "a", "--nodes-expected", "2"
        )
        joining = (
            ("--join", await net.way("b", "a", hub.leaf_port))
            if topology == "leaf"
            else ("--nats", await net.way("b", "a", hub.port), "--nodes-expected", "2")
        )
        await up(net["b"], *joining, "--node", "b")
        yield net, hub.port


async def followed(supervisor: Program, digest: Path) -> None:
    """What the Supervisor saw is what the step wrote."""
    told = await supervisor.event("followed", within=120)
    assert told["outcome"] == "success"
    assert told["size"] == CHUNKS * CHUNK_BYTES
    assert told["chunks"] in (CHUNKS, CHUNKS + 1)
    assert told["sha256"] == digest.read_text()
    assert told["serials"] == list(range(1, len(told["serials"]) + 1))
    audit = await supervisor.event("audit", within=60)
    assert audit["serials"] == told["serials"]
    assert (audit["seqs_from"], audit["seqs_to"]) == (1, told["chunks"])
    assert audit["seqs_in_order"]
    assert await supervisor.ended() == 0


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("default::support.hosts.NoNamespaces")
@pytest.mark.parametrize("topology", ["shared", "leaf"])
async def test_ten_thousand_chunks_come_back_to_another_host_byte_for_byte(
    topology: str, tmp_path: Path
) -> None:
    async with two_nodes(tmp_path, topology) as (net, port):
        for number, host in enumerate(("a", "c")):
            digest = tmp_path / f"digest-{number}"
            nats = [await net.way(host, "a", port)]
            order = {"nats": nats, "node_id": "b", "recipe": recipe(digest), "audit": topology}
            await followed(await far(net[host], f"boss-{number}", **order), digest)


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("default::support.hosts.NoNamespaces")
async def test_recipes_cross_in_both_directions_at_once(tmp_path: Path) -> None:
    """A leaf's Supervisor, at its own server, bakes on the hub's node, and the other side on the leaf."""
    async with two_nodes(tmp_path, "leaf") as (net, port):
        sides = [("a", await net.way("a", "a", port), "b", "leaf"), ("b", local_bus(net["b"]), "a", "shared")]
        bosses = []
        for here, nats, there, audit in sides:
            digest = tmp_path / f"digest-{there}"
            order = {"nats": [nats], "node_id": there, "recipe": recipe(digest), "audit": audit}
            bosses.append((await far(net[here], f"boss-{here}", **order), digest))
        await asyncio.gather(*(followed(boss, digest) for boss, digest in bosses))
        digests = {hashlib.sha256(digest.read_bytes()).hexdigest() for _, digest in bosses}
        assert len(digests) == 2, "each side had output of its own"
