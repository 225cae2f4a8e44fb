"""The steps before the handler, over a real socket: the author's functions, lists and limits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from bakemesh.axon.settings import Limits
from bakemesh.edge import Axon, Call
from bakemesh.protocol.axon import Hotkey, Profile, Synapse
from support.axon import ALICE, BOB, Signed, gateway, signed
from support.waiting import eventually

CHARLIE = Hotkey.from_seed(bytes(range(32)))


class Echo(Synapse):
    required_hash_fields: ClassVar = ("text",)
    text: str = ""
    reply: str | None = None


async def echo(synapse: Echo, call: Call) -> Echo:
    synapse.reply = f"{synapse.text} {call.priority:g}"
    return synapse


# -- blacklist


@pytest.mark.parametrize("profile", Profile)
async def test_a_blacklisted_hotkey_is_403_with_the_reason(profile: Profile) -> None:
    def not_bob(synapse: Echo, call: Call) -> tuple[bool, str]:
        assert synapse.dendrite.hotkey == call.hotkey
        return call.hotkey == BOB.address, "not registered"

    async with gateway(Axon().attach(echo, not_bob)) as at:
        answer = await at.post(Echo(), profile=profile)
        assert answer.status == 403
        assert answer.message == "Forbidden. Key is blacklisted: not registered."
        assert (await at.post(Echo(), profile=profile, by=CHARLIE)).status == 200


async def test_a_blacklist_sees_no_body_since_that_is_not_trusted_yet() -> None:
    seen: list[str] = []

    async def look(synapse: Echo) -> bool:
        seen.append(synapse.text)
        return False

    async with gateway(Axon().attach(echo, look)) as at:
        assert (await at.post(Echo(text="a"))).status == 200
        assert seen == [""]


@pytest.mark.parametrize(
    "reason",
    ["no 🦊 here", "a\r\nset-cookie: b=c", "x" * 9000, "\ud800 alone", "tab\tand nul\0", "100 %", "  "],
    ids=["emoji", "crlf", "long", "surrogate", "control", "percent", "blank"],
)
async def test_no_reason_can_break_an_answer(reason: str) -> None:
    async with gateway(Axon().attach(echo, lambda synapse: (True, reason))) as at:
        answer = await at.post(Echo())
        assert answer.status == 403
        assert "set-cookie" not in answer.headers
        told = answer.headers["bt_header_axon_status_message"]
        assert told.isascii()
        assert told.isprintable()
        assert len(told) <= 256
        assert len(answer.message) <= 2000
        assert json.loads(answer.body)["message"].startswith("Forbidden. Key is blacklisted")


@pytest.mark.parametrize("answer", ["yes", None, 1, (1, "a")])
async def test_a_blacklist_that_fails_lets_nobody_in(answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    async with gateway(Axon().attach(echo, lambda synapse: answer)) as at:
        assert (await at.post(Echo())).status == 500
        assert "a blacklist_fn returns a bool or (bool, reason)" in caplog.text


# -- priority


@pytest.mark.parametrize("plain", [True, False])
async def test_a_priority_reaches_the_handler(plain: bool) -> None:
    async def later(synapse: Echo) -> float:
        return 7.5

    function: Callable[..., Any] = (lambda synapse: 7.5) if plain else later
    async with gateway(Axon().attach(echo, None, function)) as at:
        assert json.loads((await at.post(Echo(text="a"))).body)["reply"] == "a 7.5"


@pytest.mark.parametrize("answer", [None, "high", float("nan")])
async def test_a_priority_that_is_no_number_is_500(answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    async with gateway(Axon().attach(echo, None, lambda synapse: answer)) as at:
        assert (await at.post(Echo())).status == 500
        assert "a priority_fn returns a number" in caplog.text


# -- verification of one's own


async def test_a_verify_fn_takes_the_place_of_the_whole_verification() -> None:
    async def only_bob(synapse: Echo) -> None:
        if synapse.dendrite.hotkey != BOB.address:
            raise PermissionError("only Bob")

    async with gateway(Axon().attach(echo, None, None, only_bob)) as at:
        request = signed(Echo(text="a"), by=CHARLIE, claims=BOB)
        assert (await at.send(request)).status == 200
        assert (await at.send(request)).status == 200  # replay is its own matter
        answer = await at.post(Echo(), by=CHARLIE)
        assert answer.status == 401
        assert answer.message == "Not Verified with error: only Bob"
        request.body = Echo(text="b").body()
        assert (await at.send(request)).status == 400  # the body is still what the hash says


async def test_a_body_without_any_claim_needs_the_route_to_allow_it() -> None:
    async def anybody(synapse: Echo) -> None:
        return

    unsigned = Signed("/Echo", {}, Echo(text="a").body())
    async with gateway(Axon().attach(echo, None, None, anybody)) as at:
        assert (await at.send(unsigned)).status == 400
    async with gateway(Axon().attach(echo, None, None, anybody, allow_unhashed_body=True)) as at:
        assert (await at.send(unsigned)).status == 200


# -- the deny list


async def test_a_listed_address_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    deny = tmp_path / "deny"
    deny.write_text("127.0.0.0/8 # this machine\n")
    async with gateway(Axon().attach(echo), deny=deny) as at:
        raw = await at.raw(
            b"POST /Echo HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\nconnection: close\r\n\r\n"
        )
        assert raw.startswith(b"HTTP/1.1 403 ")


async def test_whether_a_hotkey_is_listed_cannot_be_told_without_holding_it(tmp_path: Path) -> None:
    deny = tmp_path / "deny"
    deny.write_text(f"{BOB.address}\n")
    async with gateway(Axon().attach(echo), deny=deny) as at:
        assert (await at.post(Echo())).status == 401
        answers = [await at.post(Echo(), by=ALICE, claims=claimed) for claimed in (BOB, CHARLIE)]
        listed, other = (
            (each.status, each.body, {key for key in each.headers if key != "date"}) for each in answers
        )
        assert listed == other
        old = [await at.post(Echo(), by=ALICE, claims=each, nonce=1) for each in (BOB, CHARLIE)]
        assert old[0].status == old[1].status == 401
        assert old[0].message.split(":")[1] == old[1].message.split(":")[1]
        assert (await at.post(Echo(), by=CHARLIE)).status == 200


# -- limits


async def test_a_hotkey_has_a_rate_and_others_do_not_feel_it() -> None:
    async with gateway(Axon().attach(echo), limits=Limits(hotkey_rate=1)) as at:
        statuses = [(await at.post(Echo(text=str(n)))).status for n in range(2)]
        assert statuses == [200, 200]
        answer = await at.post(Echo())
        assert answer.status == 429
        assert answer.headers["retry-after"] == "1"
        assert (await at.post(Echo(), by=CHARLIE)).status == 200


async def test_nobody_uses_up_the_rate_of_another_hotkey() -> None:
    async with gateway(Axon().attach(echo), limits=Limits(hotkey_rate=1)) as at:
        request = signed(Echo(text="once"))
        assert (await at.send(request)).status == 200
        for _ in range(5):
            assert (await at.send(request)).status == 401  # again
            assert (await at.post(Echo(), by=CHARLIE, claims=BOB)).status == 401  # in its name
        assert (await at.post(Echo(text="twice"))).status == 200


async def test_a_hotkey_has_so_many_at_once_and_all_together_too() -> None:
    waiting, go = 0, asyncio.Event()

    async def waits(synapse: Echo) -> Echo:
        nonlocal waiting
        waiting += 1
        await go.wait()
        return synapse

    limits = Limits(hotkey_requests=1, in_flight=2)
    async with gateway(Axon().attach(waits), limits=limits) as at:
        first = asyncio.create_task(at.post(Echo()))
        await eventually(lambda: waiting == 1, what="the first one runs")
        assert (await at.post(Echo())).status == 429
        second = asyncio.create_task(at.post(Echo(), by=CHARLIE))
        await eventually(lambda: waiting == 2, what="the second one runs")
        full = await at.post(Echo(), by=ALICE)
        assert full.status == 503
        assert full.headers["retry-after"] == "1"
        assert (await at.get("/healthz")).status == 200  # whoever looks after it gets through
        go.set()
        assert [(await each).status for each in (first, second)] == [200, 200]
        assert (await at.post(Echo())).status == 200


async def test_one_hotkey_cannot_fill_the_memory_of_what_was_seen() -> None:
    async with gateway(Axon().attach(echo), limits=Limits(hotkey_rate=0, nonces=3)) as at:
        statuses = [(await at.post(Echo(text=str(n)))).status for n in range(4)]
        assert statuses == [200, 200, 200, 429]


async def test_what_its_rate_refuses_fills_no_memory_beyond_its_own() -> None:
    limits = Limits(hotkey_rate=1, nonces=1000)
    async with gateway(Axon().attach(echo), limits=limits) as at:
        own = limits.nonces_of_one(at.state.settings.window)
        answers = [await at.post(Echo(text=str(n))) for n in range(own + 20)]
        assert {answer.status for answer in answers} == {200, 429}
        assert len(at.state.replay) == own
        assert (await at.post(Echo(), by=CHARLIE)).status == 200


async def test_who_is_blacklisted_is_not_asked_for_a_priority() -> None:
    asked: list[str] = []

    async def listed(synapse: Echo, call: Call) -> bool:
        asked.append("blacklist")
        return call.hotkey == BOB.address

    async def priority(synapse: Echo) -> float:
        asked.append("priority")
        return 1.0

    async with gateway(Axon().attach(echo, listed, priority)) as at:
        assert (await at.post(Echo())).status == 403
        assert asked == ["blacklist"]
        assert (await at.post(Echo(), by=CHARLIE)).status == 200
        assert asked == ["blacklist", "blacklist", "priority"]


async def test_a_refusal_of_btauth_has_no_header_of_the_other_family() -> None:
    """As its answers have none: from the signature on, whoever refuses it."""

    async def listed(synapse: Echo) -> bool:
        return True

    async with gateway(Axon().attach(echo, listed)) as at:
        forged = signed(Echo(), profile=Profile.BTAUTH, claims=ALICE)
        for request, status, verdict in (
            (forged, 401, "bad_signature"),
            (signed(Echo(), profile=Profile.BTAUTH), 403, "blacklisted"),
        ):
            answer = await at.send(request)
            assert answer.status == status
            assert answer.message
            assert not [name for name in answer.headers if name.lower().startswith("bt_header")]
            assert at.counted(verdict=verdict, profile="btauth") == 1
