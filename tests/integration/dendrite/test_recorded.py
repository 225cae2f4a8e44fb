"""What the real dendrite made of recorded answers, ours makes too.

`DIFFERENT` is the only place where ours may differ: the status codes never do. Of the messages those differ
that hold a library's text, with its classes, addresses and versions; each is named with ours.
"""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from bakemesh.dendrite import CallFailed, Dendrite, Target
from bakemesh.protocol.axon import Profile, Synapse
from support.rawaxon import raw_axon
from support.recorded import ALICE, BOB, exchanges, recorded
from support.recordedclasses import Boom, Echo, Private, Required, Tok


class Unhashed(Synapse):
    text: str = ""
    reply: str | None = None


class Nowhere(Synapse):
    text: str = ""


CLASSES = {cls.__name__: cls for cls in (Synapse, Echo, Unhashed, Required, Boom, Private, Nowhere, Tok)}

NOT_READ = "Failed to parse response: "
DIFFERENT = {
    "wrong_content_type_html_502": NOT_READ + "502 with text/html, not JSON",
    "200_json_array": NOT_READ + "the body: Input should be an object",
    "200_wrong_type": NOT_READ + "n: Input should be a valid integer, unable to parse string as an integer",
    "200_not_json": NOT_READ + "the body: Invalid JSON: expected ident at line 1 column 2",
    "resp_header_9000": "Client response error: the answer's head is no HTTP, or too long",
    "bad_axon_header_value": NOT_READ + "bt_header_axon_status_code is 'abc', no number",
    "truncated_body": "Payload error: the answer broke off, or is not encoded as it says",
    "garbage": "Client response error: the answer's head is no HTTP, or too long",
    "redirect_307": NOT_READ + "307 sends on to another place; that is not followed",
    "dns_failure": "No address is known for no-such-host.invalid",
}
CASES = {case["case"]: case for case in recorded("dendrite_error_map")}
SENT = [name for name, case in CASES.items() if "server_sent" in case]


def sent(case: dict[str, Any]) -> bytes:
    """The bytes that were answered. The long headers are cut in the record and made again here."""
    text = case["server_sent"]
    if case["case"].startswith("resp_header_"):
        head = text[: text.index("x: ")]
        length = int(case["case"].removeprefix("resp_header_"))
        text = f"{head}x: {'a' * (length - 3)}\r\ncontent-length: 13\r\n\r\n" + '{"reply":"r"}'
    return text.encode("latin-1")


async def asked(target: Target, timeout: float = 10.0) -> Echo:
    async with Dendrite(BOB, profile=Profile.SDK) as dendrite:
        return await dendrite.query(target, Echo(text="a"), timeout)


def compared(case: dict[str, Any], found: Echo, message: str | None) -> None:
    assert found.dendrite.status_code == case["dendrite.status_code"]
    assert found.axon.status_code == case["axon.status_code"]
    assert found.reply == case["reply"]
    assert found.dendrite.status_message == message
    assert found.is_success == (case["dendrite.status_code"] == 200)
    # The real one lets the axon change who asked; ours never does.
    assert found.dendrite.hotkey == BOB.address
    assert found.axon.hotkey == ALICE.address
    assert found.text == "a"
    assert found.dendrite.process_time is not None


@pytest.mark.parametrize("name", SENT)
async def test_an_answer_ends_as_at_the_real_dendrite(name: str) -> None:
    case = CASES[name]
    async with raw_axon(sent(case)) as axon:
        found = await asked(axon.target)

    compared(case, found, DIFFERENT.get(name, case["dendrite.status_message"]))


async def test_no_answer_in_time_is_a_timeout() -> None:
    async def silent(asked: object, writer: object) -> None:
        await asyncio.Event().wait()

    async with raw_axon(silent) as axon:
        found = await asked(axon.target, 0.3)

    compared(CASES["no_answer_timeout_0.3"], found, "Request timeout after 0.3 seconds")
    assert found.is_timeout


async def test_a_refused_connection() -> None:
    async with raw_axon(b"") as axon:
        target = axon.target
    found = await asked(target)

    compared(CASES["connection_refused"], found, f"Service unavailable at 127.0.0.1:{target.port}/Echo")


async def test_a_name_without_an_address() -> None:
    found = await asked(Target("no-such-host.invalid", 9, ALICE.address))

    compared(CASES["dns_failure"], found, DIFFERENT["dns_failure"])


def test_the_table_names_only_what_differs() -> None:
    for name, ours in DIFFERENT.items():
        assert CASES[name]["dendrite.status_message"] != ours


@pytest.mark.parametrize(
    "name", [each for each in exchanges() if "dendrite_result" in recorded(each) and each != "stream_ok"]
)
async def test_a_recorded_exchange_has_the_recorded_result(name: str) -> None:
    exchange = recorded(name)
    given = exchange["request"]["line"].split()[1].removeprefix("/")
    found = await _replayed(exchange, given)
    expected = exchange["dendrite_result"]

    assert found.dendrite.status_code == expected["dendrite.status_code"]
    assert found.dendrite.status_message == expected["dendrite.status_message"]
    assert found.axon.status_code == expected["axon.status_code"]
    for flag in ("is_success", "is_timeout", "is_blacklist", "failed_verification"):
        assert getattr(found, flag) == expected[flag]
    assert found.dendrite.hotkey == BOB.address


async def _replayed(exchange: dict[str, Any], name: str) -> Synapse:
    cls = CLASSES[name]
    body = json.loads(exchange["request"]["body"]["text"] or "{}")
    inputs = {
        key: value for key, value in body.items() if key not in Synapse.model_fields and value is not None
    }
    async with (
        raw_axon(base64.b64decode(exchange["response"]["raw_base64"])) as axon,
        Dendrite(BOB, profile=Profile.SDK) as dendrite,
    ):
        found = await dendrite.query(axon.target, cls(**inputs))
    if found.is_success:
        answered = json.loads(exchange["response"]["body"]["text"])
        for key in set(cls.model_fields) - set(Synapse.model_fields):
            assert getattr(found, key) == answered[key]
    return found


async def test_a_recorded_stream_gives_its_chunks() -> None:
    exchange = recorded("stream_ok")
    async with (
        raw_axon(base64.b64decode(exchange["response"]["raw_base64"])) as axon,
        Dendrite(BOB, profile=Profile.SDK) as dendrite,
        dendrite.stream(axon.target, Tok(prompt="q")) as stream,
    ):
        chunks = [chunk async for chunk in stream]

    assert chunks == exchange["yielded_chunks"]
    assert stream.synapse.dendrite.status_code == exchange["dendrite_result"]["dendrite.status_code"]
    assert stream.synapse.dendrite.status_message == exchange["dendrite_result"]["dendrite.status_message"]
    assert stream.synapse.is_success


async def test_a_refused_stream_raises_and_gives_no_chunk() -> None:
    """The real one yields the refusal's JSON as if it were a part."""
    exchange = recorded("err_blacklisted")
    async with (
        raw_axon(base64.b64decode(exchange["response"]["raw_base64"])) as axon,
        Dendrite(BOB, profile=Profile.SDK) as dendrite,
    ):
        stream = dendrite.stream(axon.target, Tok(prompt="q"))
        with pytest.raises(CallFailed, match="not registered") as failed:
            await anext(stream)

    assert failed.value.status_code == 403
    assert stream.synapse.is_blacklist
