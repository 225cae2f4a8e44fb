"""Every request that was recorded at the real axon, byte for byte at our gateway.

`VERDICTS` is the one table: for each recording the status that ours answers, and why where the answer is not
the real one's. Nothing else may differ: where there is no reason, the answer's own fields, its status headers
and (but for what is drawn) its message are the real one's.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import h11
import pytest

from bakemesh.edge import Axon, Call
from bakemesh.protocol.axon.signatures import verified
from bakemesh.protocol.axon.signing import response_message
from bakemesh.protocol.axon.synapse import ENVELOPE
from support.axon import gateway
from support.recorded import ALICE, BOB, exchanges, recorded
from support.recordedclasses import Boom, Echo, Private, Required, Tok


@dataclass(frozen=True)
class Ours:
    """What our gateway answers; `why`: the real one answers otherwise. `twice`: they came before."""

    status: int
    why: str = ""
    twice: bool = False


VERDICTS = {
    "unary_ok_echo": Ours(200),
    "unary_ok_ping": Ours(200),
    "unary_ok_required": Ours(200),
    "stream_ok": Ours(200),
    "minimal_ok_six_headers": Ours(200),
    "quirk_body_hotkey_spoof": Ours(200, why="handler and answer name who signed, not whom the body names"),
    "err_blacklisted": Ours(403),
    "err_body_not_json": Ours(422),
    "err_handler_exception": Ours(500),
    "err_missing_signature": Ours(401),
    "err_signature_wrong_key": Ours(401),
    "err_replay": Ours(401, twice=True),
    "err_unknown_route": Ours(404),
    "err_wrong_body_hashed_field": Ours(400, why="a body that was not signed is the client's fault, not 500"),
    "err_crate_style_body_hash": Ours(200, why="the hash of the body's bytes is the synapse profile's"),
    "err_nonce_milliseconds": Ours(200, why="milliseconds are told from nanoseconds by their magnitude"),
    "err_stale_nonce": Ours(200, why="8 s old: the window is 10 s, whatever the timeout header says"),
    "quirk_future_nonce": Ours(401, why="an hour ahead: the window is 2 s, else a request could be kept"),
    "quirk_hyphen_headers": Ours(200, why="a proxy may write hyphens; the request is a good one"),
}
# Messages that the real one makes of what it drew or of a library's text, and what ours says instead.
WORDS = {
    "err_body_not_json": r"deserialization failed: the body: Invalid JSON: .+",
    "err_handler_exception": r"Internal Server Error #[0-9a-f-]{36}",
    "err_missing_signature": r"Not Verified with error: Missing Signature.*",
    "err_signature_wrong_key": r"Not Verified with error: the signature is not that of .+",
    "err_replay": r"Not Verified with error: Nonce was seen already.+",
    "err_unknown_route": r"Synapse name 'Nowhere' not found\. Available synapses \['Synapse', 'Echo', .+\]",
}


class Served:
    """The recorded axon's handlers; `saw`: who asked, as they were told."""

    def __init__(self) -> None:
        self.saw: list[str] = []
        self.axon = (
            Axon()
            .attach(self.echo)
            .attach(self.required)
            .attach(self.boom, allow_unhashed_body=True)
            .attach(self.private, self.listed, allow_unhashed_body=True)
            .attach(self.tok)
        )

    async def echo(self, synapse: Echo, call: Call) -> Echo:
        assert synapse.dendrite.hotkey == call.hotkey
        self.saw.append(call.hotkey)
        synapse.reply = synapse.text
        return synapse

    async def required(self, synapse: Required) -> Required:
        synapse.reply = synapse.prompt
        return synapse

    async def boom(self, synapse: Boom) -> Boom:
        raise ValueError("handler exploded")

    async def private(self, synapse: Private) -> Private:
        return synapse

    async def listed(self, synapse: Private) -> tuple[bool, str]:
        return True, "not registered"

    async def tok(self, synapse: Tok) -> AsyncIterator[str]:
        for part in ("hel", "lo ", "wor", "ld"):
            yield part


@dataclass(frozen=True)
class Answered:
    status: int
    headers: dict[str, str]
    body: bytes
    chunks: list[bytes]


def read(raw: bytes) -> Answered:
    """An answer's bytes, parsed by a library that has no part in ours."""
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="POST", target="/", headers=[("host", "a"), ("content-length", "0")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(raw)
    connection.receive_data(b"")
    status, headers, chunks = 0, {}, []
    while (event := connection.next_event()) is not h11.NEED_DATA:
        match event:
            case h11.Response():
                status = event.status_code
                headers = {key.decode(): value.decode() for key, value in event.headers}
            case h11.Data():
                chunks.append(bytes(event.data))
            case h11.EndOfMessage():
                break
    return Answered(status, headers, b"".join(chunks), chunks)


def clock(exchange: dict[str, Any]) -> int:
    """When it was recorded, to the second."""
    date = next(value for key, value in exchange["response"]["headers"] if key.lower() == "date")
    return int(parsedate_to_datetime(date).timestamp()) * 1_000_000_000 + 999_000_000


def closing(raw: bytes) -> bytes:
    """The request, after which the connection ends; else its bytes as they were."""
    head, _, body = raw.partition(b"\r\n\r\n")
    return head + b"\r\nConnection: close\r\n\r\n" + body


async def answered(name: str) -> tuple[Answered, Served]:
    exchange = recorded(name)
    raw = closing(base64.b64decode(exchange["request"]["raw_base64"]))
    served = Served()
    async with gateway(served.axon, now_ns=lambda: clock(exchange)) as at:
        if VERDICTS[name].twice:
            assert read(await at.raw(raw)).status == 200
        return read(await at.raw(raw)), served


def test_the_table_names_each_recording() -> None:
    assert sorted(VERDICTS) == exchanges()


@pytest.mark.parametrize("name", sorted(VERDICTS))
async def test_the_verdict_is_that_of_the_table(name: str) -> None:
    verdict = VERDICTS[name]
    found, served = await answered(name)
    theirs = recorded(name)["response"]

    assert found.status == verdict.status, found.body
    if verdict.why:
        assert verdict.status != theirs["status"] or name == "quirk_body_hotkey_spoof"
    else:
        assert verdict.status == theirs["status"]
        _same(name, found, theirs)
    if found.status == 200 and "Echo" in recorded(name)["request"]["line"]:
        assert served.saw == [BOB.address]
    if found.status != 200 and name != "err_unknown_route":
        _signed(found)


def _same(name: str, found: Answered, theirs: dict[str, Any]) -> None:
    """The answer says what the real one's says."""
    headers = {key.lower(): value for key, value in theirs["headers"]}
    if found.status != 200:
        message = json.loads(found.body)["message"]
        if name in WORDS:
            assert re.fullmatch(WORDS[name], message), message
        else:
            assert message == json.loads(theirs["body"]["text"])["message"]
            assert found.headers["bt_header_axon_status_message"] == message
        assert found.headers["bt_header_axon_status_code"] == str(found.status)
        return
    drawn = {"bt_header_axon_process_time", "header_size", "total_size"}
    # The address that the client claims to have is not told back: the real one is.
    drawn |= {"bt_header_dendrite_ip", "bt_header_dendrite_port"}
    for key in headers:
        if key.startswith("bt_header_input_obj_"):
            continue  # empty dummies, which the real one sends back as they came
        if key.startswith("bt_header_") or key in ("name", "timeout", "computed_body_hash"):
            assert key in found.headers
            assert key in drawn or found.headers[key] == headers[key], key
    assert found.headers["content-type"] == headers["content-type"]
    if headers["content-type"] == "text/event-stream":
        assert found.body.decode() == theirs["body"]["text"]
        assert [len(chunk) for chunk in found.chunks] == theirs["chunk_sizes"]
        return
    ours, real = json.loads(found.body), json.loads(theirs["body"]["text"])
    assert ours.keys() == real.keys()
    for key in ours.keys() - ENVELOPE:
        assert ours[key] == real[key]
    for end in ("axon", "dendrite"):
        assert ours[end].keys() == real[end].keys()
    for key in ("status_code", "status_message", "hotkey", "port"):
        # Where the request's body named no axon, the real one's answer names none either; ours does.
        assert real["axon"][key] in (ours["axon"][key], None)


def _signed(found: Answered) -> None:
    """An error's signature is the axon's, over what the headers tell."""
    headers = found.headers
    nonce, uuid = int(headers["bt_header_axon_nonce"]), headers["bt_header_axon_uuid"]
    message = response_message(nonce, headers["bt_header_dendrite_hotkey"], ALICE.address, uuid)
    assert verified(ALICE.address, message, headers["bt_header_axon_signature"])


def test_the_recorded_signature_under_an_error_is_read_the_same_way() -> None:
    exchange = recorded("err_blacklisted")
    theirs = exchange["response"]
    _signed(Answered(403, {key.lower(): value for key, value in theirs["headers"]}, b"", []))


async def test_a_body_that_claims_another_hotkey_is_not_believed() -> None:
    """The real handler saw //Alice, who did not sign."""
    exchange = recorded("quirk_body_hotkey_spoof")
    assert exchange["forward_fn_saw_hotkey"] == [ALICE.address]

    _, served = await answered("quirk_body_hotkey_spoof")

    assert served.saw == [BOB.address]


async def test_a_replay_is_found_however_the_time_goes_on() -> None:
    """All recordings one after the other at one gateway, then all of them again: none is served twice."""
    served = Served()
    good = [name for name, verdict in VERDICTS.items() if verdict.status == 200]
    times = {name: clock(recorded(name)) for name in good}
    now = 0

    async with gateway(served.axon, now_ns=lambda: now) as at:
        for expected in (200, 401):
            for name in sorted(good, key=lambda each: times[each]):
                now = max(now, times[name])
                raw = closing(base64.b64decode(recorded(name)["request"]["raw_base64"]))
                found = read(await at.raw(raw))
                await asyncio.sleep(0)
                assert found.status == expected, (name, found.body)
