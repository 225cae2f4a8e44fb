"""What the generated authorization allows and closes, tried on a real server; and the ways around it by a
forged reply subject: the server, and every service, publish to whatever reply they are given, with their own
rights.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from bakemesh.bus import Bucket, Bus, Sealed
from bakemesh.bus.discovery import announce
from bakemesh.bus.errors import AccessDenied
from bakemesh.bus.events import Denied, Event
from bakemesh.protocol import storage
from bakemesh.protocol.admit import Delivery
from bakemesh.protocol.builder.messages import BakeData, BakeStatus, Cancel, RecipeMessage, Result
from bakemesh.protocol.subjects import BAKE, build, pattern
from support.nats import MESH
from support.waiting import eventually
from support.worlds import world

STATUS_STREAM = storage.status_stream(MESH, "alpha")
DATA_STREAM = storage.data_stream(MESH, "alpha")
CONTROLS = pattern(MESH, "Psyclone.Builder.BakeControl.*", node_id="alpha")


def subject(type_: str, *, node_id: str = "alpha", party: str = "nightly") -> str:
    return build(MESH, node_id, party, f"{party}-r-1", type_)


def bake(party: str = "nightly") -> dict[str, str]:
    return {"supervisor": party, "recipe": "r", "recipe_id": f"{party}-r-1", "node": "A", "node_id": "alpha"}


def cancel(party: str = "nightly") -> Cancel:
    return Cancel(**bake(party), ctrlseq=1, issuedby=party)


def status(party: str = "nightly") -> BakeStatus:
    return BakeStatus(**bake(party), kind="start", serial=1, pct=0, summary="begun")


@dataclass
class Mesh:
    """A guarded server with the streams of node alpha, one bake of `nightly` and one of `other` stored in
    them.
    """

    alpha: Bus
    beta: Bus
    nightly: Bus
    other: Bus
    ops: Bus
    board: Bus


@asynccontextmanager
async def mesh_with_streams(folder: Path) -> AsyncIterator[Mesh]:
    async with (
        world("guarded", folder) as guarded,
        guarded.bus("builder-alpha") as alpha,
        guarded.bus("builder-beta") as beta,
        guarded.bus("nightly") as nightly,
        guarded.bus("other") as other,
        guarded.bus("ops") as ops,
        guarded.bus("board") as board,
    ):
        for name, type_ in ((STATUS_STREAM, f"{BAKE}.Status"), (DATA_STREAM, f"{BAKE}.Data")):
            await alpha.api.create_stream(
                {"name": name, "subjects": [pattern(MESH, type_, node_id="alpha")], "storage": "file"}
            )
        await alpha.api.create_stream(
            {
                "name": storage.hub_status_stream(MESH),
                "sources": [{"name": STATUS_STREAM}],
                "storage": "file",
            }
        )
        await alpha.api.create_stream(
            {
                "name": storage.inbox_stream(MESH),
                "subjects": [pattern(MESH, RecipeMessage.TYPE)],
                "storage": "file",
                "retention": "workqueue",
            }
        )
        for party in ("nightly", "other"):
            await alpha.publish_stored(subject(BakeStatus.TYPE, party=party), alpha.seal(status(party)))
            chunk = BakeData(**bake(party), seq=1, stepindex=0, attempt=1, stream="stdout", data=b"secret")
            await alpha.publish_stored(subject(BakeData.TYPE, party=party), alpha.seal(chunk))
        await Bucket(alpha, storage.ids_bucket(MESH)).ensure()
        await Bucket(alpha, storage.nodes_bucket(MESH)).ensure()
        yield Mesh(alpha, beta, nightly, other, ops, board)


def consumer(filter_subject: str, name: str = "c1") -> dict[str, object]:
    return {
        "name": name,
        "filter_subject": filter_subject,
        "ack_policy": "none",
        "inactive_threshold": 10**10,
    }


async def read_one(bus: Bus, stream: str, filter_subject: str) -> bytes:
    """The first message of a stream under that filter, the way a reader reads it."""
    name = "c" + bus.settings.party
    await bus.api.create_consumer(stream, consumer(filter_subject, name=name))
    got: list[bytes] = []

    async def take(msg: Msg) -> None:
        got.append(bytes(msg.data))

    inbox = f"_INBOX.{bus.settings.party}.reader.1"
    await bus.link.listen(inbox, take)
    await bus.link.send(bus.api.next_subject(stream, name), b'{"batch":1}', inbox)
    await eventually(lambda: got, what="a message of the stream")
    return got[0]


async def denied_publish(bus: Bus, target: str) -> bool:
    """Whether a plain publish, which nobody acknowledges, is refused."""
    events: list[Event] = []
    off = bus.on_event(events.append)
    await bus.link.send(target, b"x")
    await bus.link.barrier()
    off()
    return Denied("publish", target.lower()) in events


async def test_what_each_role_is_there_for_works(tmp_path: Path) -> None:
    async with mesh_with_streams(tmp_path) as mesh:
        seen: list[Delivery] = []
        live = pattern(MESH, BakeStatus.TYPE, party="nightly")
        await mesh.nightly.subscribe(live, seen.append)
        await mesh.alpha.publish(subject(BakeStatus.TYPE), status())
        await eventually(lambda: seen, what="live Status")
        own = pattern(MESH, f"{BAKE}.*", party="nightly")
        assert b"secret" in await read_one(mesh.nightly, DATA_STREAM, own)
        assert b"begun" in await read_one(
            mesh.board, storage.hub_status_stream(MESH), pattern(MESH, f"{BAKE}.*")
        )
        assert b"secret" in await read_one(mesh.ops, DATA_STREAM, pattern(MESH, f"{BAKE}.*"))
        ack = await mesh.nightly.publish_stored(
            subject(RecipeMessage.TYPE), mesh.nightly.seal(RecipeMessage(**bake(), recipe_spec="<recipe/>"))
        )
        assert ack.stream == storage.inbox_stream(MESH)
        ids = Bucket(mesh.nightly, storage.ids_bucket(MESH))
        assert await ids.update("nightly", b"2", await ids.create("nightly", b"1")) == 2
        assert (await ids.get("nightly")).value == b"2"
        await mesh.alpha.serve(CONTROLS, lambda _: Result(verb="x", accepted=True, code="ok", summary=""))
        for bus in (mesh.nightly, mesh.ops, mesh.beta):
            party = bus.settings.party
            assert (await bus.request(subject(Cancel.TYPE, party=party), cancel(party))).message.accepted


Attempt = Callable[[Mesh], Awaitable[object]]
NIGHTLY_AS_OTHER: dict[str, Attempt] = {
    "control in another's name": lambda m: m.nightly.request(
        subject(Cancel.TYPE, party="other"), cancel("other")
    ),
    "recipe in another's name": lambda m: m.nightly.publish_stored(
        subject(RecipeMessage.TYPE, party="other"), Sealed(b"x", "1")
    ),
    "status of its own bake": lambda m: m.nightly.publish_stored(subject(BakeStatus.TYPE), Sealed(b"x", "1")),
    "data of another's bake": lambda m: m.nightly.publish_stored(
        subject(BakeData.TYPE, party="other"), Sealed(b"x", "1")
    ),
    "another's counter": lambda m: Bucket(m.nightly, storage.ids_bucket(MESH)).put("other", b"99"),
    "a node's status": lambda m: Bucket(m.nightly, storage.nodes_bucket(MESH)).put("alpha", b"x"),
    "a node's claim": lambda m: Bucket(m.nightly, storage.nodes_bucket(MESH)).put("alpha.claim", b"x"),
    "all live Status": lambda m: m.nightly.subscribe(pattern(MESH, BakeStatus.TYPE), print),
    "another's live Status": lambda m: m.nightly.subscribe(
        pattern(MESH, BakeStatus.TYPE, party="other"), print
    ),
    "everything": lambda m: m.nightly.subscribe(">", print),
    "another's inbox": lambda m: m.nightly.subscribe("_INBOX.other.>", print),
    "controls of a node": lambda m: m.nightly.subscribe(CONTROLS, print),
    "recipes": lambda m: m.nightly.subscribe(pattern(MESH, RecipeMessage.TYPE), print),
    "another's data": lambda m: read_one(m.nightly, DATA_STREAM, pattern(MESH, f"{BAKE}.*", party="other")),
    "everybody's data": lambda m: read_one(m.nightly, DATA_STREAM, pattern(MESH, f"{BAKE}.*")),
    "a consumer without a filter": lambda m: m.nightly.api.create_consumer(DATA_STREAM, {"name": "x"}),
    "a consumer of the old kind": lambda m: m.nightly.api.request(
        f"CONSUMER.DURABLE.CREATE.{DATA_STREAM}.x",
        {"stream_name": DATA_STREAM, "config": {"durable_name": "x"}},
    ),
    "a message by its number": lambda m: m.nightly.api.get_message(DATA_STREAM, sequence=2),
    "a message directly": lambda m: m.nightly.api.request(f"DIRECT.GET.{DATA_STREAM}", {"seq": 2}),
    "others' consumers": lambda m: m.nightly.api.request(f"CONSUMER.NAMES.{DATA_STREAM}"),
    "the inbox's consumer": lambda m: m.nightly.link.ask(
        m.nightly.api.next_subject(storage.inbox_stream(MESH), "alpha"), b"", 5
    ),
    "purging": lambda m: m.nightly.api.purge_stream(DATA_STREAM),
    "deleting": lambda m: m.nightly.api.delete_stream(DATA_STREAM),
    "a new stream": lambda m: m.nightly.api.create_stream({"name": "mine", "subjects": [">"]}),
    "a builder as another node": lambda m: m.beta.publish_stored(subject(BakeStatus.TYPE), Sealed(b"x", "1")),
    "a builder's mint as another": lambda m: m.beta.publish_stored(
        subject(RecipeMessage.TYPE), Sealed(b"x", "1")
    ),
    "a builder's claim of another node": lambda m: Bucket(m.beta, storage.nodes_bucket(MESH)).put(
        "alpha.claim", b"x"
    ),
    "another builder's purge": lambda m: m.beta.api.purge_stream(DATA_STREAM),
    "an operator as a builder": lambda m: m.ops.publish_stored(subject(BakeStatus.TYPE), Sealed(b"x", "1")),
    "a dashboard's control": lambda m: m.board.request(subject(Cancel.TYPE, party="board"), cancel("board")),
    "a dashboard's recipe": lambda m: m.board.publish_stored(
        subject(RecipeMessage.TYPE, party="board"), Sealed(b"x", "1")
    ),
    "a dashboard's data": lambda m: read_one(m.board, DATA_STREAM, pattern(MESH, f"{BAKE}.*")),
    "a dashboard's live data": lambda m: m.board.subscribe(pattern(MESH, BakeData.TYPE), print),
    "a dashboard's discovery": lambda m: m.board.link.ask("$SRV.PING", b"", 5),
}


@pytest.mark.parametrize("attempt", NIGHTLY_AS_OTHER.values(), ids=NIGHTLY_AS_OTHER.keys())
async def test_what_a_role_is_not_there_for_is_refused(attempt: Attempt, tmp_path: Path) -> None:
    async with mesh_with_streams(tmp_path) as mesh:
        with pytest.raises(AccessDenied):
            await attempt(mesh)


async def test_a_denied_core_publish_is_an_event(tmp_path: Path) -> None:
    async with mesh_with_streams(tmp_path) as mesh:
        assert await denied_publish(mesh.nightly, subject(BakeStatus.TYPE))
        assert await denied_publish(mesh.board, "anything.at.all")
        assert await denied_publish(mesh.nightly, "_INBOX.other.x")
        assert await denied_publish(mesh.beta, subject(BakeData.TYPE))
        assert not await denied_publish(mesh.nightly, subject(Cancel.TYPE))


async def test_wrong_or_missing_credentials_are_refused_at_once(tmp_path: Path) -> None:
    from bakemesh.bus import BusSettings, Credentials
    from bakemesh.bus.keys import make_user_key

    async with world("guarded", tmp_path) as guarded:
        for credentials in (None, Credentials(nkey_seed=make_user_key().seed), Credentials(token="x")):
            with pytest.raises(AccessDenied, match="may not connect"):
                await Bus.connect(BusSettings((guarded.url,), credentials=credentials, connect_timeout_s=60))


async def stored(bus: Bus, stream: str) -> int:
    return int((await bus.api.stream_info(stream))["state"]["messages"])


FORGED = {
    "a stored message's acknowledgement": subject(RecipeMessage.TYPE),
    "a key read from the ids bucket": f"$JS.API.STREAM.MSG.GET.KV_{storage.ids_bucket(MESH)}",
    "a stream's description": f"$JS.API.STREAM.INFO.{DATA_STREAM}",
    "discovery": "$SRV.PING",
    "a control": subject(Cancel.TYPE),
}


@pytest.mark.parametrize("way", FORGED.values(), ids=FORGED.keys())
async def test_a_reply_on_a_victims_subject_reaches_nobody(way: str, tmp_path: Path) -> None:
    """Nightly has the answer sent to Status of `other`'s bake, to a control of `other`'s, and into its
    recipes.
    """
    async with mesh_with_streams(tmp_path) as mesh:
        taken: list[Delivery] = []
        asked: list[Delivery] = []
        await mesh.other.subscribe(pattern(MESH, BakeStatus.TYPE, party="other"), taken.append)

        def cancelled(delivery: Delivery) -> Result:
            asked.append(delivery)
            return Result(verb="Cancel", accepted=True, code="ok", summary="")

        await mesh.alpha.serve(CONTROLS, cancelled)
        await announce(mesh.alpha, "builder", version="0.1.0")
        for victim in (subject(BakeStatus.TYPE, party="other"), subject(Cancel.TYPE, party="other")):
            if way == subject(Cancel.TYPE):
                payload = mesh.nightly.seal(cancel()).payload
            elif "MSG.GET" in way:
                # The message that is handed out could hold anything: here a valid control, as a key's value.
                await Bucket(mesh.nightly, storage.ids_bucket(MESH)).put(
                    "nightly", mesh.nightly.seal(cancel("other")).payload
                )
                payload = json.dumps({"last_by_subj": f"$KV.{storage.ids_bucket(MESH)}.nightly"}).encode()
            else:
                payload = b""
            await mesh.nightly.link.send(way, payload, victim)
        # All that was sent has been worked off when these come back.
        await mesh.nightly.link.barrier()
        await mesh.nightly.api.request(f"STREAM.INFO.{DATA_STREAM}")
        await mesh.alpha.link.barrier()
        await mesh.alpha.publish(subject(BakeStatus.TYPE, party="other"), status("other"))
        await eventually(lambda: taken, what="the true Status")
        assert len(taken) == 1
        assert taken[0].received.sender == "builder@alpha"
        assert asked == []
        if way in ("$SRV.PING", subject(Cancel.TYPE)):  # a service's answers, unlike the server's own
            assert await stored(mesh.alpha, STATUS_STREAM) == 3  # two of the mesh's and the true one
        if way == subject(Cancel.TYPE):
            assert mesh.alpha.refused["foreign_reply"] == 2


async def test_a_bucket_answers_nobody_directly(tmp_path: Path) -> None:
    """A direct get would put a key's bare value, a valid message, on a victim's subject: it is not there to
    be had.
    """
    async with mesh_with_streams(tmp_path) as mesh:
        bucket = storage.ids_bucket(MESH)
        forged = mesh.nightly.seal(RecipeMessage(**bake("other"), recipe_spec="<recipe/>")).payload
        await Bucket(mesh.nightly, bucket).put("nightly", forged)
        before = await stored(mesh.alpha, storage.inbox_stream(MESH))
        victim = subject(RecipeMessage.TYPE, party="other")
        direct = f"$JS.API.DIRECT.GET.KV_{bucket}.$KV.{bucket}.nightly"
        for bus in (mesh.nightly, mesh.ops, mesh.alpha):
            await bus.link.send(direct, b"", victim)
            await bus.link.barrier()
        info = await mesh.alpha.api.stream_info(f"KV_{bucket}")
        assert info["config"].get("allow_direct", False) is False
        assert await stored(mesh.alpha, storage.inbox_stream(MESH)) == before
