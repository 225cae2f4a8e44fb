"""The five verbs, the same on every kind of bus: open, with the generated authorization, over a leaf."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from bakemesh.bus import Bus, Sealed
from bakemesh.bus.discovery import announce
from bakemesh.bus.errors import (
    MessageTooLarge,
    NoResponder,
    NoRoom,
    NoStore,
    NotFound,
    ReplyRefused,
    RequestTimeout,
    ServiceFailed,
    StoreFull,
    WrongSequence,
)
from bakemesh.protocol import storage
from bakemesh.protocol.admit import Delivery
from bakemesh.protocol.builder.messages import BakeData, BakeStatus, Cancel, RecipeMessage, Result
from bakemesh.protocol.message import Message
from bakemesh.protocol.subjects import build, pattern
from support.nats import MESH
from support.waiting import eventually
from support.worlds import KINDS, world

pytestmark = pytest.mark.parametrize("kind", KINDS)

BAKE = {
    "supervisor": "nightly",
    "recipe": "r",
    "recipe_id": "nightly-r-1",
    "node": "Alpha",
    "node_id": "alpha",
}
CONTROL = build(MESH, "alpha", "nightly", "nightly-r-1", Cancel.TYPE)
CONTROLS = pattern(MESH, "Psyclone.Builder.BakeControl.*", node_id="alpha")
RECIPE = build(MESH, "alpha", "nightly", "nightly-r-1", RecipeMessage.TYPE)
STATUS = build(MESH, "alpha", "nightly", "nightly-r-1", BakeStatus.TYPE)
DATA = build(MESH, "alpha", "nightly", "nightly-r-1", BakeData.TYPE)


def status(serial: int = 1, summary: str = "so far so good") -> BakeStatus:
    return BakeStatus(**BAKE, kind="interim", serial=serial, pct=10, summary=summary)


def cancel(number: int = 1) -> Cancel:
    return Cancel(**BAKE, ctrlseq=number, issuedby="nightly")


def accepted(delivery: Delivery) -> Result:
    return Result(verb="Cancel", accepted=True, code="ok", summary=f"{delivery.received.message.ctrlseq}")


async def test_a_published_message_arrives_typed_and_in_order(kind: str, tmp_path: Path) -> None:
    async with (
        world(kind, tmp_path) as mesh,
        mesh.bus("builder-alpha") as alpha,
        mesh.bus("nightly") as nightly,
    ):
        got: list[Delivery] = []
        await nightly.subscribe(pattern(MESH, BakeStatus.TYPE, party="nightly"), got.append)
        await mesh.settle(alpha, nightly)
        for serial in range(1, 301):
            await alpha.publish(STATUS, status(serial))
        await eventually(lambda: len(got) == 300, what="300 messages")
        assert [one.received.message.serial for one in got] == list(range(1, 301))
        first = got[0]
        assert isinstance(first.received.message, BakeStatus)
        assert first.received.sender == "builder@alpha"
        assert (first.subject.node_id, first.subject.party) == ("alpha", "nightly")
        assert len({one.received.id for one in got}) == 300


async def test_a_coroutine_handler_takes_messages_one_after_the_other(kind: str, tmp_path: Path) -> None:
    async with (
        world(kind, tmp_path) as mesh,
        mesh.bus("builder-alpha") as alpha,
        mesh.bus("nightly") as nightly,
    ):
        done: list[int] = []
        at_once = 0

        async def slowly(delivery: Delivery) -> None:
            nonlocal at_once
            at_once += 1
            assert at_once == 1
            await asyncio.sleep(0)
            at_once -= 1
            done.append(delivery.received.message.serial)

        await nightly.subscribe(pattern(MESH, BakeStatus.TYPE, party="nightly"), slowly)
        await mesh.settle(alpha, nightly)
        for serial in range(1, 51):
            await alpha.publish(STATUS, status(serial))
        await eventually(lambda: len(done) == 50, what="50 messages")
        assert done == list(range(1, 51))


async def test_a_handler_that_fails_is_logged_and_goes_on(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        world(kind, tmp_path) as mesh,
        mesh.bus("builder-alpha") as alpha,
        mesh.bus("nightly") as nightly,
    ):
        got: list[int] = []

        def fails_once(delivery: Delivery) -> None:
            serial = delivery.received.message.serial
            if serial == 1:
                raise ZeroDivisionError("once")
            got.append(serial)

        subscription = await nightly.subscribe(pattern(MESH, BakeStatus.TYPE, party="nightly"), fails_once)
        await mesh.settle(alpha, nightly)
        await alpha.publish(STATUS, status(1))
        await alpha.publish(STATUS, status(2))
        await eventually(lambda: got == [2], what="the second message")
        assert subscription.errors == 1
        assert "ZeroDivisionError" in caplog.text


async def test_requests_are_answered_typed(kind: str, tmp_path: Path) -> None:
    async with (
        world(kind, tmp_path) as mesh,
        mesh.bus("builder-alpha") as alpha,
        mesh.bus("nightly") as nightly,
    ):
        served = await alpha.serve(CONTROLS, accepted)
        await mesh.settle(alpha, nightly)
        answers = await asyncio.gather(*(nightly.request(CONTROL, cancel(n)) for n in range(1, 101)))
        assert [one.message.summary for one in answers] == [str(n) for n in range(1, 101)]
        assert isinstance(answers[0].message, Result)
        assert answers[0].sender == "builder@alpha"
        assert served.requests == 100


async def test_a_service_that_fails_says_so_and_goes_on(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def either(delivery: Delivery) -> Message | None:
        await asyncio.sleep(0)
        if delivery.received.message.ctrlseq == 1:
            raise KeyError("a secret")
        return accepted(delivery)

    async with (
        world(kind, tmp_path) as mesh,
        mesh.bus("builder-alpha") as alpha,
        mesh.bus("nightly") as nightly,
    ):
        served = await alpha.serve(CONTROLS, either)
        await mesh.settle(alpha, nightly)
        with pytest.raises(ServiceFailed) as failed:
            await nightly.request(CONTROL, cancel(1))
        assert failed.value.code == "500"
        assert "secret" not in str(failed.value)
        assert "a secret" in caplog.text
        assert (await nightly.request(CONTROL, cancel(2))).message.summary == "2"
        assert (served.requests, served.errors) == (2, 1)


async def test_a_slow_answer_does_not_hold_back_others(kind: str, tmp_path: Path) -> None:
    async with (
        world(kind, tmp_path) as mesh,
        mesh.bus("builder-alpha") as alpha,
        mesh.bus("nightly") as nightly,
    ):
        release = asyncio.Event()

        async def first_waits(delivery: Delivery) -> Message | None:
            if delivery.received.message.ctrlseq == 1:
                await release.wait()
            return accepted(delivery)

        await alpha.serve(CONTROLS, first_waits)
        await mesh.settle(alpha, nightly)
        slow = asyncio.create_task(nightly.request(CONTROL, cancel(1)))
        assert (await nightly.request(CONTROL, cancel(2))).message.summary == "2"
        assert not slow.done()
        release.set()
        assert (await slow).message.summary == "1"


async def test_a_request_that_nobody_serves_fails_at_once(kind: str, tmp_path: Path) -> None:
    async with world(kind, tmp_path) as mesh, mesh.bus("nightly") as nightly:
        with pytest.raises(NoResponder, match="nobody answers on psyclone"):
            await nightly.request(CONTROL, cancel(), timeout=60)


async def test_a_request_without_an_answer_times_out(kind: str, tmp_path: Path) -> None:
    async with (
        world(kind, tmp_path) as mesh,
        mesh.bus("builder-alpha") as alpha,
        mesh.bus("nightly") as nightly,
    ):
        await alpha.serve(CONTROLS, lambda _: None)
        await mesh.settle(alpha, nightly)
        with pytest.raises(RequestTimeout, match="may have been carried out"):
            await nightly.request(CONTROL, cancel(), timeout=0.2)


async def test_an_answer_that_is_no_message_is_refused(kind: str, tmp_path: Path) -> None:
    async with (
        world(kind, tmp_path) as mesh,
        mesh.bus("builder-alpha") as alpha,
        mesh.bus("nightly") as nightly,
    ):

        async def garbage(delivery: Delivery) -> None:
            await alpha.link.send(delivery.reply, b"\x00garbage")

        await alpha.serve(CONTROLS, garbage)
        await mesh.settle(alpha, nightly)
        with pytest.raises(ReplyRefused):
            await nightly.request(CONTROL, cancel())


async def test_a_message_that_cannot_be_read_is_answered_and_counted(kind: str, tmp_path: Path) -> None:
    async with (
        world(kind, tmp_path) as mesh,
        mesh.bus("builder-alpha") as alpha,
        mesh.bus("nightly") as nightly,
    ):
        taken: list[Delivery] = []
        await alpha.serve(CONTROLS, taken.append)
        await mesh.settle(alpha, nightly)
        for payload in (b"", b"\xff\xfe", b"x" * 100_000):
            answer = await nightly.link.ask(CONTROL, payload, 5)
            assert answer.headers["Nats-Service-Error-Code"] == "malformed_message"
        assert alpha.refused["undecodable"] == 3
        # One whose subject says another type than its envelope is not answered at all.
        with pytest.raises(RequestTimeout):
            await nightly.request(CONTROL, status(), timeout=0.2)
        assert alpha.refused["other_type"] == 1
        assert taken == []


async def test_a_refused_message_may_get_a_typed_answer(kind: str, tmp_path: Path) -> None:
    async with (
        world(kind, tmp_path) as mesh,
        mesh.bus("builder-alpha") as alpha,
        mesh.bus("nightly") as nightly,
    ):
        await alpha.serve(
            CONTROLS,
            accepted,
            refused=lambda no: Result(verb="?", accepted=False, code="malformed_message", summary=no.detail),
        )
        await mesh.settle(alpha, nightly)
        reply = nightly.inbox_reply()
        with reply:
            await nightly.link.send(CONTROL, b"junk", reply.subject)
            answer = await reply.received(5)
        assert (answer.message.accepted, answer.message.code) == (False, "malformed_message")


async def make_inbox(alpha: Bus) -> None:
    await alpha.hub_api.create_stream(
        {
            "name": storage.inbox_stream(MESH),
            "subjects": [pattern(MESH, RecipeMessage.TYPE)],
            "retention": "workqueue",
            "storage": "file",
        }
    )


async def make_stream(alpha: Bus, name: str, subject: str, **limits: object) -> None:
    await alpha.api.create_stream(
        {"name": name, "subjects": [subject], "storage": "file", "discard": "new", **limits}
    )


async def test_a_stored_message_is_acknowledged_and_answered_apart(kind: str, tmp_path: Path) -> None:
    async with (
        world(kind, tmp_path) as mesh,
        mesh.bus("builder-alpha") as alpha,
        mesh.bus("nightly") as nightly,
    ):
        with pytest.raises(NoStore, match="no stream stores this subject"):
            await nightly.publish_stored(RECIPE, Sealed(b"x", "1"))
        await make_inbox(alpha)
        sealed = nightly.seal(RecipeMessage(**BAKE, recipe_spec="<recipe/>"))
        with nightly.inbox_reply() as reply:
            ack = await nightly.publish_stored(RECIPE, sealed, reply=reply.subject)
            assert (ack.stream, ack.seq, ack.duplicate) == (storage.inbox_stream(MESH), 1, False)
            stored = await alpha.hub_api.get_message(ack.stream, sequence=1)
            assert stored.payload == sealed.payload
            assert stored.headers["Nats-Msg-Id"] == sealed.msg_id
            assert stored.headers["Bakemesh-Reply"] == reply.subject
            with pytest.raises(RequestTimeout):
                await reply.received(0.05)  # the acknowledgement did not come here
            answer = alpha.seal(Result(verb="Bake", accepted=True, code="ok", summary="taken"))
            await alpha.link.send(stored.headers["Bakemesh-Reply"], answer.payload)
            assert (await reply.received(5)).message.summary == "taken"
        again = await nightly.publish_stored(RECIPE, sealed)
        assert (again.seq, again.duplicate) == (1, True)


async def test_the_stores_refusals_are_typed(kind: str, tmp_path: Path) -> None:
    async with world(kind, tmp_path) as mesh, mesh.bus("builder-alpha") as alpha:
        name = storage.data_stream(MESH, "alpha")
        with pytest.raises(NotFound):
            await alpha.api.stream_info(name)
        with pytest.raises(NoRoom, match="10047"):
            await make_stream(alpha, name, pattern(MESH, BakeData.TYPE, node_id="alpha"), max_bytes=1 << 60)
        await make_stream(alpha, name, pattern(MESH, BakeData.TYPE, node_id="alpha"), max_msgs=2)
        assert (await alpha.publish_stored(DATA, Sealed(b"1", "a"))).seq == 1
        with pytest.raises(WrongSequence) as wrong:
            await alpha.publish_stored(DATA, Sealed(b"2", "b"), headers={"Nats-Expected-Last-Sequence": "7"})
        assert wrong.value.last == 1
        await alpha.publish_stored(DATA, Sealed(b"2", "b"), headers={"Nats-Expected-Last-Sequence": "1"})
        with pytest.raises(StoreFull) as full:
            await alpha.publish_stored(DATA, Sealed(b"3", "c"))
        assert full.value.err_code == 10077
        assert await alpha.api.purge_stream(name, subject=DATA) == 2
        assert (await alpha.publish_stored(DATA, Sealed(b"3", "c"))).seq == 3
        with pytest.raises(NotFound):
            await alpha.api.get_message(name, sequence=1)
        assert (await alpha.api.get_message(name, last_of=DATA)).sequence == 3


async def test_a_message_larger_than_the_server_takes_is_refused_here(kind: str, tmp_path: Path) -> None:
    async with world(kind, tmp_path) as mesh, mesh.bus("builder-alpha") as alpha:
        with pytest.raises(MessageTooLarge, match="at most 8388608"):
            await alpha.publish_stored(DATA, Sealed(b"x" * (alpha.max_payload + 1), "a"))
        assert alpha.connected


async def test_stopping_a_subscription_handles_what_has_arrived(kind: str, tmp_path: Path) -> None:
    async with (
        world(kind, tmp_path) as mesh,
        mesh.bus("builder-alpha") as alpha,
        mesh.bus("nightly") as nightly,
    ):
        got: list[int] = []
        entered = asyncio.Event()

        async def slowly(delivery: Delivery) -> None:
            entered.set()
            await asyncio.sleep(0)
            got.append(delivery.received.message.serial)

        subscription = await nightly.subscribe(pattern(MESH, BakeStatus.TYPE, party="nightly"), slowly)
        await mesh.settle(alpha, nightly)
        for serial in range(1, 51):
            await alpha.publish(STATUS, status(serial))
        await alpha.link.barrier()
        await asyncio.wait_for(entered.wait(), 10)
        await subscription.stop()
        seen = len(got)
        await alpha.publish(STATUS, status(99))
        await alpha.link.barrier()
        await nightly.link.barrier()
        assert got == list(range(1, seen + 1))
        if not mesh.leaf_url:  # over a leaf the rest may have been on its way still
            assert seen == 50


async def test_services_are_found(kind: str, tmp_path: Path) -> None:
    async with (
        world(kind, tmp_path) as mesh,
        mesh.bus("builder-alpha") as alpha,
        mesh.bus("nightly") as nightly,
    ):
        served = await alpha.serve(CONTROLS, accepted)
        await mesh.settle(alpha, nightly)
        announcement = await announce(
            alpha, "builder", version="0.1.0", metadata={"protocols": "builder-v1"}, endpoints=[served]
        )
        await mesh.settle(alpha, nightly)
        await nightly.request(CONTROL, cancel())
        for subject in ("$SRV.PING", "$SRV.INFO.builder", f"$SRV.STATS.builder.{announcement.id}"):
            answer = json.loads((await nightly.link.ask(subject, b"", 5)).data)
            assert answer["name"] == "builder"
            assert answer["metadata"] == {"protocols": "builder-v1"}
            assert answer["type"].startswith("io.nats.micro.v1.")
        assert answer["endpoints"][0]["num_requests"] == 1
        assert answer["endpoints"][0]["name"] == "BakeControl"
        await announcement.stop()
        with pytest.raises((NoResponder, RequestTimeout)):
            await nightly.link.ask("$SRV.PING", b"", 0.5)
