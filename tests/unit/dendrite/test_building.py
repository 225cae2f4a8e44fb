"""A request of each profile: what is signed is what is sent, and the caller's synapse stays as it was."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.dendrite import Target, TargetRefused
from bakemesh.dendrite.building import METHOD, Request, build, check
from bakemesh.protocol.axon import Profile, Synapse, sha3_256_hex, signing_message
from bakemesh.protocol.axon.signatures import verified
from bakemesh.protocol.axon.signing import btauth_payload
from support.recorded import ALICE, BOB, recorded
from support.recordedclasses import Echo, Required

TARGET = Target("127.0.0.1", 8091, ALICE.address)
NOW = 1_796_076_058_520_235_656
UUID = "8614e4fa-ed09-11f1-bdfb-02fc00000001"


def built(profile: Profile, synapse: Synapse | None = None, target: Target = TARGET) -> Request:
    given = Echo(text="héllo", n=3) if synapse is None else synapse
    return build(given, target, BOB, profile, timeout=3, nonce=NOW, uuid=UUID)


def signed(request: Request, target: Target = TARGET) -> bool:
    headers = request.headers
    message = signing_message(
        int(headers["bt_header_dendrite_nonce"]),
        headers["bt_header_dendrite_hotkey"],
        target.hotkey,
        headers["bt_header_dendrite_uuid"],
        headers["computed_body_hash"],
    )
    return verified(BOB.address, message, headers["bt_header_dendrite_signature"])


@given(text=st.text(), n=st.integers())
def test_the_synapse_profile_signs_exactly_the_bytes_that_it_sends(text: str, n: int) -> None:
    request = built(Profile.SYNAPSE, Echo(text=text, n=n))
    body = json.loads(request.body)

    assert request.headers["computed_body_hash"] == sha3_256_hex(request.body)
    assert signed(request)
    assert body["dendrite"]["signature"] is None
    assert body["computed_body_hash"] == ""
    assert (body["text"], body["n"]) == (text, n)
    assert request.headers["total_size"] == str(len(request.body))


def test_the_synapse_profile_counts_in_milliseconds() -> None:
    assert built(Profile.SYNAPSE).headers["bt_header_dendrite_nonce"] == str(NOW // 1_000_000)


def test_header_size_is_that_of_the_other_headers() -> None:
    headers = built(Profile.SYNAPSE).headers
    size = int(headers["header_size"])

    assert size == sum(len(key) + len(value) for key, value in headers.items() if key != "header_size")


def test_the_sdk_profile_signs_the_declared_fields() -> None:
    request = built(Profile.SDK)

    assert signed(request)
    assert request.headers["computed_body_hash"] == Echo(text="héllo", n=3).declared_hash()
    assert request.headers["bt_header_dendrite_nonce"] == str(NOW)
    # As the real one: the signature stands in the body too.
    body = json.loads(request.body)
    assert body["dendrite"]["signature"] == request.headers["bt_header_dendrite_signature"]
    assert body["computed_body_hash"] == ""


@pytest.mark.parametrize(
    ("name", "synapse"),
    [
        ("unary_ok_echo", Echo(text="héllo wörld", n=3)),
        (
            "unary_ok_required",
            Required(prompt="hi there", roles=["user", "assistant"], n=2, temperature=0.7, flags={"a": True}),
        ),
    ],
)
def test_the_sdk_profile_sends_what_the_real_dendrite_sends(name: str, synapse: Synapse) -> None:
    """Headers in its order, and the body's fields; sizes, keys' signatures and the own address differ."""
    request = recorded(name)["request"]
    theirs = dict(request["headers"])
    ours = build(
        synapse,
        Target("127.0.0.1", int(theirs["bt_header_axon_port"]), ALICE.address),
        BOB,
        Profile.SDK,
        timeout=3.0,
        nonce=int(theirs["bt_header_dendrite_nonce"]),
        uuid=theirs["bt_header_dendrite_uuid"],
    )
    free = {"bt_header_dendrite_signature", "header_size", "total_size"}
    ends = ("Host", "Accept", "Accept-Encoding", "User-Agent", "Content-Length", "Content-Type")
    order = [key for key, _ in request["headers"] if key not in ends and key != "bt_header_dendrite_ip"]

    assert list(ours.headers) == order
    assert all(theirs[key] == value for key, value in ours.headers.items() if key not in free)
    their_body, our_body = json.loads(request["body"]["text"]), json.loads(ours.body)
    assert our_body.keys() == their_body.keys()
    for key in synapse.model_fields_set:
        assert our_body[key] == their_body[key]


def test_btauth_signs_method_route_and_body() -> None:
    request = built(Profile.BTAUTH)
    headers = request.headers
    payload = btauth_payload(METHOD, "/Echo", request.body, NOW, BOB.address, ALICE.address)

    assert verified(BOB.address, payload, headers["X-Bittensor-Signature"])
    assert headers["X-Bittensor-Receiver"] == ALICE.address
    assert headers["X-Bittensor-Nonce"] == str(NOW)
    assert not any(key.startswith("bt_header_") for key in headers)


def test_btauth_may_name_no_receiver() -> None:
    nobody = Target("127.0.0.1", 8091)
    request = built(Profile.BTAUTH, target=nobody)
    payload = btauth_payload(METHOD, "/Echo", request.body, NOW, BOB.address, None)

    assert "X-Bittensor-Receiver" not in request.headers
    assert verified(BOB.address, payload, request.headers["X-Bittensor-Signature"])
    check(nobody, Profile.BTAUTH)


@pytest.mark.parametrize("profile", [Profile.SYNAPSE, Profile.SDK])
def test_the_others_sign_for_one_axon(profile: Profile) -> None:
    with pytest.raises(TargetRefused, match="has no hotkey"):
        check(Target("127.0.0.1", 8091), profile)


@pytest.mark.parametrize("profile", list(Profile))
def test_the_callers_synapse_stays_as_it_was(profile: Profile) -> None:
    synapse = Echo(text="a")
    before = synapse.model_dump()

    request = built(profile, synapse)

    assert synapse.model_dump() == before
    assert request.synapse.timeout == 3
    assert request.synapse.axon.hotkey == ALICE.address


@pytest.mark.parametrize("profile", [Profile.SYNAPSE, Profile.SDK])
def test_an_answered_synapse_can_be_sent_again(profile: Profile) -> None:
    first = built(profile).synapse
    first.axon.status_code = 200
    first.dendrite.status_code = 200

    again = built(profile, first)

    assert signed(again)
    assert not any("status_code" in key for key in again.headers)
