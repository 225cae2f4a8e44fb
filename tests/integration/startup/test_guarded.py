"""On a server with the generated authorization: its own key is enough for all it does, and who may give it a
PsySpec."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack

from bakemesh.bus import Credentials
from bakemesh.bus.keys import make_user_key
from bakemesh.bus.kv import Bucket
from bakemesh.protocol import storage
from bakemesh.protocol.builder.messages import Result
from bakemesh.protocol.rights import Grant, authorization_block, builder_name, startup_name
from bakemesh.protocol.startup import PsySpecMessage
from bakemesh.protocol.subjects import Role, build
from support.builder import builder
from support.nats import MESH, connect, server
from support.startup import startup
from support.waiting import eventually

SPEC = (
    '<psySpec name="demo"><node name="alpha"/><cohort name="web" nodes="alpha"/>'
    '<module name="one" ready-ms="50"><crank command="sleep 300"/></module></psySpec>'
)


async def test_everything_with_a_key_of_its_own(tmp_path):
    keys = {
        name: make_user_key() for name in ("builder-alpha", "startup-alpha", "ops", "stranger", "witness")
    }
    grants = [
        Grant(Role.BUILDER, builder_name("alpha"), keys["builder-alpha"].public, "alpha"),
        Grant(Role.SUPERVISOR, startup_name("alpha"), keys["startup-alpha"].public, "alpha"),
        Grant(Role.OPERATOR, "ops", keys["ops"].public),
        Grant(Role.OPERATOR, "stranger", keys["stranger"].public),
        Grant(Role.LEAF, "witness", keys["witness"].public),
    ]
    for name, key in keys.items():
        (tmp_path / f"{name}.nk").touch(mode=0o600)
        (tmp_path / f"{name}.nk").write_text(key.seed)
    block = authorization_block(grants, mesh=MESH)
    async with AsyncExitStack() as stack:
        nats = await stack.enter_async_context(server(tmp_path, authorization=block))
        flags = ("--on-stop", "stop", "--creds", str(tmp_path / "builder-alpha.nk"))
        await stack.enter_async_context(builder(tmp_path, nats.url, *flags))
        flags = ("--creds", str(tmp_path / "startup-alpha.nk"), "--operator", "ops")
        running = await stack.enter_async_context(startup(tmp_path, nats.url, "alpha", SPEC, *flags))
        await running.until("announced")

        async def give(issuer: str, text: str) -> Result:
            credentials = Credentials(nkey_seed=keys[issuer].seed)
            async with connect(nats.url, name=issuer, identity=issuer, credentials=credentials) as bus:
                subject = build(MESH, "alpha", issuer, startup_name("alpha"), PsySpecMessage.TYPE)
                answer = (await bus.request(subject, PsySpecMessage(psyspec=text, issuedby=issuer))).message
                assert isinstance(answer, Result)
                return answer

        refused = await give("stranger", SPEC)
        assert (refused.accepted, refused.code) == (False, "unauthorised")
        assert (await give("ops", SPEC.replace('"one"', '"other"'))).accepted
        told = await running.until("reconciled")
        assert (told["added"], told["removed"]) == (["other"], ["one"])
        credentials = Credentials(nkey_seed=keys["witness"].seed)
        witness = connect(nats.url, name="witness", identity="witness", credentials=credentials)
        bus = await stack.enter_async_context(witness)
        for bucket, key in (
            (storage.nodes_bucket(MESH), storage.ready_key("alpha")),
            (storage.cohorts_bucket(MESH), "web"),
        ):
            await eventually(lambda bucket=bucket, key=key: Bucket(bus, bucket).get(key), what=key)
        info = json.loads((await bus.link.ask("$SRV.INFO.startup", b"", 5)).data)
        assert info["metadata"]["node"] == "alpha"
        assert await running.stop() == 0
        assert "denied" not in running.log.read_text().lower()
