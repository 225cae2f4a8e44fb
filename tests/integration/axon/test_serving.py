"""What the gateway's connections stand: odd and hostile bytes, slow peers, large ones, TLS, and the end."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import aiohttp
import pytest

from bakemesh.axon import app
from bakemesh.axon.gateway import GatewayState
from bakemesh.axon.serving import CannotServe, serving
from bakemesh.axon.settings import GatewaySettings, Limits, Tls
from bakemesh.edge import Axon
from bakemesh.protocol.axon import Profile, Synapse
from support.axon import ALICE, gateway, signed
from support.waiting import eventually


class Echo(Synapse):
    required_hash_fields: ClassVar = ("text",)
    text: str = ""


async def echo(synapse: Echo) -> Echo:
    return synapse


def served() -> Axon:
    return Axon().attach(echo)


def status(raw: bytes) -> int:
    return int(raw.split(b" ", 2)[1])


# -- smuggling


@pytest.mark.parametrize(
    "more",
    [
        ("bt_header_dendrite_hotkey", ALICE.address),
        ("BT_HEADER_DENDRITE_HOTKEY", ALICE.address),
        ("bt-header-dendrite-hotkey", ALICE.address),
        ("bt_header-dendrite_hotkey", ALICE.address),
        ("computed-body-hash", "00"),
        ("timeout", "1"),
        ("X-Bittensor-Hotkey", ALICE.address),
    ],
    ids=lambda more: more[0],
)
async def test_a_header_that_is_there_in_two_spellings_is_400(more: tuple[str, str]) -> None:
    async with gateway(served()) as at:
        assert status(await at.raw(signed(Echo()).raw(more))) == 400
        assert at.counted(verdict="malformed") == 1


@pytest.mark.parametrize(
    "line",
    [
        b"bt_header_dendrite_x: a\r\n b: c\r\n",  # a folded line
        b"bt_header_dendrite_x : a\r\n",
        b"bt_header_dendrite_x: a\rb: c\r\n",
        b"bt_header_dendrite_x: a\nb: c\r\n",
        b"bt_header_dendrite_x: a\0b\r\n",
        b": nameless\r\n",
        b"bt_header_dendrite_x\r\n",
        b"transfer-encoding: chunked\r\n",  # beside a content-length
        b"content-length: 5\r\n",
    ],
)
async def test_a_line_that_two_readers_could_read_in_two_ways_is_never_served(line: bytes) -> None:
    async with gateway(served()) as at:
        raw = signed(Echo()).raw()
        head, _, body = raw.partition(b"\r\n\r\n")
        answer = await at.raw(head + b"\r\n" + line + b"\r\n" + body)
        assert answer == b"" or status(answer) >= 400
        assert at.counted(verdict="ok") == 0


async def test_a_trailer_is_never_a_header() -> None:
    async with gateway(served()) as at:
        request = signed(Echo())
        taken = "bt_header_dendrite_signature"
        signature = request.headers.pop(taken)
        head = request.raw().partition(b"\r\n\r\n")[0].replace(b"content-length: ", b"x-length: ")
        body = b"%x\r\n%b\r\n0\r\n%b: %b\r\n\r\n" % (
            len(request.body),
            request.body,
            taken.encode(),
            signature.encode(),
        )
        assert status(await at.raw(head + b"\r\ntransfer-encoding: chunked\r\n\r\n" + body)) == 401


async def test_requests_in_one_packet_are_answered_in_their_order() -> None:
    async with gateway(served()) as at:
        first, second = signed(Echo(text="first")), signed(Echo(text="second"))
        answers = await at.raw(first.raw(close=False) + second.raw())
        assert answers.count(b"HTTP/1.1 200 ") == 2
        assert answers.index(b'"first"') < answers.index(b'"second"')


@pytest.mark.parametrize("protocol", [b"websocket", b"h2c", b"x"])
@pytest.mark.parametrize("length", [b"content-length: %d", b"transfer-encoding: chunked\r\nx: %d"])
async def test_a_body_behind_an_upgrade_is_never_the_next_request(protocol: bytes, length: bytes) -> None:
    inner = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    head = b"POST /Echo HTTP/1.1\r\nhost: x\r\nupgrade: %b\r\nconnection: upgrade\r\n" % protocol
    async with gateway(served()) as at:
        raw = await at.raw(head + length % len(inner) + b"\r\n\r\n", inner)
        assert b"alive" not in raw
        assert status(raw) == 400


async def test_chunks_in_http_1_0_are_refused() -> None:
    """A proxy of that time sees no body there, and takes it for the next request."""
    head = b"POST /Echo HTTP/1.0\r\nhost: x\r\nconnection: keep-alive\r\ntransfer-encoding: chunked\r\n\r\n"
    async with gateway(served()) as at:
        assert status(await at.raw(head + b"0\r\n\r\n")) == 400
        assert at.counted() == 0


async def test_an_upgrade_without_a_body_is_answered_as_a_plain_request() -> None:
    head = b"GET /healthz HTTP/1.1\r\nhost: x\r\nupgrade: h2c\r\nconnection: upgrade, close\r\n"
    async with gateway(served()) as at:
        assert status(await at.raw(head + b"\r\n")) == 200
        assert status(await at.raw(head + b"content-length: 0\r\n\r\n")) == 200


async def test_garbage_behind_a_request_does_not_become_its_answer() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def waits(synapse: Echo) -> Echo:
        begun.set()
        await go.wait()
        return synapse

    async with gateway(Axon().attach(waits)) as at:
        reader, writer = await asyncio.open_connection(at.host, at.port)
        writer.write(signed(Echo()).raw(close=False))
        async with asyncio.timeout(20):
            await begun.wait()
            writer.write(b"\x16\x03\x01 this is no HTTP\r\n\r\n")
            assert await rest(reader) == b""
        writer.close()
        await eventually(lambda: at.state.gate.running == 0, what="the first one ended")


async def rest(reader: asyncio.StreamReader) -> bytes:
    """What comes until the connection is closed or cut."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


# -- slow


async def until_closed(at_port: int, pieces: Sequence[bytes], drip: bytes) -> bytes:
    """Sends the pieces, then drips until the gateway closes; everything that it said."""
    reader, writer = await asyncio.open_connection("127.0.0.1", at_port)
    reading = asyncio.create_task(rest(reader))
    try:
        async with asyncio.timeout(20):
            for piece in pieces:
                writer.write(piece)
            while drip and not reading.done():
                writer.write(drip)
                await asyncio.sleep(0.01)
            return await reading
    finally:
        reading.cancel()
        writer.close()


@pytest.mark.parametrize(
    ("pieces", "drip"),
    [
        ((), b""),
        ((b"POST /Echo HTTP/1.1\r\n",), b""),
        ((b"POST /Echo HTTP/1.1\r\n",), b"x"),
        ((b"POST /Echo HTTP/1.1\r\n",), b"a: b\r\n"),
        ((), b"\r\n"),
    ],
    ids=["silence", "half a head", "a long word", "one header after another", "empty lines"],
)
async def test_a_head_that_does_not_come_in_time_is_408(pieces: Sequence[bytes], drip: bytes) -> None:
    async with gateway(served(), limits=Limits(header_s=0.2, headers=100_000, header_bytes=1 << 20)) as at:
        assert status(await until_closed(at.port, pieces, drip)) == 408


async def test_the_next_head_on_a_kept_connection_has_its_time_too() -> None:
    async with gateway(served(), limits=Limits(header_s=0.2)) as at:
        said = await until_closed(at.port, [signed(Echo()).raw(close=False), b"POST /Ec"], b"h")
        assert said.startswith(b"HTTP/1.1 200 ")
        assert b"HTTP/1.1 408 " in said


async def test_an_idle_connection_is_closed() -> None:
    async with gateway(served(), limits=Limits(keep_alive_s=0.1)) as at:
        said = await until_closed(at.port, [signed(Echo()).raw(close=False)], b"")
        assert status(said) == 200
        assert said.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("drip", [b"", b" "])
async def test_a_body_that_does_not_come_in_time_is_408(drip: bytes) -> None:
    async with gateway(served(), limits=Limits(body_s=0.2)) as at:
        request = signed(Echo(), profile=Profile.SDK)
        head = request.raw().replace(b"content-length: %d" % len(request.body), b"content-length: 100000")
        assert status(await until_closed(at.port, [head], drip)) == 408
        await eventually(lambda: at.state.gate.running == 0, what="the request ended")


async def test_a_body_has_no_more_time_than_its_request() -> None:
    async with gateway(served()) as at:
        request = signed(Echo(), timeout=0.1)
        head = request.raw().replace(b"content-length: %d" % len(request.body), b"content-length: 100000")
        said = await until_closed(at.port, [head], b"")
        assert status(said) == 408
        assert at.counted(verdict="timed_out") == 1


async def test_a_peer_that_does_not_read_is_cut() -> None:
    class Big(Synapse):
        required_hash_fields: ClassVar = ()
        text: str = ""

    async def big(synapse: Big) -> Big:
        synapse.text = "x" * (8 << 20)
        return synapse

    limits = Limits(keep_alive_s=0.1)
    async with gateway(Axon().attach(big, synapse=Big), limits=limits) as at:
        sock = socket.create_connection((at.host, at.port))
        sock.sendall(signed(Big()).raw(close=False))
        await eventually(lambda: at.counted(verdict="ok") == 1, what="it is answered")
        await eventually(lambda: not at.connections(), what="the connection is gone though nobody read")
        sock.close()


# -- large


async def test_a_body_of_a_hundred_megabytes_is_413_and_never_held() -> None:
    async with gateway(served(), limits=Limits(body_bytes=1 << 20)) as at:
        request = signed(Echo())
        request.headers["content-length"] = str(100 << 20)
        announced = await at.raw(request.raw().replace(b"content-length: %d\r\n" % len(request.body), b""))
        assert status(announced) == 413
        request = signed(Echo())
        head = request.raw().partition(b"\r\n\r\n")[0]
        head = head.replace(b"content-length", b"x-length") + b"\r\ntransfer-encoding: chunked\r\n\r\n"
        chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
        answer = await hundred_megabytes(at.port, head, chunk)
        assert status(answer) == 413
        assert at.counted(verdict="body_too_large") == 2


async def hundred_megabytes(port: int, head: bytes, chunk: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(head)
        answer = asyncio.create_task(reader.readuntil(b"\r\n\r\n"))
        for _ in range(1600):
            writer.write(chunk)
            try:
                await writer.drain()
            except ConnectionError:
                break
            if answer.done():
                break
        async with asyncio.timeout(20):
            return await answer
    finally:
        writer.close()


async def test_an_unsigned_body_is_not_read_at_all() -> None:
    async with gateway(served()) as at:
        head = b"POST /Echo HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n"
        reader, writer = await asyncio.open_connection(at.host, at.port)
        writer.write(head)
        async with asyncio.timeout(20):
            assert status(await reader.readuntil(b"\r\n\r\n")) == 401
        writer.close()


@pytest.mark.parametrize(
    "head",
    [
        b"POST /Echo HTTP/1.1\r\nhost: " + b"a" * 300_000,
        b"POST /Echo HTTP/1.1\r\nhost: a\r\n" + b"".join(b"h%d: v\r\n" % n for n in range(500)) + b"\r\n",
        b"POST /" + b"a" * 300_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n",
        b"POST /Echo HTTP/1.1\r\nhost: a\r\nb: " + b"c" * 20_000 + b"\r\n\r\n",
    ],
    ids=["an endless value", "many", "a long target", "a long value"],
)
async def test_a_flood_of_headers_is_431(head: bytes) -> None:
    async with gateway(served()) as at:
        assert status(await at.raw(head)) == 431
        assert (await at.post(Echo())).status == 200


@pytest.mark.parametrize(
    "flood",
    [b"0\r\nx: " + b"a" * 1_000_000, b"0\r\n" + b"a: b\r\n" * 200_000, b"5;" + b"a" * 1_000_000],
    ids=["a trailer", "trailers", "an extension"],
)
async def test_a_flood_within_a_chunked_body_is_431(flood: bytes) -> None:
    request = signed(Echo())
    head, body = request.raw().split(b"\r\n\r\n", 1)
    head = head.replace(b"content-length: %d" % len(body), b"transfer-encoding: chunked")
    async with gateway(served()) as at:
        raw = await at.raw(head + b"\r\n\r\n%x\r\n%b\r\n" % (len(body), body), flood)
        assert status(raw) == 431
        assert raw.count(b"HTTP/1.1 4") == 1


async def test_a_body_in_chunks_of_a_byte_is_a_body() -> None:
    request = signed(Echo(text="a" * 20_000))
    head = request.raw().split(b"\r\n\r\n", 1)[0]
    head = head.replace(b"content-length: %d" % len(request.body), b"transfer-encoding: chunked")
    chunks = b"".join(b"1\r\n%c\r\n" % each for each in request.body)
    async with gateway(served()) as at:
        assert status(await at.raw(head + b"\r\n\r\n" + chunks + b"0\r\nx: y\r\n\r\n")) == 200


async def test_more_connections_than_allowed_are_503_at_once() -> None:
    async with gateway(served(), limits=Limits(connections=2)) as at:
        held = [await asyncio.open_connection(at.host, at.port) for _ in range(2)]
        await eventually(lambda: at.connections() == 2, what="both are there")
        answer = await at.raw()
        assert status(answer) == 503
        assert b"retry-after: 1" in answer
        for _, writer in held:
            writer.close()


# -- TLS, addresses, the end


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    folder = tmp_path_factory.mktemp("tls")
    made = Tls(cert=folder / "cert.pem", key=folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command += ["-nodes", "-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", made.key, "-out", made.cert], check=True, capture_output=True)
    return made


async def test_tls(tls: Tls) -> None:
    async with gateway(served(), tls=tls) as at:
        trusting = ssl.create_default_context(cafile=str(tls.cert))
        request = signed(Echo(text="a"))
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting)) as session:
            url = f"https://127.0.0.1:{at.port}/Echo"
            async with session.post(url, headers=request.headers, data=request.body) as answer:
                assert answer.status == 200


async def test_a_handshake_that_does_not_come_in_time_is_ended(tls: Tls) -> None:
    async with gateway(served(), tls=tls, limits=Limits(header_s=0.2)) as at:
        assert await at.raw(b"") == b""
        assert await at.raw(b"\x16\x03\x01") == b""


async def test_tls_files_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "cert").write_text("nothing")
    state = GatewayState(
        GatewaySettings(port=0, tls=Tls(cert=tmp_path / "cert", key=tmp_path / "cert")), ALICE
    )
    with pytest.raises(CannotServe, match="TLS"):
        async with serving(app.build(served(), state), state):
            pass
    state.close()


async def test_an_address_that_is_taken_is_refused() -> None:
    async with gateway(served()) as at:
        state = GatewayState(GatewaySettings(port=at.port), ALICE)
        with pytest.raises(CannotServe, match=f"127.0.0.1:{at.port}"):
            async with serving(app.build(served(), state), state):
                pass
        state.close()


async def test_what_runs_is_answered_before_the_end() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def waits(synapse: Echo) -> Echo:
        begun.set()
        await go.wait()
        return synapse

    async with asyncio.timeout(30), aiohttp.ClientSession() as session:
        request = signed(Echo())
        async with gateway(Axon().attach(waits)) as at:
            running = asyncio.create_task(
                session.post(at.url + request.path, headers=request.headers, data=request.body)
            )
            await begun.wait()
            unready = asyncio.create_task(eventually(at.state.unready, what="it is being stopped"))
            unready.add_done_callback(lambda _: go.set())
        assert await unready == {"draining": "it is being stopped"}
        answer = await running
        assert answer.status == 200
        answer.release()
        with pytest.raises(OSError):  # noqa: PT011 - refused, whatever the system calls it
            await asyncio.open_connection(at.host, at.port)


async def test_what_takes_too_long_is_ended_with_it() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def waits(synapse: Echo) -> Echo:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return synapse

    async with asyncio.timeout(30):
        async with gateway(Axon().attach(waits), drain_s=0.2) as at:
            _, writer = await asyncio.open_connection(at.host, at.port)
            writer.write(signed(Echo()).raw(close=False))
            await begun.wait()
        assert ended.is_set()
        writer.close()
