"""A recipe for another node, sent to the wrong one: passed on once, under the target's rules; or it waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from bakemesh.bus import Sealed
from bakemesh.protocol import subjects
from bakemesh.protocol.builder.messages import BakeFailed, BakeSuccess, Result
from bakemesh.protocol.identity import Identity
from bakemesh.supervisor import BakeUnknown, NodeUnreachable
from support.house import House, check_story, output_of, running_house, said
from support.letters import again, inbox_subject, recipe_letter, send
from support.mesh import mesh
from support.waiting import eventually

_XML = '<recipe name="far"><cli command="echo {}"/></recipe>'


def far(number: int, node_id: str = "beta") -> Identity:
    return Identity("boss", "far", f"boss-far-{number}", node_id, node_id)


def at_alpha(house: House, identity: Identity, *, party: str | None = None) -> str:
    """The subject of alpha's inbox, whatever node the recipe names."""
    return subjects.build(
        house.bus.mesh, "alpha", party or identity.supervisor, identity.recipe_id, subjects.RECIPE
    )


async def test_a_recipe_is_forwarded_to_its_node(tmp_path: Path) -> None:
    async with running_house(tmp_path) as house, house.net.builder("beta", "--accept-forwarded", "yes"):
        secret = house.canary()
        identity, xml = far(1), _XML.format(secret)
        sealed = recipe_letter(identity, xml)
        # The answer is the target's, and there is one.
        result = await send(house.bus, at_alpha(house, identity), sealed)
        assert (result.accepted, result.node_id, result.recipe_id) == (True, "beta", identity.recipe_id)
        bake = await house.boss.attach(identity.recipe_id, node_id="beta")
        story = [status async for status in bake.status()]
        check_story(story, bake)
        assert isinstance(story[-1], BakeSuccess)
        assert bake.identity == identity
        assert await output_of(bake) == {(0, "stdout"): f"{secret}\n".encode()}
        # The same message again, for its Result was lost: the target says it again, and bakes nothing.
        for _ in range(2):
            repeated = await send(house.bus, at_alpha(house, identity), again(sealed))
            assert repeated.entries() == result.entries()
        other = recipe_letter(identity, xml)
        result = await send(house.bus, at_alpha(house, identity), other)
        assert (result.code, result.node_id) == ("duplicate_recipe_id", "beta")
        assert len([s for s in house.tap.statuses if s.recipe_id == identity.recipe_id]) == len(story)

        # Every refusal is the target's, once, and on the subjects of the owner.
        bad = far(2)
        result = await send(house.bus, at_alpha(house, bad), recipe_letter(bad, '<recipe name="far"/>'))
        assert (result.code, result.node_id) == ("invalid_recipe", "beta")
        await eventually(
            lambda: [s for s in house.tap.statuses if s.recipe_id == bad.recipe_id], what="Failed"
        )
        (failed,) = [s for s in house.tap.statuses if s.recipe_id == bad.recipe_id]
        assert isinstance(failed, BakeFailed)
        assert (failed.code, failed.node_id, failed.supervisor) == ("invalid_recipe", "beta", "boss")

        # A thief's is stopped at the first node.
        stolen = far(3)
        result = await send(house.bus, at_alpha(house, stolen, party="thief"), recipe_letter(stolen, xml))
        assert (result.code, result.node_id) == ("unauthorised", "alpha")

        # What was forwarded is not forwarded again.
        lost = far(4, "gamma")
        subject = subjects.build(house.bus.mesh, "beta", "builder-alpha", lost.recipe_id, subjects.RECIPE)
        result = await send(house.bus, subject, recipe_letter(lost, xml))
        assert (result.code, result.node_id) == ("wrong_identity", "beta")
        assert "forwarded by builder-alpha" in result.summary

        # A forwarder is no owner: what it sends under its own name is its own child recipe.
        own = Identity("builder-alpha", "far", "builder-alpha-far-77", "beta", "beta")
        result = await send(house.bus, inbox_subject(house.bus, own), recipe_letter(own, xml))
        assert result.accepted


async def test_a_node_that_takes_nothing_forwarded(tmp_path: Path) -> None:
    async with (
        running_house(tmp_path) as house,
        house.net.builder("beta", "--accept-forwarded", "no"),
    ):
        identity = far(1)
        sealed = recipe_letter(identity, _XML.format("x"))
        result = await send(house.bus, at_alpha(house, identity), sealed)
        assert (result.code, result.node_id) == ("unauthorised", "beta")
        assert "accept-forwarded" in result.summary
        await eventually(
            lambda: [s for s in house.tap.statuses if s.node_id == "beta"], what="the Bake.Failed"
        )
        (failed,) = [s for s in house.tap.statuses if s.node_id == "beta"]
        assert isinstance(failed, BakeFailed)
        assert (failed.code, failed.recipe_id) == ("unauthorised", identity.recipe_id)
        assert failed.identity == identity, "told to the Supervisor, who waits, and not to the forwarder"
        # Sent to the node itself it is taken: unauthorised uses no RecipeID up.
        direct = recipe_letter(identity, _XML.format("x"))
        result = await send(house.bus, inbox_subject(house.bus, identity), direct)
        assert result.accepted, result


async def test_with_authorization_a_refused_forward_ends_the_supervisors_waiting(tmp_path: Path) -> None:
    async with mesh(tmp_path, nodes=("alpha", "beta")) as net, net.connect("boss") as bus:
        identity = far(1)
        ends: list[BakeFailed] = []
        failed = subjects.pattern(bus.mesh, BakeFailed.TYPE, party="boss")
        await bus.subscribe(failed, lambda delivery: ends.append(delivery.received.message))  # type: ignore[arg-type]
        subject = subjects.build(bus.mesh, "alpha", "boss", identity.recipe_id, subjects.RECIPE)
        result = await send(bus, subject, recipe_letter(identity, _XML.format("x")))
        assert (result.code, result.node_id) == ("unauthorised", "beta")
        await eventually(lambda: ends, what="the Bake.Failed on the Supervisor's own subjects")
        assert [(end.identity, end.code) for end in ends] == [(identity, "unauthorised")]


async def test_only_the_protocols_own_headers_go_on(tmp_path: Path) -> None:
    """What the sender's client asked of its own stream would be refused by the target's, for ever."""
    async with running_house(tmp_path) as house, house.net.builder("beta", "--accept-forwarded", "yes"):
        passed: list[Mapping[str, str]] = []
        pattern = subjects.pattern(house.bus.mesh, subjects.RECIPE, node_id="beta", party="builder-alpha")
        await house.bus.subscribe(pattern, lambda delivery: passed.append(delivery.headers))
        identity = far(1)
        headers = {
            "Nats-Expected-Last-Sequence": "0",
            "Nats-Expected-Stream": "psyclone-inbox",
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "X-Own": "1",
        }
        sealed = recipe_letter(identity, _XML.format("x"))
        with house.bus.inbox_reply() as reply:
            await house.bus.publish_stored(at_alpha(house, identity), sealed, reply.subject, headers)
            answer = (await reply.received(20)).message
            assert isinstance(answer, Result)
            assert (answer.accepted, answer.node_id) == (True, "beta")
            assert passed == [
                {
                    "Nats-Msg-Id": f"{sealed.msg_id}-fwd",
                    "Bakemesh-Reply": reply.subject,
                    "traceparent": headers["traceparent"],
                }
            ]


async def test_a_recipe_that_can_never_be_forwarded_is_refused_by_the_forwarder(tmp_path: Path) -> None:
    async with mesh(tmp_path) as net, net.connect("boss") as bus:
        ends: list[BakeFailed] = []
        failed = subjects.pattern(bus.mesh, BakeFailed.TYPE, party="boss")
        await bus.subscribe(failed, lambda delivery: ends.append(delivery.received.message))  # type: ignore[arg-type]

        async def refused(identity: Identity, sealed: Sealed, code: str) -> Result:
            subject = subjects.build(bus.mesh, "alpha", "boss", identity.recipe_id, subjects.RECIPE)
            result = await send(bus, subject, sealed)
            assert (result.accepted, result.code, result.node_id) == (False, code, "alpha")
            assert "cannot be forwarded to node beta" in result.summary
            repeated = await send(bus, subject, again(sealed))
            assert repeated.entries() == result.entries()
            await eventually(lambda: [e for e in ends if e.recipe_id == identity.recipe_id], what="the end")
            return result

        # So large that the server takes it with the sender's headers, and perhaps not with the forwarder's.
        large = far(1)
        room = bus.max_payload - 400 - len(recipe_letter(large, "").payload)
        await refused(large, recipe_letter(large, "x" * room), "too_large")

        # The server does not let this Builder send recipes.
        config = net.nats.config
        own = subjects.pattern(bus.mesh, subjects.RECIPE, party="builder-alpha")
        assert config.authorization is not None
        assert f'"{own}"' in config.authorization
        changed = config.authorization.replace(f'"{own}"', '"nothing"')
        net.nats.config = replace(config, authorization=changed)
        await net.nats.restart()
        await eventually(lambda: bus.connected, what="the link")
        denied = far(2)
        result = await refused(denied, recipe_letter(denied, _XML.format("x")), "unauthorised")
        assert "may not publish" in result.summary

        # Nothing is left to send, and no RecipeID was used up: what is sent to the right node is taken.
        async with net.builder("beta"):
            subject = inbox_subject(bus, denied)
            assert (await send(bus, subject, recipe_letter(denied, _XML.format("x")))).accepted
        assert [end.recipe_id for end in ends if end.node_id == "alpha"] == [
            large.recipe_id,
            denied.recipe_id,
        ]


async def test_a_node_that_does_not_exist_yet(tmp_path: Path) -> None:
    """Its recipe stays in the inbox, sent straight or by way of another node, and is baked when it comes."""
    async with running_house(tmp_path) as house:
        secret = house.canary()
        xml = _XML.format(secret)
        straight = await house.boss.bake(xml, node_id="ghost", result_timeout_s=0.2)
        assert straight.waiting
        with pytest.raises(NodeUnreachable):
            await straight.cancel()
        late = await house.boss.bake(xml, node_id="ghost", result_timeout_s=0.2, expires_s=0.1)
        roundabout = far(900, "ghost")
        await house.bus.publish_stored(at_alpha(house, roundabout), recipe_letter(roundabout, xml))
        # Alpha goes on meanwhile.
        here = await house.bake('<recipe name="here"><cli command="true"/></recipe>')
        await here.outcome()
        async with house.net.supervisor("boss") as other:
            seen = await other.attach(straight.recipe_id, node_id="ghost")
            assert seen.waiting
        assert straight.waiting
        async with house.net.builder("ghost", "--accept-forwarded", "yes"):
            assert isinstance(await straight.outcome(), BakeSuccess)
            expired = await said(late, lambda s: s.final)
            assert isinstance(expired, BakeFailed)
            assert expired.code == "expired"
            found = await house.boss.attach(roundabout.recipe_id, node_id="ghost")
            assert isinstance(await found.outcome(), BakeSuccess)


async def test_a_forward_outlives_the_forwarder(tmp_path: Path) -> None:
    """It is journaled before the inbox is acknowledged: a killed forwarder passes it on when it is back."""
    async with running_house(tmp_path) as house:
        identity = far(1, "ghost")
        sealed = recipe_letter(identity, _XML.format("x"))
        await house.bus.publish_stored(at_alpha(house, identity), sealed)
        await house.node.kill9()
        await house.node.start()
        async with house.net.builder("ghost", "--accept-forwarded", "yes"):
            bake = await eventually(lambda: _known(house, identity), what="the forwarded bake")
            assert isinstance(await bake.outcome(), BakeSuccess)
            assert len([s for s in house.tap.statuses if s.recipe_id == identity.recipe_id and s.final]) == 1


async def _known(house: House, identity: Identity) -> object:
    try:
        return await house.boss.attach(identity.recipe_id, node_id=identity.node_id)
    except BakeUnknown:
        return None
