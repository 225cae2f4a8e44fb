"""What a stranger tries who has no key, or one of his own: to be taken for another, to take all the room, to
send what was signed elsewhere; and a handler that would end more than its request.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any, ClassVar

import pytest

from bakemesh.axon.settings import Limits
from bakemesh.edge import Axon
from bakemesh.protocol.axon import Profile, StreamingSynapse, Synapse, keys
from bakemesh.protocol.axon.signatures import verified
from support.axon import ALICE, BOB, gateway, signed
from support.waiting import eventually


class Echo(Synapse):
    required_hash_fields: ClassVar = ("text",)
    text: str = ""


class Delete(Synapse):
    required_hash_fields: ClassVar = ("name", "text")
    text: str = ""


class Told(StreamingSynapse):
    required_hash_fields: ClassVar = ("text",)
    text: str = ""


async def echo(synapse: Echo) -> Echo:
    return synapse


async def delete(synapse: Delete) -> Delete:
    return synapse


# -- what was signed for another place


@pytest.mark.parametrize(
    ("profile", "status"), [(Profile.SYNAPSE, 400), (Profile.SDK, 400), (Profile.BTAUTH, 401)]
)
async def test_a_request_that_was_signed_for_one_synapse_is_not_taken_at_another(
    profile: Profile, status: int
) -> None:
    async with gateway(Axon().attach(echo).attach(delete)) as at:
        request = signed(Echo(text="a"), profile=profile)
        request.path = "/Delete"
        assert (await at.send(request)).status == status
        assert (await at.post(Delete(text="a"), profile=profile)).status == 200


@pytest.mark.parametrize(
    "claimed",
    [
        f"{ALICE.address}.5C4hrfjw9DjXZTzV3MwzrrAr9P1MJhSrvWGWqi1eSuyUpnhM",
        f"{ALICE.address}.{BOB.address}.uuid.{'0' * 64}",
        "x",
        BOB.address[:-1],
    ],
)
async def test_the_axon_signs_for_nobody_but_an_address(claimed: str) -> None:
    """With a dot in the middle its signature under an error would be one under a request of its own."""
    request = signed(Echo())
    request.headers[keys.DENDRITE_PREFIX + "hotkey"] = claimed
    async with gateway(Axon().attach(echo)) as at:
        answer = await at.send(request)
        assert answer.status == 401
        assert keys.AXON_PREFIX + "signature" not in answer.headers
        request.headers[keys.DENDRITE_PREFIX + "hotkey"] = BOB.address
        request.headers[keys.DENDRITE_PREFIX + "nonce"] = "1"
        told = {key.lower(): value for key, value in (await at.send(request)).headers.items()}
        axon = {name: told[keys.AXON_PREFIX + name] for name in ("nonce", "uuid", "signature")}
        message = f"{axon['nonce']}.{BOB.address}.{ALICE.address}.{axon['uuid']}"
        assert verified(ALICE.address, message, axon["signature"])


# -- room


def half(synapse: Synapse, **how: Any) -> bytes:
    """A request of btauth/1, signed by nobody, whose body does not come."""
    request = signed(synapse, profile=Profile.BTAUTH, **how)
    request.headers[keys.BTAUTH_SIGNATURE] = "0x" + "0" * 128
    return request.raw().removesuffix(request.body)


async def test_half_bodies_of_strangers_leave_room_for_others() -> None:
    limits = Limits(in_flight=6, unverified=3)
    async with gateway(Axon().attach(echo), limits=limits) as at:
        writers = []
        try:
            for _ in range(3):
                _reader, writer = await asyncio.open_connection(at.host, at.port)
                writers.append(writer)
                writer.write(half(Echo(text="a")))
            await eventually(lambda: at.state.gate.running == 3)
            full = await at.raw(half(Echo(text="a")))
            assert full.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after" in full
            assert (await at.post(Echo(text="a"), profile=Profile.SYNAPSE)).status == 200
            assert (await at.post(Echo(text="a"), profile=Profile.SDK)).status == 200
        finally:
            for writer in writers:
                writer.close()
        await eventually(lambda: at.state.gate.running == 0)
        assert (await at.post(Echo(text="a"), profile=Profile.BTAUTH)).status == 200


async def test_the_body_of_a_request_whose_headers_are_wrong_is_not_awaited() -> None:
    async with gateway(Axon().attach(echo)) as at:
        stale = half(Echo(), nonce=time.time_ns() - 3600 * 10**9)
        assert (await at.raw(stale)).startswith(b"HTTP/1.1 401 ")
        assert (await at.raw(half(Echo(), to=BOB.address))).startswith(b"HTTP/1.1 401 ")


# -- handlers


async def exits(synapse: Echo) -> Echo:
    sys.exit(3)


def exits_in_a_thread(synapse: Echo) -> Echo:
    sys.exit(3)


async def cancels(synapse: Echo) -> Echo:
    raise asyncio.CancelledError


async def interrupts(synapse: Echo) -> Echo:
    raise KeyboardInterrupt


@pytest.mark.parametrize("handler", [exits, exits_in_a_thread, cancels, interrupts])
async def test_a_handler_that_would_end_more_than_its_request_fails_it(handler: Any) -> None:
    async with gateway(Axon().attach(handler)) as at:
        answer = await at.post(Echo())
        assert answer.status == 500
        assert "Internal Server Error #" in answer.message
        assert at.counted(verdict="failed") == 1
        assert (await at.get("/healthz")).status == 200


async def test_a_blacklist_that_exits_lets_nobody_in() -> None:
    async with gateway(Axon().attach(echo, exits)) as at:
        assert (await at.post(Echo())).status == 500


async def test_a_verification_that_exits_lets_nobody_in() -> None:
    async with gateway(Axon().attach(echo, None, None, exits)) as at:
        assert (await at.post(Echo())).status == 401


async def test_a_stream_whose_handler_exits_says_so() -> None:
    async def told(synapse: Told) -> Any:
        yield "a"
        sys.exit(3)

    async with gateway(Axon().attach(told)) as at:
        answer = await at.post(Told())
        assert answer.body.startswith(b"data: a\n\nevent: error\n")
        assert b"[DONE]" not in answer.body
        assert at.counted(verdict="failed") == 1
