"""The connection over the life of a real server: it dies, comes back, hangs, refuses; nothing is lost without
a word.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bakemesh.bus import Bus, BusSettings, Credentials, Sealed
from bakemesh.bus.errors import (
    BadCredentials,
    BusClosed,
    BusUnreachable,
    NotConnected,
    StoreTimeout,
    StoreUnavailable,
)
from bakemesh.bus.events import Closed, Disconnected, Event, Reconnected, SlowConsumer
from bakemesh.bus.server import EmbeddedServer
from bakemesh.protocol.admit import Delivery
from bakemesh.protocol.builder.messages import BakeStatus, Cancel, Result
from bakemesh.protocol.subjects import build, pattern
from support.nats import MESH, TcpLink, connect, server
from support.waiting import eventually

BAKE = {"supervisor": "nightly", "recipe": "r", "recipe_id": "nightly-r-1", "node": "A", "node_id": "alpha"}
STATUS = build(MESH, "alpha", "nightly", "nightly-r-1", BakeStatus.TYPE)
CONTROL = build(MESH, "alpha", "nightly", "nightly-r-1", Cancel.TYPE)
CANCEL = Cancel(**BAKE, ctrlseq=1, issuedby="nightly")


def status(serial: int) -> BakeStatus:
    return BakeStatus(**BAKE, kind="interim", serial=serial, pct=1, summary="on")


def accepted(_: Delivery) -> Result:
    return Result(verb="Cancel", accepted=True, code="ok", summary="")


async def test_no_server_is_a_typed_error_that_names_it() -> None:
    settings = BusSettings(("nats://127.0.0.1:1", "nats://no-such-host.invalid:4222"), connect_timeout_s=1)
    with pytest.raises(BusUnreachable) as refused:
        await Bus.connect(settings)
    text = str(refused.value)
    assert "nats://127.0.0.1:1" in text
    assert "nats://no-such-host.invalid:4222" in text
    assert "Connect call failed" in text
    assert "bakemesh up" in text


async def test_a_server_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    async with server(tmp_path) as nats:
        link = TcpLink(("127.0.0.1", nats.config.port))
        await link.start()
        link.stall()
        try:
            with pytest.raises(BusUnreachable, match="within 1 s"):
                await Bus.connect(BusSettings((link.url,), connect_timeout_s=1))
        finally:
            await link.close()


async def test_a_server_that_is_late_is_waited_for(tmp_path: Path) -> None:
    nats = EmbeddedServer(tmp_path / "nats", "late")
    await nats.start()
    url = nats.url
    await nats.stop()
    connecting = asyncio.create_task(Bus.connect(BusSettings((url,), connect_timeout_s=60)))
    try:
        await nats.start()
        bus = await connecting
        assert bus.connected
        await bus.close()
    finally:
        await nats.stop()


@pytest.mark.parametrize(
    "credentials",
    [Credentials(nkey_seed="SUnonsense"), Credentials(nkey_file=Path("/nonexistent/key.nk"))],
    ids=["malformed", "missing"],
)
async def test_unusable_credentials_are_told_from_refused_ones(
    tmp_path: Path, credentials: Credentials
) -> None:
    async with server(tmp_path) as nats:
        with pytest.raises(BadCredentials):
            await Bus.connect(BusSettings((nats.url,), credentials=credentials))


async def test_subscriptions_and_services_come_back_after_a_kill(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as near, connect(nats.url, name="nightly") as far:
        got: list[Delivery] = []
        events: list[Event] = []
        near.on_event(events.append)
        await near.subscribe(pattern(MESH, BakeStatus.TYPE), got.append)
        await near.serve(pattern(MESH, "Psyclone.Builder.BakeControl.*", node_id="alpha"), accepted)
        for round_ in (1, 2, 3):
            await nats.kill()
            await eventually(lambda: not near.connected and not far.connected, what="the loss noticed")
            await nats.start()
            await near.wait_connected(20)
            await far.wait_connected(20)
            await far.publish(STATUS, status(round_))
            await eventually(lambda n=round_: len(got) == n, what="a message after the restart")
            assert (await far.request(CONTROL, CANCEL)).message.accepted
        assert [type(event) for event in events] == [Disconnected, Reconnected] * 3


async def test_nothing_is_sent_while_the_link_is_down(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as near, connect(nats.url, name="nightly") as far:
        got: list[Delivery] = []
        await near.subscribe(pattern(MESH, BakeStatus.TYPE), got.append)
        await near.serve(pattern(MESH, "Psyclone.Builder.BakeControl.*", node_id="alpha"), got.append)
        await nats.kill()
        await eventually(lambda: not far.connected, what="the loss noticed")
        with pytest.raises(NotConnected, match="not sent"):
            await far.publish(STATUS, status(1))
        with pytest.raises(NotConnected):
            await far.request(CONTROL, CANCEL, timeout=0.2)
        with pytest.raises(NotConnected):
            await far.publish_stored(STATUS, Sealed(b"x", "1"), timeout=0.2)
        await nats.start()
        await near.wait_connected(20)
        await far.wait_connected(20)
        await far.publish(STATUS, status(2))
        await eventually(lambda: got, what="the message after the restart")
        # Neither the publish nor the request of before is carried out late.
        assert [one.received.message.serial for one in got] == [2]


async def test_what_is_stored_waits_for_the_link_and_survives_kills(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        await bus.api.create_stream(
            {"name": "s", "subjects": [pattern(MESH, BakeStatus.TYPE)], "storage": "file"}
        )

        async def store(number: int) -> int:
            sealed = bus.seal(status(number))
            while True:
                try:
                    return (await bus.publish_stored(STATUS, sealed, timeout=30)).seq
                except (StoreTimeout, StoreUnavailable):
                    continue  # the same Sealed again: the stream knows its Nats-Msg-Id

        for number in range(1, 31):
            if number % 10 == 0:
                await nats.kill()
                storing = asyncio.create_task(store(number))
                await nats.start()
                assert await storing == number
            else:
                assert await store(number) == number
        info = await bus.api.stream_info("s")
        assert info["state"]["messages"] == 30


async def test_a_link_that_dies_without_a_word_is_noticed(tmp_path: Path) -> None:
    async with server(tmp_path) as nats:
        link = TcpLink(("127.0.0.1", nats.config.port))
        await link.start()
        try:
            async with connect(link.url) as bus:
                events: list[Event] = []
                bus.on_event(events.append)
                link.stall()
                await eventually(lambda: not bus.connected, within=30, what="the silence noticed")
                await link.heal()
                await bus.wait_connected(20)
                assert [type(event) for event in events] == [Disconnected, Reconnected]
        finally:
            await link.close()


async def test_closing_is_bounded_and_final(tmp_path: Path) -> None:
    async with server(tmp_path) as nats:
        bus = await Bus.connect(BusSettings((nats.url,), close_timeout_s=1))
        entered = asyncio.Event()

        async def stuck(_: Delivery) -> None:
            entered.set()
            await asyncio.Event().wait()

        await bus.subscribe(pattern(MESH, BakeStatus.TYPE), stuck)
        await bus.publish(STATUS, status(1))
        await entered.wait()
        pending = asyncio.create_task(bus.link.ask("nobody.answers.this", b"", 60))
        async with asyncio.timeout(20):
            await bus.close()
        await bus.close()
        with pytest.raises(Exception):  # noqa: B017, PT011 - no responder, or closed, whichever was first
            await pending
        with pytest.raises(BusClosed):
            await bus.publish(STATUS, status(1))
        with pytest.raises(BusClosed):
            await bus.request(CONTROL, CANCEL)
        with pytest.raises(BusClosed):
            await bus.subscribe(pattern(MESH, BakeStatus.TYPE), print)


async def test_closing_hands_over_what_was_published_before(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url, name="nightly") as far:
        got: list[Delivery] = []
        await far.subscribe(pattern(MESH, BakeStatus.TYPE), got.append)
        async with connect(nats.url) as near:
            for serial in range(1, 5001):
                await near.publish(STATUS, status(serial))
        await eventually(lambda: len(got) == 5000, what="all 5,000 messages")


async def test_a_closed_link_while_the_server_is_down(tmp_path: Path) -> None:
    async with server(tmp_path) as nats:
        bus = await Bus.connect(BusSettings((nats.url,)))
        await nats.kill()
        await eventually(lambda: not bus.connected, what="the loss noticed")
        async with asyncio.timeout(20):
            await bus.close()


async def test_a_connection_that_the_server_ends_for_good_is_an_event(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        events: list[Event] = []
        bus.on_event(events.append)
        waiting = asyncio.create_task(bus.link.wait_connected(60))
        await waiting
        await bus.link.send("x" * 6000, b"")  # longer than a protocol line may be: the server hangs up
        await eventually(lambda: events, what="an event")
        assert isinstance(events[-1], Closed)
        assert "control line" in events[-1].reason.lower()
        with pytest.raises(BusClosed, match=r"(?i)control line"):
            await bus.request(CONTROL, CANCEL)


async def test_a_handler_that_does_not_keep_up_is_an_event(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as slow, connect(nats.url, name="nightly") as fast:
        events: list[Event] = []
        slow.on_event(events.append)
        go_on = asyncio.Event()

        async def waits(_: Delivery) -> None:
            await go_on.wait()

        listening = pattern(MESH, BakeStatus.TYPE)
        await slow.subscribe(listening, waits)
        await fast.publish(STATUS, status(1))
        for _ in range(33):  # more than the 128 MiB that are kept for a handler
            await fast.link.send(STATUS, b"x" * (4 << 20))
            await fast.link.barrier()
            await slow.link.barrier()
        await eventually(lambda: events, what="the slow consumer told")
        assert isinstance(events[0], SlowConsumer)
        assert (events[0].pattern, events[0].dropped) == (listening, 1)
        assert f"slow consumer on {listening}" in caplog.text
        assert slow.connected
        go_on.set()


async def test_a_callback_that_fails_does_not_end_the_link(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:

        def fails(event: Event) -> None:
            raise RuntimeError(f"on {event}")

        bus.on_event(fails)
        await nats.restart()
        await eventually(lambda: "a callback failed" in caplog.text, what="the failure logged")
        await bus.wait_connected(20)
        await bus.subscribe(pattern(MESH, BakeStatus.TYPE), print)
