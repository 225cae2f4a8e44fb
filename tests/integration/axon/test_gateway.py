"""A gateway over a real socket: every profile, every verdict, and what the handler sees."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from bakemesh.axon.settings import Limits
from bakemesh.edge import Axon, Call, HandlerRefused
from bakemesh.protocol.axon import Hotkey, Profile, Synapse, TerminalInfo, signing
from bakemesh.protocol.axon.hashing import EMPTY
from bakemesh.protocol.axon.signatures import verified
from bakemesh.protocol.axon.verdicts import HTTP_STATUS, Verdict
from support.axon import ALICE, BOB, Gateway, Signed, gateway, signed

CHARLIE = Hotkey.from_seed(bytes(range(32)))


class Echo(Synapse):
    required_hash_fields: ClassVar = ("text",)
    text: str = ""
    extra: int = 0
    reply: str | None = None


class Bare(Synapse):
    """Declares nothing to be hashed."""

    text: str = ""


class Answer(BaseModel):
    total: int


class Sum(Synapse):
    Output: ClassVar = Answer
    required_hash_fields: ClassVar = ("numbers",)
    numbers: list[int]
    total: int | None = None


async def echo(synapse: Echo, call: Call) -> Echo:
    synapse.reply = f"{synapse.text} of {call.hotkey}, {synapse.dendrite.hotkey} ({call.profile})"
    return synapse


async def add(synapse: Sum) -> Answer:
    return Answer(total=sum(synapse.numbers))


async def bare(synapse: Bare) -> None:
    synapse.text = synapse.text.upper()


def reply(body: bytes) -> Any:
    return json.loads(body)["reply"]


async def refused(at: Gateway, request: Signed, verdict: Verdict, *words: str) -> None:
    """It is refused with that verdict: by status, by count, and by words that the client can read."""
    before = at.counted(verdict=verdict)
    answer = await at.send(request)
    assert answer.status == HTTP_STATUS[verdict], answer.body
    assert at.counted(verdict=verdict) == before + 1
    assert set(json.loads(answer.body)) == {"message"}
    for word in words:
        assert word in answer.message


# -- what is served


@pytest.mark.parametrize("profile", Profile)
async def test_a_signed_request_is_answered_and_the_handler_sees_who_signed_it(profile: Profile) -> None:
    async with gateway(Axon().attach(echo)) as at:
        answer = await at.post(Echo(text="a"), profile=profile)
        assert answer.status == 200, answer.body
        assert reply(answer.body) == f"a of {BOB.address}, {BOB.address} ({profile})"
        assert at.counted(route="Echo", verdict="ok", profile=profile) == 1
        told = answer.headers.get("bt_header_axon_status_code")
        assert told == (None if profile is Profile.BTAUTH else "200")


@pytest.mark.parametrize("profile", Profile)
async def test_a_hotkey_in_the_body_is_nobody(profile: Profile) -> None:
    async with gateway(Axon().attach(echo)) as at:
        spoofed = Echo(text="a", dendrite=TerminalInfo(hotkey=ALICE.address))
        answer = await at.post(spoofed, profile=profile)
        assert reply(answer.body) == f"a of {BOB.address}, {BOB.address} ({profile})"


@pytest.mark.parametrize("profile", Profile)
async def test_an_output_is_the_body_or_for_the_sdk_fields_of_the_synapse(profile: Profile) -> None:
    async with gateway(Axon().attach(add)) as at:
        answer = await at.post(Sum(numbers=[1, 2, 3]), profile=profile)
        body = json.loads(answer.body)
        if profile is Profile.SDK:
            assert body["numbers"] == [1, 2, 3]
            assert body["axon"]["status_code"] == 200
            assert body["dendrite"]["hotkey"] == BOB.address
        else:
            assert body == {"total": 6}
        assert body["total"] == 6


async def test_the_headers_of_an_answer_are_those_of_the_real_axon_in_its_order() -> None:
    async with gateway(Axon().attach(echo)) as at:
        answer = await at.post(Echo(text="a"), profile=Profile.SDK)
        ours = [key for key in answer.headers if key in ("name", "timeout") or key.startswith("bt_header_")]
        assert ours == [
            "name",
            "timeout",
            "bt_header_axon_status_code",
            "bt_header_axon_status_message",
            "bt_header_axon_process_time",
            "bt_header_axon_hotkey",
            "bt_header_dendrite_ip",
            "bt_header_dendrite_port",
            "bt_header_dendrite_nonce",
            "bt_header_dendrite_uuid",
            "bt_header_dendrite_hotkey",
            "bt_header_dendrite_signature",
        ]
        assert answer.headers["bt_header_axon_status_message"] == "Success"
        assert int(answer.headers["total_size"]) == len(answer.body)


async def test_the_ping_answers_whatever_its_body_is() -> None:
    async with gateway(Axon()) as at:
        for profile in Profile:
            assert (await at.post(Synapse(), profile=profile)).status == 200
        request = signed(Synapse(), profile=Profile.SDK)
        assert request.headers["computed_body_hash"] == EMPTY
        request.body = b"\x00 no JSON at all"
        assert (await at.send(request)).status == 200


async def test_the_same_in_hyphens() -> None:
    async with gateway(Axon().attach(echo)) as at:
        request = signed(Echo(text="a"), profile=Profile.SDK)
        request.headers = {key.replace("_", "-"): value for key, value in request.headers.items()}
        assert (await at.send(request)).status == 200


async def test_a_wrapped_signature_of_a_wallet_is_taken() -> None:
    async with gateway(Axon().attach(echo)) as at:
        request = signed(Echo(text="a"))
        told = request.headers
        message = signing.signing_message(
            int(told["bt_header_dendrite_nonce"]),
            BOB.address,
            ALICE.address,
            told["bt_header_dendrite_uuid"],
            told["computed_body_hash"],
        )
        told["bt_header_dendrite_signature"] = BOB.sign(signing.wrapped(message))
        assert (await at.send(request)).status == 200


async def test_milliseconds_are_a_nonce_too() -> None:
    async with gateway(Axon().attach(echo)) as at:
        assert (await at.post(Echo(), nonce=time.time_ns() // 1_000_000)).status == 200


# -- what is not


async def test_who_does_not_sign_is_401() -> None:
    async with gateway(Axon().attach(echo)) as at:
        await refused(at, Signed("/Echo", {}, b"{}"), Verdict.UNSIGNED)
        request = signed(Echo())
        del request.headers["bt_header_dendrite_signature"]
        await refused(at, request, Verdict.UNSIGNED, "Missing Signature")
        await refused(at, signed(Echo(), by=CHARLIE, claims=BOB), Verdict.BAD_SIGNATURE)
        await refused(at, signed(Echo(), to=CHARLIE.address), Verdict.WRONG_RECEIVER)


async def test_a_request_is_served_once() -> None:
    async with gateway(Axon().attach(echo)) as at:
        for profile in Profile:
            request = signed(Echo(text="a"), profile=profile)
            assert (await at.send(request)).status == 200
            await refused(at, request, Verdict.REPLAYED)


async def test_another_signature_of_the_same_request_is_the_same_request() -> None:
    async with gateway(Axon().attach(echo)) as at:
        nonce, uuid = time.time_ns(), "one"
        first, second = (signed(Echo(), nonce=nonce, uuid=uuid) for _ in range(2))
        signature = "bt_header_dendrite_signature"
        assert first.headers[signature] != second.headers[signature]
        assert (await at.send(first)).status == 200
        await refused(at, second, Verdict.REPLAYED)
        second.headers[signature] = second.headers[signature].upper().replace("0X", "0x")
        await refused(at, second, Verdict.REPLAYED)


@pytest.mark.parametrize("profile", Profile)
async def test_freshness_is_the_same_for_every_profile_and_whatever_the_timeout(profile: Profile) -> None:
    now = time.time_ns()
    async with gateway(Axon().attach(echo), now_ns=lambda: now) as at:
        for age_ms, fresh in ((9_900, True), (-1_900, True), (10_100, False), (-2_100, False)):
            request = signed(Echo(), profile=profile, nonce=now - age_ms * 1_000_000, timeout=3600)
            if fresh:
                assert (await at.send(request)).status == 200
            else:
                await refused(at, request, Verdict.STALE)


async def test_a_body_that_was_not_signed_is_400() -> None:
    async with gateway(Axon().attach(echo)) as at:
        for profile, verdict in (
            (Profile.SYNAPSE, Verdict.BODY_MISMATCH),
            (Profile.SDK, Verdict.BODY_MISMATCH),
            (Profile.BTAUTH, Verdict.BAD_SIGNATURE),  # its signature is over the body
        ):
            request = signed(Echo(text="a"), profile=profile)
            request.body = Echo(text="b").body()
            await refused(at, request, verdict)


async def test_in_the_sdk_profile_a_field_that_is_not_signed_must_be_its_default() -> None:
    async with gateway(Axon().attach(echo)) as at:
        request = signed(Echo(text="a"), profile=Profile.SDK)
        request.body = Echo(text="a", extra=7).body()
        await refused(at, request, Verdict.BODY_MISMATCH, "'extra'", "required_hash_fields")
        assert (await at.post(Echo(text="a", extra=7))).status == 200  # all of the body is signed there
    async with gateway(Axon().attach(echo, unhashed_fields=["extra"])) as at:
        assert (await at.post(Echo(text="a", extra=7), profile=Profile.SDK)).status == 200


async def test_a_constant_hash_is_refused_unless_the_route_allows_it() -> None:
    async with gateway(Axon().attach(bare)) as at:
        await refused(
            at, signed(Bare(text="a"), profile=Profile.SDK), Verdict.BODY_MISMATCH, "allow_unhashed_body"
        )
    async with gateway(Axon().attach(bare, allow_unhashed_body=True)) as at:
        answer = await at.post(Bare(text="a"), profile=Profile.SDK)
        assert json.loads(answer.body)["text"] == "A"
        await refused(at, signed(Bare(), profile=Profile.SDK, body=b""), Verdict.BAD_BODY)


async def test_a_body_that_is_no_synapse_says_where() -> None:
    async with gateway(Axon().attach(echo)) as at:
        await refused(at, signed(Echo(), body=b"not json"), Verdict.BAD_BODY)
        await refused(at, signed(Echo(), body=b""), Verdict.BAD_BODY)
        await refused(at, signed(Echo(), body=b'{"text": 3}'), Verdict.BAD_BODY, "text")


async def test_both_families_in_one_request_are_400() -> None:
    async with gateway(Axon().attach(echo)) as at:
        request = signed(Echo())
        request.headers |= signed(Echo(), profile=Profile.BTAUTH).headers
        await refused(at, request, Verdict.MALFORMED)


async def test_an_unknown_route_names_what_there_is() -> None:
    async with gateway(Axon().attach(echo).attach(add)) as at:
        answer = await at.send(Signed("/Nowhere", signed(Echo()).headers, b"{}"))
        assert answer.status == 404
        assert answer.message == (
            "Synapse name 'Nowhere' not found. Available synapses ['Synapse', 'Echo', 'Sum']"
        )
        assert answer.headers["bt_header_axon_status_code"] == "404"


@pytest.mark.parametrize("method", ["PUT", "GET", "DELETE", "PATCH", "OPTIONS"])
async def test_only_post(method: str) -> None:
    async with gateway(Axon().attach(echo)) as at:
        request = signed(Echo())
        request.method = method
        answer = await at.send(request)
        assert answer.status == 405
        assert answer.headers["allow"] == "POST"


@pytest.mark.parametrize("timeout", ["nan", "-1", "soon", "1e400x"])
async def test_a_timeout_that_is_none_is_400(timeout: str) -> None:
    async with gateway(Axon().attach(echo)) as at:
        request = signed(Echo())
        request.headers["timeout"] = timeout
        await refused(at, request, Verdict.MALFORMED, "timeout")


# -- handlers


async def test_a_handler_that_fails_is_500_with_a_number_that_is_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fails(synapse: Echo) -> Echo:
        raise ValueError("the secret of the house")

    async with gateway(Axon().attach(fails)) as at:
        with caplog.at_level(logging.ERROR, "bakemesh.axon.app"):
            answer = await at.post(Echo())
        assert answer.status == 500
        assert "secret" not in answer.message
        number = answer.message.removeprefix("Internal Server Error #")
        assert number in caplog.text
        assert "the secret of the house" in caplog.text


async def test_a_handler_that_returns_what_is_no_answer_is_500(caplog: pytest.LogCaptureFixture) -> None:
    async def odd(synapse: Echo) -> Any:
        return {"reply": "a"}

    async with gateway(Axon().attach(odd)) as at:
        assert (await at.post(Echo())).status == 500
        assert "it returned {'reply': 'a'}; expected Echo or None" in caplog.text


async def test_a_handler_may_end_a_request_in_its_own_way() -> None:
    async def busy(synapse: Echo) -> Echo:
        raise HandlerRefused(Verdict.OVERLOADED, "come again", retry_after_s=2.5)

    async with gateway(Axon().attach(busy)) as at:
        answer = await at.post(Echo())
        assert (answer.status, answer.message) == (503, "come again")
        assert answer.headers["retry-after"] == "3"


async def test_an_error_is_signed_by_the_axon() -> None:
    async with gateway(Axon().attach(echo)) as at:
        request = signed(Echo(), by=CHARLIE, claims=BOB)
        answer = await at.send(request)
        told = {key[15:]: value for key, value in answer.headers.items() if key.startswith("bt_header_axon_")}
        message = signing.response_message(int(told["nonce"]), BOB.address, ALICE.address, told["uuid"])
        assert verified(ALICE.address, message, told["signature"])


async def test_blocking_handlers_run_side_by_side_and_do_not_block_the_loop() -> None:
    import threading

    together = threading.Barrier(5)

    def blocks(synapse: Echo) -> Echo:
        together.wait(10)  # passes once four requests and the loop itself are here
        synapse.reply = "through"
        return synapse

    async with gateway(Axon().attach(blocks)) as at:
        requests = [asyncio.create_task(at.post(Echo(text=str(n)))) for n in range(4)]
        while together.n_waiting < 4:
            assert (await at.get("/healthz")).status == 200  # while they block
        together.wait(10)
        assert [reply(answer.body) for answer in await asyncio.gather(*requests)] == ["through"] * 4


async def test_a_deadline_is_the_shorter_of_the_two() -> None:
    ended = asyncio.Event()

    async def slow(synapse: Echo) -> Echo:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return synapse

    async with gateway(Axon().attach(slow), limits=Limits(request_s=3600)) as at:
        await refused(at, signed(Echo(), timeout=0.05), Verdict.TIMED_OUT, "0.05")
        assert ended.is_set()
    async with gateway(Axon().attach(slow, limit_s=0.05)) as at:
        await refused(at, signed(Echo(), timeout=3600), Verdict.TIMED_OUT, "0.05")


async def test_a_client_that_is_gone_ends_its_handler() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def waits(synapse: Echo) -> Echo:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return synapse

    async with gateway(Axon().attach(waits)) as at:
        _, writer = await asyncio.open_connection(at.host, at.port)
        writer.write(signed(Echo()).raw())
        async with asyncio.timeout(20):
            await begun.wait()
            writer.transport.abort()
            await ended.wait()
        assert at.state.gate.running == 0
        assert at.counted(verdict="client_gone") == 1


async def test_health_readiness_and_metrics_need_no_signature() -> None:
    async with gateway(Axon().attach(echo)) as at:
        assert (await at.get("/healthz")).status == 200
        assert (await at.get("/readyz")).status == 200
        at.state.missing["mesh"] = lambda: "no node takes work"
        answer = await at.get("/readyz")
        assert answer.status == 503
        assert json.loads(answer.body)["missing"] == {"mesh": "no node takes work"}
        await at.post(Echo())
        text = (await at.get("/metrics")).body.decode()
        assert 'bakemesh_axon_requests_total{profile="synapse",route="Echo",verdict="ok"} 1.0' in text
        assert "bakemesh_axon_nonces 1.0" in text
