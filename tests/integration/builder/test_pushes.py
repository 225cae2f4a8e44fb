"""`<requestdata>` and the pushes that answer it, at a real Builder: asked, kept, joined, refused by type."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any

import pytest

from bakemesh.protocol.builder.codes import Verb
from bakemesh.protocol.builder.messages import BakeFailed, BakeSuccess, Result
from bakemesh.protocol.subjects import BAKE_DATA_PUSH
from bakemesh.supervisor import Bake
from support.controls import entries_of
from support.house import House, house_fixture, output_of, said, tale
from support.letters import again, inbox_subject, letter, send

pytestmark = pytest.mark.asyncio(loop_scope="module")
house = house_fixture()


async def push(
    house: House,
    bake: Bake,
    request: Any = "words",
    data: Any = b"x",
    *,
    party: str | None = None,
    without: tuple[str, ...] = (),
    **more: Any,
) -> Result:
    """One push, with any entries."""
    entries: dict[str, Any] = {**entries_of(bake.identity), "request": request, "data": data, **more}
    for name in without:
        del entries[name]
    subject = inbox_subject(house.bus, bake.identity, BAKE_DATA_PUSH, party=party)
    return await send(house.bus, subject, letter(BAKE_DATA_PUSH, entries))


async def asked(bake: Bake, request: str = "words") -> None:
    """Returns when the step asks."""
    status = await said(bake, lambda s: s.request)
    assert (status.kind, status.request) == ("interim", request)
    assert request in status.summary


def facts(result: Result) -> tuple[bool, str]:
    return result.accepted, result.code


async def test_it_asks_and_what_is_pushed_reaches_file_entry_stdin_and_argument(house: House) -> None:
    secret = house.canary()
    bake = await house.bake(
        '<recipe name="asks"><requestdata name="words" entry="Words" into="lists/words.txt"/>'
        '<cli command="cat lists/words.txt"/><cli command="cat" stdin-entry="Words"/>'
        '<cli command="echo ${entry:Words}"/>'
        "<cli><arg>printf</arg><arg>%s</arg><arg>[${entry:Words}]</arg></cli>"
        "</recipe>"
    )
    await asked(bake)
    result = await bake.push("words", f"{secret} $HOME;*")
    assert (result.accepted, result.code, result.verb) == (True, "ok", "BakeData")
    assert result.recipe_id == bake.recipe_id
    story = await house.story(bake)
    text = f"{secret} $HOME;*".encode()
    assert await output_of(bake) == {
        (1, "stdout"): text,
        (2, "stdout"): text,
        (3, "stdout"): text + b"\n",
        (4, "stdout"): b"[" + text + b"]",
    }
    ended = next(s for s in story if s.kind == "step" and s.outcome)
    assert (ended.outcome, ended.exitcode, ended.lastseq) == ("ok", None, 0), "without a process no exit code"
    assert "Words" in ended.summary
    assert "lists/words.txt" in ended.summary


async def test_a_push_before_the_request_is_kept(house: House) -> None:
    gate = house.gate()
    secret = house.canary()
    bake = await house.bake(
        f'<recipe name="early">{house.held_at(gate, "slow")}<requestdata name="words" entry="W"/>'
        '<cli command="cat" stdin-entry="W"/></recipe>'
    )
    await house.reached(bake, 0)
    assert (await bake.push("words", secret)).accepted
    gate.open()
    await house.story(bake)
    assert (await output_of(bake))[2, "stdout"] == secret.encode()


async def test_parts_in_any_order_each_taken_once(house: House) -> None:
    secret = house.canary()
    pieces = [secret[:13].encode(), b"\xff\x00\xfe", secret[13:].encode()]
    bake = await house.bake(
        '<recipe name="parts"><requestdata name="words" into="w"/><cli command="cat w"/></recipe>'
    )
    await asked(bake)

    async def part(number: int, data: bytes | None = None, **more: Any) -> tuple[bool, str]:
        piece = pieces[number - 1] if data is None else data
        return facts(await push(house, bake, data=piece, part=number, **{"lastpart": 0, **more}))

    assert await part(2) == (True, "ok")
    assert await part(2) == (True, "ok"), "the same bytes are taken once"
    assert await part(2, b"other") == (False, "malformed_message")
    assert await part(1, b"late", lastpart=1) == (False, "malformed_message"), (
        "part 2 came: 1 is not the last"
    )
    assert await part(3, lastpart=1) == (True, "ok")
    assert await part(4, b"more") == (False, "malformed_message"), "3 was the last"
    assert await part(4, b"more", lastpart=1) == (False, "malformed_message")
    assert await part(1) == (True, "ok")
    await house.story(bake)
    assert (await output_of(bake))[1, "stdout"] == b"".join(pieces)


async def test_a_large_push_goes_in_parts_and_text_is_bytes(house: House) -> None:
    data = os.urandom(1024) * (20 * 1024)  # 20 MiB, three parts at 8 MiB a message
    bake = await house.bake(
        '<recipe name="large"><requestdata name="words" into="w"/><requestdata name="text" into="t"/>'
        '<cli command="sha256sum w"/><cli command="cat t"/></recipe>'
    )
    assert (await bake.push("words", data)).accepted
    assert (await push(house, bake, "text", "Grüße")).accepted
    await house.story(bake)
    output = await output_of(bake)
    assert output[2, "stdout"].split()[0].decode() == hashlib.sha256(data).hexdigest()
    assert output[3, "stdout"] == "Grüße".encode()


async def test_the_same_message_again_gets_the_same_result(house: House) -> None:
    bake = await house.bake(
        '<recipe name="twice"><requestdata name="words" into="w"/><cli command="cat w"/></recipe>'
    )
    entries = {**entries_of(bake.identity), "request": "words", "data": house.canary()}
    sealed, subject = letter(BAKE_DATA_PUSH, entries), inbox_subject(house.bus, bake.identity, BAKE_DATA_PUSH)
    first = await send(house.bus, subject, sealed)
    assert first.accepted
    await house.story(bake)
    assert facts(await send(house.bus, subject, letter(BAKE_DATA_PUSH, entries))) == (False, "terminal")
    assert (await send(house.bus, subject, again(sealed))).entries() == first.entries()


async def test_every_refusal_in_its_order(house: House) -> None:
    gate = house.gate()
    bake = await house.bake(
        f'<recipe name="asks">{house.held_at(gate, "slow")}<requestdata name="words" entry="W"/></recipe>'
    )
    await house.reached(bake, 0)
    mark = house.canary()
    for missing in ("Supervisor", "Recipe", "RecipeID", "Node", "NodeID", "request", "data"):
        result = await push(house, bake, "nothing", mark, party="thief", without=(missing,))
        assert facts(result) == (False, "malformed_message"), missing
        assert missing.lower() in result.summary.lower()
    wrong: tuple[Mapping[str, Any], ...] = (
        {"part": 0},
        {"part": -1},
        {"part": 2**63},
        {"part": "1"},
        {"lastpart": 2},
        {"data": 7},
        {"data": ["x"]},
        {"request": b"words"},
        {"DATA": b"twice"},
        {"RecipeID": "boss-asks-999"},
    )
    for entries in wrong:
        assert facts(await push(house, bake, **{"data": mark, **entries})) == (
            False,
            "malformed_message",
        ), entries
    stranger = {"Supervisor": "nobody"}
    assert facts(await push(house, bake, "nothing", party="thief", **stranger)) == (False, "unknown_recipe")
    assert facts(await push(house, bake, "nothing", party="thief")) == (False, "unauthorised")
    refused = await push(house, bake, "wrods")
    assert facts(refused) == (False, "unknown_request")
    assert "words" in refused.summary
    ended = await house.bake('<recipe name="over"><cli command="true"/></recipe>')
    await ended.outcome()
    assert facts(await push(house, ended, "nothing", party="thief")) == (False, "unauthorised")
    assert facts(await push(house, ended, "nothing")) == (False, "terminal")
    assert facts(await push(house, bake, data=mark)) == (True, "ok"), "none of the refused ones was kept"
    gate.open()
    assert tale(await house.story(bake))[-1] == "Success"


async def test_a_bake_takes_64_mib_of_pushes(house: House) -> None:
    bake = await house.bake(
        '<recipe name="full"><requestdata name="words" entry="W"/><requestdata name="more" entry="M"/>'
        "</recipe>"
    )
    size = 8 * 2**20 - 65536
    kept = 0
    part = 1
    while kept + size <= 64 * 2**20:
        assert facts(await push(house, bake, data=bytes(size), part=part, lastpart=0)) == (True, "ok")
        kept, part = kept + size, part + 1
    refused = await push(house, bake, "more", bytes(size))
    assert facts(refused) == (False, "too_large")
    assert str(64 * 2**20) in refused.summary.replace(",", "")
    assert (await push(house, bake, data=bytes(64 * 2**20 - kept), part=part)).accepted, "to the byte"
    assert facts(await push(house, bake, "more", b"x")) == (False, "too_large")
    assert facts(await push(house, bake, "more", b"")) == (True, "ok")
    await house.story(bake)


async def test_a_timeout_a_skip_and_a_retry_while_it_waits(house: House) -> None:
    late = await house.bake(
        '<recipe name="late"><requestdata name="words" entry="W" timeout-ms="50"/></recipe>'
    )
    end = await late.outcome()
    assert isinstance(end, BakeFailed)
    assert (end.code, end.stepindex) == ("timeout", 0)
    assert (await house.story(late))[-2].outcome == "timeout"
    bake = await house.bake(
        '<recipe name="skipped"><requestdata name="words" entry="W" retryable="yes"/>'
        "<cli><arg>printf</arg><arg>[%s]</arg><arg>${entry:W}</arg></cli></recipe>"
    )
    await asked(bake)
    assert (await bake.control(Verb.RETRY_STEP)).accepted
    await said(bake, lambda s: s.request and s.attempt == 2)
    assert (await bake.skip_step()).accepted
    assert isinstance((await house.story(bake))[-1], BakeSuccess)
    assert (await output_of(bake))[1, "stdout"] == b"[]", "a skipped one leaves its entry empty"


async def test_a_push_is_not_told_in_a_path_or_an_argument(house: House) -> None:
    """What was pushed may stand for a program, a folder, a file: a summary shows the reference, never its
    value (the canaries are held against every Status at the end).
    """
    secret = house.canary()
    for step in (
        "<cli><arg>${entry:W}</arg></cli>",
        '<cli command="true" cwd="/${entry:W}"/>',
        '<cli command="true" cwd="${entry:W}/${entry:W}"/>',
        '<requestdata name="again" into="/${entry:W}/x"/>',
        '<cli command="true"><env name="A" value="${entry:W}"/></cli>',
    ):
        bake = await house.bake(f'<recipe name="tells"><requestdata name="words" entry="W"/>{step}</recipe>')
        await bake.push("words", f"{secret}\0" if "env" in step else f"../../{secret}")
        if "again" in step:  # its question is never asked
            await bake.push("again", b"x")
        assert isinstance(await bake.outcome(), BakeFailed), step
