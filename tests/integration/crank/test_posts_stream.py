"""`ensure_posts` on real servers: idempotent, several at once, from a leaf, refusals that say why."""

import asyncio
from pathlib import Path

import pytest

from bakemesh.bus.errors import NameTaken
from bakemesh.bus.posts import PostTypeRefused, ensure_posts, subject_of
from bakemesh.bus.sealing import seal
from bakemesh.protocol import storage, subjects
from bakemesh.protocol.message import GenericMessage
from support.nats import MESH, connect, guarded, hub_and_leaf, server
from support.waiting import eventually

STREAM = storage.posts_stream(MESH)


async def stored_subjects(api):
    return (await api.stream_info(STREAM))["config"]["subjects"]


async def test_it_is_made_with_its_rules_and_grows_by_types_alone(tmp_path: Path):
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        await ensure_posts(bus, [])
        await ensure_posts(bus, ["Robot.Count", "Robot.Count"])
        await ensure_posts(bus, ["Robot.Alarm.Fire"])
        await ensure_posts(bus, ["Robot.Count"])
        config = (await bus.api.stream_info(STREAM))["config"]
        assert config["subjects"] == [subject_of(MESH, "Robot.Count"), subject_of(MESH, "Robot.Alarm.Fire")]
        assert (config["retention"], config["discard"]) == ("limits", "new")
        assert config["max_age"] == 7 * 24 * 3600 * 10**9
        assert config.get("allow_direct", False) is False
        sealed = seal(GenericMessage.from_entries({"n": 1}), "m@a", type="Robot.Count")
        ack = await bus.publish_stored(subjects.build(MESH, "a", "m", "-", "Robot.Count"), sealed)
        assert ack.stream == STREAM


async def test_many_at_once_lose_no_type(tmp_path: Path):
    async with server(tmp_path) as nats, connect(nats.url) as one, connect(nats.url, name="two") as two:
        types = [f"Robot.Kind{n}" for n in range(12)]
        await asyncio.gather(
            *(ensure_posts((one, two)[n % 2], [type_, "Robot.Common"]) for n, type_ in enumerate(types))
        )
        assert set(await stored_subjects(one.api)) == {
            subject_of(MESH, type_) for type_ in [*types, "Robot.Common"]
        }


async def test_a_type_that_another_stream_stores_is_named_and_the_others_are_taken(tmp_path: Path):
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        await bus.api.create_stream({"name": "theirs", "subjects": [f"{MESH}.*.*.*.Robot.Taken"]})
        for first in (True, False):
            with pytest.raises(PostTypeRefused, match=r"Robot\.Taken: another stream .* stores") as refused:
                await ensure_posts(bus, ["Robot.Fine", "Robot.Taken", f"Robot.Other{first}"])
            assert list(refused.value.types) == ["Robot.Taken"]
            assert subject_of(MESH, "Robot.Fine") in await stored_subjects(bus.api)
        with pytest.raises(NameTaken):
            await bus.api.create_stream({"name": "late", "subjects": [subject_of(MESH, "Robot.Fine")]})


@pytest.mark.parametrize(
    ("type_", "why"),
    [("Robot.*", "concrete"), ("Psyclone.Ready", "contract"), ("Robot..x", "empty"), ("Robot.ä", "token")],
)
async def test_what_can_be_no_post_is_refused_before_anything_is_made(tmp_path: Path, type_: str, why: str):
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        with pytest.raises(PostTypeRefused, match=why):
            await ensure_posts(bus, ["Robot.Count", type_])
        assert not (await bus.api.request("STREAM.NAMES"))["streams"]


async def test_from_a_leaf_it_waits_for_the_hub_and_says_so(tmp_path: Path):
    async with hub_and_leaf(tmp_path) as pair, connect(pair.leaf.url, node_id="edge") as bus:
        await ensure_posts(bus, ["Robot.Before"])
        await pair.link.cut()
        said: list[str] = []
        making = asyncio.create_task(ensure_posts(bus, ["Robot.Count"], waiting=said.append))
        await eventually(lambda: said, what="a word about the hub")
        assert "wait for the hub" in said[0]
        assert not making.done()
        await pair.link.heal()
        async with asyncio.timeout(30):
            await making
        async with connect(pair.hub.url) as hub:
            assert await stored_subjects(hub.api) == [
                subject_of(MESH, "Robot.Before"),
                subject_of(MESH, "Robot.Count"),
            ]


async def test_a_builder_has_the_rights_for_it(tmp_path: Path):
    async with guarded(tmp_path) as mesh, mesh.connect("builder-alpha") as bus:
        await ensure_posts(bus, ["Robot.Count"])
        await ensure_posts(bus, ["Robot.Alarm"])
        assert len(await stored_subjects(bus.api)) == 2
