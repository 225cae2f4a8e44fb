"""Who signed what for whom: both families, each part changed, and what makes a request the same one again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.protocol.axon import InvalidHeaderValue, NotVerified, SynapseError, signing_message
from bakemesh.protocol.axon.claims import Claim, Family, check, claim_of, family
from bakemesh.protocol.axon.freshness import Window
from bakemesh.protocol.axon.headers import normal
from bakemesh.protocol.axon.signing import btauth_payload
from bakemesh.protocol.axon.verdicts import Verdict
from support.recorded import ALICE, BOB, CHARLIE, exchanges, raw_headers, recorded

NOW = 1_796_076_062_000_000_000
WINDOW = Window()
HASH = "ab" * 32
BTAUTH = recorded("golden_btauth_v11")


def signed(**changed: str) -> dict[str, str]:
    parts = {"nonce": str(NOW), "uuid": "u-1", "hotkey": BOB.address}
    message = signing_message(int(parts["nonce"]), parts["hotkey"], ALICE.address, parts["uuid"], HASH)
    parts["signature"] = BOB.sign(message)
    headers = {f"bt_header_dendrite_{name}": value for name, value in parts.items()}
    headers |= {"computed_body_hash": HASH, "bt_header_axon_hotkey": ALICE.address}
    return headers | changed


def claim(headers: dict[str, str], body: bytes = b"", target: str = "/Echo", method: str = "POST") -> Claim:
    return claim_of(headers, ALICE.address, method=method, target=target, body=body)


def verdict(headers: dict[str, str], now: int = NOW, **more: Any) -> Verdict:
    try:
        check(claim(headers, **more), ALICE.address, now, WINDOW)
    except NotVerified as error:
        return error.verdict
    except InvalidHeaderValue:
        return Verdict.MALFORMED
    return Verdict.OK


def test_a_signed_request_is_ok() -> None:
    found = claim(signed())
    assert (found.family, found.hotkey, found.body_hash) == (Family.BT_HEADER, BOB.address, HASH)
    assert found.receiver == ALICE.address
    assert found.replay_key == (BOB.address, "u-1", NOW)
    assert verdict(signed()) is Verdict.OK


@pytest.mark.parametrize("part", ["nonce", "uuid", "hotkey", "signature"])
def test_what_a_signature_needs(part: str) -> None:
    key = f"bt_header_dendrite_{part}"
    absent = {name: value for name, value in signed().items() if name != key}
    for headers in (absent, absent | {key: ""}):
        with pytest.raises(NotVerified, match=f"(?i)Missing {part}: the header {key} is not there") as found:
            claim(headers)
        assert found.value.verdict is Verdict.UNSIGNED


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({"computed_body_hash": "cd" * 32}, Verdict.BAD_SIGNATURE),
        ({"bt_header_dendrite_uuid": "u-2"}, Verdict.BAD_SIGNATURE),
        ({"bt_header_dendrite_nonce": str(NOW + 1)}, Verdict.BAD_SIGNATURE),
        ({"bt_header_dendrite_hotkey": CHARLIE.address}, Verdict.BAD_SIGNATURE),
        ({"bt_header_dendrite_hotkey": "5Nobody"}, Verdict.BAD_SIGNATURE),
        ({"bt_header_dendrite_signature": "0x" + "00" * 64}, Verdict.BAD_SIGNATURE),
        ({"bt_header_axon_hotkey": CHARLIE.address}, Verdict.WRONG_RECEIVER),
        ({"bt_header_dendrite_nonce": "soon"}, Verdict.MALFORMED),
        ({"bt_header_dendrite_nonce": str(2**64)}, Verdict.MALFORMED),
        ({"bt_header_dendrite_nonce": "-1"}, Verdict.MALFORMED),
        ({"bt_header_dendrite_uuid": "u" * 65}, Verdict.MALFORMED),
        ({"bt_header_dendrite_uuid": "u.1"}, Verdict.MALFORMED),
        ({"bt_header_dendrite_uuid": "u 1"}, Verdict.MALFORMED),
        ({"x-bittensor-nonce": "1"}, Verdict.MALFORMED),
        ({"timeout": "1e9", "bt_header_dendrite_ip": "anything", "total_size": "0"}, Verdict.OK),
    ],
)
def test_each_part_that_is_changed(changed: dict[str, str], wanted: Verdict) -> None:
    assert verdict(signed(**changed)) is wanted


def test_a_dot_in_a_uuid_would_give_one_signed_message_two_readings() -> None:
    """Otherwise the same signature counted for another uuid, and so for no replay."""
    assert signing_message(1, "d", "a", "u.x", "h") == signing_message(1, "d", "a", "u", "x.h")


@pytest.mark.parametrize("written", ["+{}", "0{}"])
def test_the_same_nonce_written_otherwise_has_the_same_replay_key(written: str) -> None:
    headers = signed(bt_header_dendrite_nonce=written.format(NOW))
    assert verdict(headers) is Verdict.OK
    assert claim(headers).replay_key == claim(signed()).replay_key


def test_the_same_signature_written_otherwise_has_the_same_replay_key() -> None:
    headers = signed()
    other = headers | {
        "bt_header_dendrite_signature": "0x" + headers["bt_header_dendrite_signature"][2:].upper()
    }
    assert verdict(other) is Verdict.OK
    assert claim(other).replay_key == claim(headers).replay_key


def test_signed_for_another_axon() -> None:
    """It names this one in its header, but another one is in what was signed."""
    message = signing_message(NOW, BOB.address, CHARLIE.address, "u-1", HASH)
    assert verdict(signed(bt_header_dendrite_signature=BOB.sign(message))) is Verdict.BAD_SIGNATURE


@pytest.mark.parametrize(
    ("now", "wanted"),
    [
        (NOW + 10_000_000_000, Verdict.OK),
        (NOW + 10_001_000_000, Verdict.STALE),
        (NOW - 2_000_000_000, Verdict.OK),
        (NOW - 2_001_000_000, Verdict.STALE),
    ],
)
def test_the_window(now: int, wanted: Verdict) -> None:
    assert verdict(signed(), now) is wanted
    assert verdict(signed(timeout="1000000"), now) is wanted  # which is not signed


def test_families() -> None:
    assert family({}) is family({"bt_header_axon_ip": "1"}) is Family.UNSIGNED
    assert family({"bt_header_dendrite_ip": "1"}) is Family.BT_HEADER
    assert family({"x-bittensor-version": "1"}) is Family.BTAUTH
    with pytest.raises(InvalidHeaderValue, match="a request carries one family"):
        family({"x-bittensor-version": "1", "bt_header_dendrite_ip": ""})
    with pytest.raises(NotVerified, match="the request is not signed"):
        claim({"name": "Echo"})


@pytest.mark.parametrize("name", exchanges())
def test_recorded_requests(name: str) -> None:
    """With the clock at their own time; what the real axon says of body, route or age is not asked."""
    each = recorded(name)
    headers = normal(raw_headers(each["request"]))
    wanted = {
        "err_missing_signature": Verdict.UNSIGNED,
        "err_signature_wrong_key": Verdict.BAD_SIGNATURE,
    }.get(name, Verdict.OK)
    nonce = int(headers.get("bt_header_dendrite_nonce", "0"))
    now = nonce if nonce >= 10**15 else nonce * 1_000_000
    assert verdict(headers, now, target=each["request"]["line"].split()[1]) is wanted


def test_the_hour_ahead_that_the_real_axon_takes_is_refused() -> None:
    headers = normal(raw_headers(recorded("quirk_future_nonce")["request"]))
    nonce = int(headers["bt_header_dendrite_nonce"])
    assert verdict(headers, nonce - 3_600_000_000_000) is Verdict.STALE


# -- btauth/1


def headers_of(row: dict[str, Any]) -> dict[str, str]:
    return normal([(key.encode(), value.encode()) for key, value in row["headers"].items()])


@pytest.mark.parametrize("row", BTAUTH["vectors"], ids=["named", "query", "nobody"])
def test_golden_btauth(row: dict[str, Any]) -> None:
    headers, body = headers_of(row), row["body"].encode()
    receiver = row["headers"].get("X-Bittensor-Receiver")
    payload = btauth_payload(row["method"], row["path"], body, row["nonce_ns"], BOB.address, receiver)
    assert payload == row["payload"]
    found = claim(headers, body, row["path"], row["method"])
    assert (found.family, found.message, found.receiver) == (Family.BTAUTH, row["payload"], receiver)
    assert found.hotkey == row["verified_caller"]
    assert found.replay_key == (BOB.address, "", row["nonce_ns"])
    check(found, ALICE.address, row["nonce_ns"], WINDOW)


def test_the_recorded_errors_of_btauth() -> None:
    row = BTAUTH["vectors"][0]
    right, body, at = headers_of(row), row["body"].encode(), row["nonce_ns"]
    assert verdict(right, at, body=body, target="/generate") is Verdict.OK
    other = right | {"x-bittensor-receiver": CHARLIE.address}
    unsigned = {key: value for key, value in right.items() if key != "x-bittensor-signature"}
    ours = {
        "ok": verdict(right, at, body=body, target="/generate"),
        "body changed": verdict(right, at, body=body + b" ", target="/generate"),
        "path changed": verdict(right, at, body=body, target="/generate?"),
        "method changed": verdict(right, at, body=body, target="/generate", method="PUT"),
        "other receiver": verdict(other, at, body=body, target="/generate"),
        "11 s old": verdict(right, at + 11_000_000_000, body=body, target="/generate"),
        "3 s in the future": verdict(right, at - 3_000_000_000, body=body, target="/generate"),
        "no signature": verdict(unsigned, at, body=body, target="/generate"),
    }
    means = {
        "ok": Verdict.OK,
        "BadSignature": Verdict.BAD_SIGNATURE,
        "WrongReceiver": Verdict.WRONG_RECEIVER,
        "StaleRequest": Verdict.STALE,
        "MalformedAuth": Verdict.UNSIGNED,
    }
    assert ours == {case: means[said.split(":")[0]] for case, said in BTAUTH["errors"]}


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({"x-bittensor-version": "2"}, Verdict.MALFORMED),
        ({"x-bittensor-nonce": "1e9"}, Verdict.MALFORMED),
        ({"x-bittensor-hotkey": ""}, Verdict.UNSIGNED),
        ({"x-bittensor-version": ""}, Verdict.UNSIGNED),
        ({"x-bittensor-hotkey": CHARLIE.address}, Verdict.BAD_SIGNATURE),
        ({"x-bittensor-receiver": ""}, Verdict.WRONG_RECEIVER),
        ({"x-bittensor-receiver": "-"}, Verdict.WRONG_RECEIVER),
    ],
)
def test_other_ways_to_spoil_btauth(changed: dict[str, str], wanted: Verdict) -> None:
    row = BTAUTH["vectors"][0]
    headers = headers_of(row) | changed
    assert verdict(headers, row["nonce_ns"], body=row["body"].encode(), target="/generate") is wanted


VALUES = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF), max_size=70)
PARTS = st.sampled_from([f"bt_header_dendrite_{each}" for each in ("nonce", "uuid", "hotkey", "signature")])
BT_PARTS = st.sampled_from([f"x-bittensor-{each}" for each in ("version", "nonce", "hotkey", "signature")])


@given(
    st.dictionaries(st.one_of(PARTS, BT_PARTS, st.just("computed_body_hash")), VALUES), st.binary(max_size=9)
)
def test_arbitrary_claims_are_never_verified_and_raise_nothing_else(
    headers: dict[str, str], body: bytes
) -> None:
    with pytest.raises(SynapseError):
        check(claim(headers, body), ALICE.address, NOW, WINDOW)


@given(st.lists(st.sampled_from(list(signed())), unique=True, min_size=1), VALUES)
def test_a_part_that_is_replaced_never_verifies(parts: list[str], value: str) -> None:
    headers = signed()
    changed = headers | dict.fromkeys(parts, value)
    if changed == headers:
        return
    with pytest.raises(SynapseError):
        check(claim(changed), ALICE.address, NOW, WINDOW)
