"""What an answer may change of a synapse, and what it never may."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from bakemesh.dendrite import CallFailed
from bakemesh.dendrite.answering import changeable, fill, is_json
from bakemesh.protocol.axon import Profile, Synapse, TerminalInfo
from bakemesh.protocol.axon.signing import response_message
from support.recorded import ALICE, BOB, CHARLIE

JSON = {"content-type": "application/json"}
SAID = {**JSON, "bt_header_axon_status_code": "200", "bt_header_axon_status_message": "Success"}


class Echo(Synapse):
    required_hash_fields: ClassVar = ("text",)
    text: str = ""
    n: int = 0
    seed: int = Field(default=7, frozen=True)
    reply: str | None = None


class Answer(BaseModel):
    reply: str


class Told(Synapse):
    Output: ClassVar = Answer
    text: str = ""
    reply: str | None = None


class Counted(Synapse):
    Output: ClassVar = list[int]
    text: str = ""


def sent(synapse: Synapse) -> Synapse:
    synapse.set_dendrite(TerminalInfo(nonce=5, uuid="u", hotkey=BOB.address, signature="0x00"))
    synapse.set_axon(TerminalInfo(ip="10.0.0.7", port=8091, hotkey=ALICE.address))
    return synapse


def answered(
    synapse: Synapse,
    body: Any,
    headers: Mapping[str, str] = SAID,
    status: int = 200,
    profile: Profile = Profile.SDK,
) -> Any:
    return fill(synapse, profile, status, headers, json.dumps(body).encode())


def test_an_answer_fills_in_what_was_left_open() -> None:
    synapse = sent(Echo(text="a"))
    answered(synapse, {"text": "a", "n": 4, "reply": "r"})

    assert isinstance(synapse, Echo)
    assert (synapse.n, synapse.reply) == (4, "r")
    assert synapse.is_success
    assert synapse.dendrite.status_message == "Success"


def test_an_answer_changes_nothing_that_was_asked() -> None:
    synapse = sent(Echo(text="a", n=3))
    answered(synapse, {"text": "b", "n": 4, "seed": 8, "reply": "r"})

    assert isinstance(synapse, Echo)
    assert (synapse.text, synapse.n, synapse.seed, synapse.reply) == ("a", 3, 7, "r")


def test_an_answered_synapse_can_be_answered_again() -> None:
    synapse = sent(Echo(text="a", reply=None))
    answered(synapse, {"reply": "one"})
    answered(synapse, {"reply": "two"})

    assert isinstance(synapse, Echo)
    assert synapse.reply == "two"


@given(
    body=st.dictionaries(
        st.sampled_from(["dendrite", "axon", "name", "timeout"]), st.just({"hotkey": "5Evil"})
    )
)
def test_an_answer_never_changes_who_was_who(body: dict[str, Any]) -> None:
    body.pop("name", None)
    body.pop("timeout", None)
    evil = {
        **SAID,
        "bt_header_dendrite_hotkey": "5Evil",
        "bt_header_dendrite_nonce": "1",
        "bt_header_axon_hotkey": "5Evil",
        "bt_header_axon_ip": "6.6.6.6",
        "bt_header_axon_port": "6",
        "name": "Evil",
        "timeout": "99",
    }
    synapse = sent(Echo(text="a"))
    answered(synapse, body, evil)

    assert (synapse.dendrite.hotkey, synapse.dendrite.nonce) == (BOB.address, 5)
    assert (synapse.axon.hotkey, synapse.axon.ip, synapse.axon.port) == (ALICE.address, "10.0.0.7", 8091)
    assert (synapse.name, synapse.timeout) == ("Echo", 12.0)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 500, 503])
def test_headers_do_not_make_a_refusal_a_success(status: int) -> None:
    synapse = sent(Echo(text="a"))
    output = answered(synapse, {"message": "no", "reply": "r"}, SAID, status)

    assert output is None
    assert isinstance(synapse, Echo)
    assert synapse.reply is None
    assert not synapse.is_success
    assert (synapse.dendrite.status_code, synapse.dendrite.status_message) == (status, "no")
    assert synapse.is_blacklist == (status == 403)
    assert synapse.is_timeout == (status == 408)
    assert synapse.failed_verification == (status == 401)


def test_a_refusal_without_a_text_has_the_headers() -> None:
    synapse = sent(Echo())
    answered(synapse, {"detail": "x"}, {**JSON, "bt_header_axon_status_message": "said"}, 500)

    assert synapse.dendrite.status_message == "said"


def test_a_text_is_bounded() -> None:
    synapse = sent(Echo())
    answered(synapse, {"message": "x" * 100_000}, status=500)

    assert len(synapse.dendrite.status_message or "") == 4096


def test_an_axon_that_does_not_say_200_had_no_success() -> None:
    synapse = sent(Echo())
    answered(synapse, {"reply": "r"}, JSON)
    assert synapse.dendrite.status_code is None
    assert not synapse.is_success

    answered(synapse, {"reply": "r"}, {**JSON, "bt_header_axon_status_code": "418"})
    assert synapse.dendrite.status_code == 418


def test_in_btauth_the_status_of_http_is_all_there_is() -> None:
    synapse = sent(Told(text="a"))
    answered(synapse, {"reply": "r"}, JSON, profile=Profile.BTAUTH)

    assert synapse.is_success


def test_output_says_what_an_answer_holds() -> None:
    synapse = sent(Told(text="a"))
    output = answered(synapse, {"reply": "r", "text": "b"}, profile=Profile.SYNAPSE)

    assert output == Answer(reply="r")
    assert isinstance(synapse, Told)
    assert (synapse.text, synapse.reply) == ("a", "r")
    assert changeable(Told(reply="old")) == ["reply"]


def test_the_sdk_profile_reads_output_from_the_whole_synapse() -> None:
    synapse = sent(Told(text="a"))
    output = answered(synapse, {"text": "a", "reply": "r", "axon": {"status_code": 200}}, JSON)

    assert output == Answer(reply="r")
    assert synapse.is_success


def test_output_may_be_no_model() -> None:
    synapse = sent(Counted(text="a"))

    assert answered(synapse, [1, 2], profile=Profile.SYNAPSE) == [1, 2]
    assert synapse.is_success


@pytest.mark.parametrize(
    ("headers", "status", "body", "told"),
    [
        ({}, 200, b"{}", "not JSON"),
        ({"content-type": "text/html"}, 500, b"{}", "not JSON"),
        (JSON, 200, b"", "Invalid JSON"),
        (JSON, 200, b"[]", "an object"),
        (JSON, 500, b"[]", "no JSON object"),
        (JSON, 500, b"\xff", "not JSON"),
        (JSON, 500, b"[" * 100_000, "not JSON"),
        (JSON, 302, b"{}", "not followed"),
        ({**JSON, "bt_header_axon_port": "x"}, 200, b"{}", "bt_header_axon_port"),
        ({**JSON, "bt_header_axon_process_time": "x"}, 500, b"{}", "bt_header_axon_process_time"),
    ],
)
def test_what_cannot_be_read_is_told(headers: dict[str, str], status: int, body: bytes, told: str) -> None:
    with pytest.raises(CallFailed, match=told) as failed:
        fill(sent(Echo()), Profile.SDK, status, headers, body)

    assert failed.value.status_code == 422


def test_a_signature_under_an_answer_must_be_the_axons() -> None:
    message = response_message(9, BOB.address, ALICE.address, "axons")
    headers = {**JSON, "bt_header_axon_nonce": "9", "bt_header_axon_uuid": "axons"}
    synapse = sent(Echo())
    answered(synapse, {"message": "no"}, {**headers, "bt_header_axon_signature": ALICE.sign(message)}, 403)
    assert synapse.is_blacklist

    for bad in (CHARLIE.sign(message), ALICE.sign(message + "."), "0x00"):
        with pytest.raises(CallFailed, match="signature is not that of"):
            answered(sent(Echo()), {"message": "no"}, {**headers, "bt_header_axon_signature": bad}, 403)
    with pytest.raises(CallFailed, match="signature is not that of"):
        answered(
            sent(Echo()), {"message": "no"}, {**JSON, "bt_header_axon_signature": ALICE.sign(message)}, 403
        )


@pytest.mark.parametrize(
    ("kind", "json_is"),
    [
        ("application/json", True),
        ("application/json; charset=utf-8", True),
        ("Application/JSON", True),
        ("application/problem+json", True),
        ("text/json", False),
        ("text/plain", False),
        ("text/event-stream", False),
        ("", False),
    ],
)
def test_which_content_types_are_json(kind: str, json_is: bool) -> None:
    assert is_json(kind) == json_is


def test_an_sdk_answer_that_leaves_the_output_out_cannot_be_read() -> None:
    synapse = sent(Told(text="a"))
    with pytest.raises(CallFailed, match="reply: Input should be a valid string") as failed:
        answered(synapse, {"text": "a"})
    assert failed.value.status_code == 422


def test_half_of_a_surrogate_pair_in_a_reason_can_be_printed() -> None:
    synapse = sent(Echo())
    fill(synapse, Profile.SYNAPSE, 500, JSON, b'{"message": "a\\ud800b"}')
    assert (synapse.dendrite.status_message or "").encode() == b"a?b"
