"""Crank hosts with keys, on a server that knows its parties: all of the API works, and no more than that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bakemesh.bus import Bucket, Credentials
from bakemesh.bus.posts import ensure_posts
from bakemesh.protocol import storage
from bakemesh.protocol.builder.spec.component import ComponentSpec, Health, Post, Trigger
from bakemesh.protocol.rights import builder_name
from support.cranks import NODE, SAID, Desk, Host, crankhost, desk, spec
from support.nats import MESH, Guarded, guarded
from support.waiting import eventually

TYPES = ("Robot.*", "Psyclone.Ready")
TRIGGERS = (
    Trigger(name="In", type="Robot.*", durable=("Robot.Count",)),
    Trigger(name="Up", type="Psyclone.Ready"),
)
POSTS = (Post(name="Count", type="Robot.Count", durable=True),)
SOURCE = """
async def crank(api):
    await api.post("Count", {"n": 1})
    async for message in api.messages():
        api.watch("n", message.entries["n"])
        await api.post("Say", {"n": message.entries["n"], "type": message.type, "sender": message.sender})
"""


@asynccontextmanager
async def guarded_host(
    net: Guarded, folder: Path, of: ComponentSpec
) -> AsyncIterator[tuple[Host, Desk, Desk]]:
    """A host, its Builder's stand-in, and a witness who may do everything."""
    keys = {name: Credentials(nkey_seed=key.seed) for name, key in net.keys.items()}
    key = folder / f"{of.name}.nk"
    key.touch(mode=0o600)
    key.write_text(net.keys[of.name].seed)
    async with (
        desk(net.server.url, node_id=NODE, credentials=keys[builder_name(NODE)]) as builder,
        net.connect("witness") as eyes,
    ):
        witness = Desk(eyes)
        await witness.listen(SAID)
        await ensure_posts(builder.bus, ["Robot.Count"])
        await Bucket(builder.bus, storage.nodes_bucket(MESH)).ensure()
        async with crankhost(folder, net.server.url, of, creds=str(key)) as host:
            yield host, builder, witness


@pytest.mark.parametrize(
    ("role", "listed"), [("module", True), ("module", False), ("supervisor", True)], ids=str
)
async def test_all_of_it_works_with_the_rights_of_a_component(tmp_path: Path, role: str, listed: bool):
    of = spec(
        "counter",
        SOURCE,
        triggers=TRIGGERS,
        posts=POSTS,
        health=Health(subject="Counter.Alive"),
        supervisor=role == "supervisor",
    )
    parties = {f"{role}s": ("counter",), "witnesses": ("witness",)}
    if listed:
        parties["triggers"] = {"counter": TYPES}  # type: ignore[assignment]
    async with (
        guarded(tmp_path, **parties) as net,
        guarded_host(net, tmp_path, of) as (host, builder, witness),
    ):
        await builder.ready(host)
        assert (await witness.said(1))[0] == {"n": 1, "type": "Robot.Count", "sender": "counter"}
        await witness.post("Robot.Live", {"n": 2})
        assert (await witness.said(2))[1] == {"n": 2, "type": "Robot.Live", "sender": "tester"}
        await eventually(lambda: builder.shown("counter").get("n") == "2", what="the live value")
        taken = await builder.deliver("counter", "In", "Robot.Handed", {"n": 3})
        assert taken.accepted
        assert (await witness.said(3))[2]["n"] == 3
        assert (await builder.probe("counter", "Counter.Alive")).summary == "alive"
        assert await host.stop() == 0
    assert "does not let" not in host.out
    assert "Violation" not in host.out


async def test_a_trigger_that_its_key_may_not_hear_is_a_failure_that_names_it(tmp_path: Path):
    of = spec("counter", SOURCE, triggers={"In": "Robot.Secret"}, posts=POSTS)
    async with (
        guarded(
            tmp_path, modules=("counter",), witnesses=("witness",), triggers={"counter": ("Robot.Live",)}
        ) as net,
        guarded_host(net, tmp_path, of) as (host, builder, _),
    ):
        assert await host.ended() == 70
        assert f"counter may not subscribe {MESH}.*.*.*.Robot.Secret" in builder.failure(host).summary


async def test_a_key_that_the_server_does_not_know_ends_the_host_with_a_clear_line(tmp_path: Path):
    async with guarded(tmp_path, modules=("counter",)) as net:
        async with crankhost(tmp_path, net.server.url, spec("counter", SOURCE)) as host:
            assert await host.ended() == 70
        assert "no connection to the bus" in host.out
        assert "Traceback" not in host.out
