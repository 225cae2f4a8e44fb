"""The dendrite on real sockets: an application that verifies what it gets, and servers that misbehave."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bakemesh.dendrite import Dendrite, Target, TargetRefused
from bakemesh.protocol.axon import Hotkey, Profile, Synapse
from bakemesh.protocol.axon.claims import check, claim_of
from bakemesh.protocol.axon.freshness import Window
from bakemesh.protocol.axon.hashing import sha3_256_hex
from bakemesh.protocol.axon.headers import normal
from support.httpserver import serving
from support.rawaxon import Asked, http, raw_axon
from support.recorded import ALICE, BOB
from support.waiting import eventually

CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
SAID = ("bt_header_axon_status_code: 200", "bt_header_axon_status_message: Success")


class EchoOutput(BaseModel):
    reply: str


class Echo(Synapse):
    required_hash_fields: ClassVar = ("text",)
    Output: ClassVar = EchoOutput
    text: str = ""
    reply: str | None = None


async def echo(request: Request) -> Response:
    """Verifies the request as an axon does, then answers as each profile wants it."""
    body = await request.body()
    headers = normal(request.headers.raw)
    target = request.url.path
    claim = claim_of(headers, ALICE.address, method=request.method, target=target, body=body)
    check(claim, ALICE.address, time.time_ns(), Window())
    assert claim.hotkey == BOB.address
    synapse = Echo.from_body(body)
    if claim.body_hash:
        assert claim.body_hash in (sha3_256_hex(body), synapse.declared_hash())
    synapse.reply = synapse.text[::-1]
    said = {"bt_header_axon_status_code": "200"} if claim.body_hash else {}
    whole = claim.body_hash == synapse.declared_hash()
    return JSONResponse(synapse.model_dump(mode="json") if whole else {"reply": synapse.reply}, headers=said)


APP = Starlette(routes=[Route("/Echo", echo, methods=["POST"])])


@pytest.mark.parametrize("profile", list(Profile))
async def test_each_profile_is_verified_and_answered(profile: Profile) -> None:
    async with serving(APP) as port, Dendrite(BOB, profile=profile) as dendrite:
        target = Target("127.0.0.1", port, ALICE.address)
        found = await dendrite.query(target, Echo(text="héllo"))
        output = await dendrite.query(target, Echo(text="abc"), deserialize=True)

    assert found.is_success, found.dendrite
    assert found.reply == "olléh"
    assert found.dendrite.process_time is not None
    assert output == EchoOutput(reply="cba")


async def test_many_axons_answer_in_their_order() -> None:
    async with serving(APP) as port, Dendrite(BOB) as dendrite, raw_axon(b"") as closed:
        good = Target("127.0.0.1", port, ALICE.address)
        found = await dendrite.query([good, closed.target, good], Echo(text="ab"))
        outputs = await dendrite.query([closed.target, good], Echo(text="ab"), deserialize=True)
        none = await dendrite.query([], Echo(text="ab"))

    assert [each.dendrite.status_code for each in found] == [200, 503, 200]
    assert [each.axon.port for each in found] == [good.port, closed.port, good.port]
    assert outputs == [None, EchoOutput(reply="ba")]
    assert none == []


async def test_a_class_may_say_itself_what_it_gives() -> None:
    class Shouting(Synapse):
        text: str = ""
        reply: str | None = None

        def deserialize(self) -> str:
            return f"{self.reply}!"

    async with raw_axon(http(b'{"reply":"r"}', *SAID)) as axon, Dendrite(BOB) as dendrite:
        assert await dendrite.query(axon.target, Shouting(), deserialize=True) == "r!"


async def test_connections_are_kept_and_used_again() -> None:
    async with raw_axon(http(b'{"reply":"r"}', *SAID), keep=True) as axon, Dendrite(BOB) as dendrite:
        for _ in range(5):
            assert (await dendrite.query(axon.target, Echo())).is_success
        assert axon.connections == 1

    await eventually(lambda: axon.gone == 1, what="the closing of the connection")


@pytest.mark.parametrize("profile", Profile)
async def test_an_axon_has_no_more_connections_than_told(profile: Profile) -> None:
    asked_first = asyncio.Event()

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if len(axon.asked) >= 2:
            asked_first.set()
        await asked_first.wait()
        writer.write(http(b'{"reply":"r"}', *SAID))

    async with (
        raw_axon(answer, keep=True) as axon,
        Dendrite(BOB, profile=profile, connections_an_axon=2) as dendrite,
    ):
        found = await asyncio.gather(*(dendrite.query(axon.target, Echo()) for _ in range(9)))

    assert all(each.is_success for each in found)
    assert axon.connections == 2


async def test_in_the_sdk_profile_nonces_rise_for_each_uuid_however_many_ask() -> None:
    """What the real axon demands; one that answers late and out of order."""
    last: dict[str, int] = {}
    used: set[str] = set()
    refused = 0

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        nonlocal refused
        name, nonce = asked.header("bt_header_dendrite_uuid"), asked.header("bt_header_dendrite_nonce")
        assert name is not None
        assert nonce is not None
        refused += name in used or int(nonce) <= last.get(name, 0)
        last[name] = int(nonce)
        used.add(name)
        await asyncio.sleep(0.001 * (int(nonce) % 3))
        used.discard(name)
        writer.write(http(b'{"reply":"r"}', *SAID))

    async with (
        raw_axon(answer, keep=True) as axon,
        Dendrite(BOB, profile=Profile.SDK, connections_an_axon=8) as dendrite,
    ):
        found = await asyncio.gather(*(dendrite.query(axon.target, Echo()) for _ in range(200)))

    assert all(each.is_success for each in found)
    assert refused == 0
    assert len(last) == 8
    assert axon.connections == 8


async def test_in_the_other_profiles_each_request_is_one_of_its_own() -> None:
    async with raw_axon(http(b'{"reply":"r"}', *SAID), keep=True) as axon:
        async with Dendrite(BOB) as dendrite:
            await asyncio.gather(*(dendrite.query(axon.target, Echo()) for _ in range(20)))
        assert len({asked.header("bt_header_dendrite_uuid") for asked in axon.asked}) == 20
        axon.asked.clear()
        async with Dendrite(BOB, profile=Profile.BTAUTH, now_ns=lambda: 7) as dendrite:
            await asyncio.gather(*(dendrite.query(axon.target, Echo()) for _ in range(20)))
        assert len({asked.header("X-Bittensor-Nonce") for asked in axon.asked}) == 20


async def test_headers_stand_in_the_order_of_the_real_dendrite() -> None:
    async with raw_axon(http(b"{}", *SAID)) as axon, Dendrite(BOB, profile=Profile.SDK) as dendrite:
        await dendrite.query(axon.target, Synapse(), 3.0)
        (asked,) = axon.asked

    assert asked.line == "POST /Synapse HTTP/1.1"
    names = [name for name, _ in asked.headers]
    assert names[:3] == ["Host", "name", "timeout"]
    assert names[names.index("header_size") :] == [
        "header_size",
        "total_size",
        "computed_body_hash",
        "Accept",
        "Accept-Encoding",
        "User-Agent",
        "Content-Length",
        "Content-Type",
    ]
    assert asked.header("content-type") == "application/json"


async def test_an_axon_whose_time_is_over_is_asked_again_only_where_told() -> None:
    tries = 0

    async def late(asked: Asked, writer: asyncio.StreamWriter) -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            await asyncio.Event().wait()
        writer.write(http(b'{"reply":"r"}', *SAID))

    async with raw_axon(late) as axon, Dendrite(BOB) as dendrite:
        assert (await dendrite.query(axon.target, Echo(), 0.3)).is_timeout
        assert tries <= 1
        assert (await dendrite.query(axon.target, Echo(), 0.3, retries=20)).is_success
        uuids = [asked.header("bt_header_dendrite_uuid") for asked in axon.asked]
    assert tries >= 3
    assert len(set(uuids)) == tries


async def test_what_is_no_timeout_is_not_asked_again() -> None:
    async with raw_axon(http(b'{"message":"no"}', status="503 Busy")) as axon, Dendrite(BOB) as dendrite:
        found = await dendrite.query(axon.target, Echo(), retries=5)

    assert found.dendrite.status_code == 503
    assert len(axon.asked) == 1


async def test_waiting_for_a_lane_counts_in_the_timeout() -> None:
    async def silent(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with (
        raw_axon(silent) as axon,
        Dendrite(BOB, profile=Profile.SDK, connections_an_axon=1) as dendrite,
    ):
        first = asyncio.create_task(dendrite.query(axon.target, Echo(), 60))
        await eventually(lambda: axon.asked, what="the request that holds the lane")
        found = await asyncio.gather(*(dendrite.query(axon.target, Echo(), 0.2) for _ in range(3)))
        first.cancel()

    assert all(each.is_timeout for each in found)
    assert len(axon.asked) == 1


Misbehaviour = Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]


async def _slowly(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(http(b"", *SAID, length=1000))
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.02)


async def _half_a_head(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-ty")
    await asyncio.Event().wait()


async def _endless(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
    while True:
        writer.write(b" " * 65536)
        await writer.drain()


async def _reset(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    await writer.drain()
    writer.transport.abort()


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (_slowly, 408),
        (_half_a_head, 408),
        (_endless, 400),
        (_reset, 503),
        (http(b"{}", *SAID, length=10**12), 400),
        (http(b" " * 2_000_000, *SAID), 400),
        (http(gzip.compress(b" " * 50_000_000), *SAID, "content-encoding: gzip"), 400),
        (http(b"\x1f\x8bgarbage", *SAID, "content-encoding: gzip"), 400),
        (
            CHUNKED + b"zz\r\n",
            400,
        ),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000, 400),
        (b"\r\n\r\n", 503),
        (b"SSH-2.0-OpenSSH_9.6\r\n", 400),
    ],
)
async def test_a_server_that_misbehaves_costs_a_bounded_time_and_memory(
    answer: bytes | Misbehaviour, status: int
) -> None:
    async with raw_axon(answer) as axon, Dendrite(BOB, largest_answer=1_000_000) as dendrite:
        found = await dendrite.query(axon.target, Echo(), 0.5 if status == 408 else 30.0)

    assert found.dendrite.status_code == status, found.dendrite.status_message
    assert not found.is_success
    assert len(found.dendrite.status_message or "") < 200


async def test_a_redirect_is_not_followed() -> None:
    async with raw_axon(http(b"{}", *SAID)) as other:
        place = f"location: http://127.0.0.1:{other.port}/Echo"
        async with (
            raw_axon(http(b"{}", place, status="307 Temporary Redirect")) as axon,
            Dendrite(BOB) as dendrite,
        ):
            found = await dendrite.query(axon.target, Echo())
        assert other.asked == []

    assert found.dendrite.status_code == 422


async def test_no_proxy_of_the_environment_and_no_cookie_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    async with (
        raw_axon(http(b'{"reply":"r"}', *SAID, "set-cookie: a=b"), keep=True) as axon,
        Dendrite(BOB) as dendrite,
    ):
        named = Target("localhost", axon.port, ALICE.address)  # no jar keeps cookies of a bare address
        for _ in range(2):
            assert (await dendrite.query(named, Echo())).is_success

    assert len(axon.asked) == 2
    assert all(asked.header("cookie") is None for asked in axon.asked)


async def test_a_caller_that_is_cancelled_closes_its_connection() -> None:
    async def silent(asked: Asked, writer: asyncio.StreamWriter) -> None:
        return

    async with raw_axon(silent, keep=True) as axon, Dendrite(BOB) as dendrite:
        task = asyncio.create_task(dendrite.query(axon.target, Echo(), 60))
        await eventually(lambda: axon.asked, what="the request")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: axon.gone == 1, what="the closing of the connection")


async def test_what_is_wrong_here_is_raised_before_anything_is_sent() -> None:
    async with raw_axon(b"") as axon, Dendrite(BOB) as dendrite:
        with pytest.raises(TargetRefused, match="no hotkey"):
            await dendrite.query([axon.target, Target("127.0.0.1", axon.port)], Echo())
        for timeout in (0, -1, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="timeout"):
                await dendrite.query(axon.target, Echo(), timeout)
        with pytest.raises(ValueError, match="retries"):
            await dendrite.query(axon.target, Echo(), retries=-1)
        assert axon.asked == []


async def test_a_closed_dendrite_says_so() -> None:
    dendrite = Dendrite(BOB)
    await dendrite.aclose()
    await dendrite.aclose()

    with pytest.raises(RuntimeError, match="closed"):
        await dendrite.query(Target("127.0.0.1", 9, ALICE.address), Echo())


async def test_tls_is_verified(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    make += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    await asyncio.to_thread(subprocess.run, make, check=True, capture_output=True)
    async with serving(APP, certificate=certificate, key=key) as port:
        target = Target("127.0.0.1", port, ALICE.address, tls=True)
        async with Dendrite(BOB) as dendrite:
            stranger = await dendrite.query(target, Echo(text="ab"))
        trusted = ssl.create_default_context(cafile=str(certificate))
        async with Dendrite(BOB, tls=trusted) as dendrite:
            known = await dendrite.query(target, Echo(text="ab"))

    assert stranger.dendrite.status_code == 503
    assert "TLS" in (stranger.dendrite.status_message or "")
    assert known.reply == "ba"


def sizes(dendrite: Dendrite) -> dict[str, int]:
    return {name: len(value) for name, value in vars(dendrite).items() if hasattr(value, "__len__")}


async def test_nothing_grows_with_the_number_of_calls() -> None:
    async with (
        raw_axon(http(b'{"reply":"r"}', *SAID), keep=True) as axon,
        Dendrite(Hotkey.from_seed(b"1" * 32), profile=Profile.SDK) as dendrite,
    ):
        await dendrite.query(axon.target, Echo())
        before = sizes(dendrite)
        for _ in range(50):
            await dendrite.query(axon.target, Echo())
        after = sizes(dendrite)

    assert after == before
    assert len({asked.header("bt_header_dendrite_uuid") for asked in axon.asked}) == 1
