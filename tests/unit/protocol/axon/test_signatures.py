"""Signatures of the real SDK, the recorded exchanges' too; and what is no signature."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.protocol.axon import Hotkey, signing_message, ss58
from bakemesh.protocol.axon.signatures import verified
from bakemesh.protocol.axon.signing import response_message, wrapped
from support.recorded import ALICE, BOB, CHARLIE, exchanges, recorded

GOLDEN = recorded("golden_signing")
KEYS = {"//Alice": ALICE, "//Bob": BOB, "//Charlie": CHARLIE}
EXCHANGES = {name: recorded(name) for name in exchanges()}
REQUESTS = [name for name, each in EXCHANGES.items() if "request_signing" in each]
ANSWERS = [name for name, each in EXCHANGES.items() if "response_signing" in each]


@pytest.mark.parametrize("uri", sorted(KEYS))
def test_the_development_keys(uri: str) -> None:
    row, key = GOLDEN["keys"][uri], KEYS[uri]
    assert key.address == row["ss58_42"]
    assert key.public_key.hex() == row["public_key_hex"]
    assert ss58.decode(row["ss58_42"]).hex() == row["public_key_hex"]


@pytest.mark.parametrize("row", GOLDEN["vectors"], ids=[row["kind"][:20] for row in GOLDEN["vectors"]])
def test_a_golden_signature_is_that_of_its_key_and_of_no_other(row: dict[str, Any]) -> None:
    signer = row.get("signer_uri", "//Bob")
    for uri, key in KEYS.items():
        assert verified(key.address, row["message"], row["signature"]) is (uri == signer)
    assert not verified(KEYS[signer].address, row["message"] + " ", row["signature"])


@pytest.mark.parametrize("row", [row for row in GOLDEN["vectors"] if "body_hash" in row])
def test_a_golden_message_is_made_of_its_parts(row: dict[str, Any]) -> None:
    parts = row["nonce"], row["dendrite_hotkey"], row["axon_hotkey"], row["uuid"], row["body_hash"]
    assert signing_message(*parts) == row["message"]


@pytest.mark.parametrize("name", REQUESTS)
def test_the_request_of_every_exchange_verifies_where_the_real_one_said_so(name: str) -> None:
    each = EXCHANGES[name]["request_signing"]
    assert verified(BOB.address, each["message_as_axon_rebuilds_it"], each["signature"]) is each["verifies"]


@pytest.mark.parametrize("name", ANSWERS)
def test_the_signed_answer_of_every_exchange_verifies(name: str) -> None:
    each = EXCHANGES[name]["response_signing"]
    headers = dict(EXCHANGES[name]["response"]["headers"])
    assert each["verifies"] is True
    assert verified(ALICE.address, each["message"], each["signature"])
    assert not verified(BOB.address, each["message"], each["signature"])
    caller = headers.get("bt_header_dendrite_hotkey", "None")
    axon = headers.get("bt_header_axon_hotkey", "None")
    nonce, uuid = int(headers["bt_header_axon_nonce"]), headers["bt_header_axon_uuid"]
    assert response_message(nonce, caller, axon, uuid) == each["message"]


def test_every_exchange_has_a_signature_that_is_looked_at() -> None:
    assert set(REQUESTS) | set(ANSWERS) == set(EXCHANGES)
    assert len(EXCHANGES) == 19


@given(st.text())
def test_what_we_sign_verifies_with_our_key_alone(message: str) -> None:
    if any(0xD800 <= ord(each) < 0xE000 for each in message):
        return
    signature = BOB.sign(message)
    assert verified(BOB.address, message, signature)
    assert not verified(ALICE.address, message, signature)
    assert verified(BOB.address, message, BOB.sign(wrapped(message)))


@given(st.text(), st.text(), st.text())
def test_whatever_is_given_the_answer_is_yes_or_no(address: str, message: str, signature: str) -> None:
    assert verified(address, message, signature) is False


@given(st.binary(min_size=32, max_size=32), st.text(), st.binary(min_size=64, max_size=64))
def test_random_keys_and_signatures_are_refused_and_never_raise(key: bytes, text: str, raw: bytes) -> None:
    """Also public keys that are no point of the curve."""
    assert verified(ss58.encode(key), text, "0x" + raw.hex()) is False


@given(st.integers(0, 511), st.data())
def test_a_signature_with_one_bit_changed_is_none(bit: int, data: st.DataObject) -> None:
    message = data.draw(st.text(st.characters(codec="utf-8")))
    raw = bytearray.fromhex(BOB.sign(message)[2:])
    raw[bit // 8] ^= 1 << bit % 8
    assert not verified(BOB.address, message, "0x" + raw.hex())


@pytest.mark.parametrize("change", ["", "0x", "no prefix", "long", "short", "not hex", "newline", "space"])
def test_a_signature_is_written_in_one_way(change: str) -> None:
    right = BOB.sign("m")
    written = {
        "": "",
        "0x": "0x",
        "no prefix": right[2:],
        "long": right + "00",
        "short": right[:-2],
        "not hex": right[:-1] + "g",
        "newline": right + "\n",
        "space": right[:-1] + " ",
    }[change]
    assert verified(BOB.address, "m", right)
    assert not verified(BOB.address, "m", written)


def test_a_secret_is_not_shown_and_has_32_bytes() -> None:
    assert BOB.secret_key.hex() not in repr(BOB)
    assert "secret" not in repr(BOB)
    with pytest.raises(ValueError, match="has 32 bytes, this has 31"):
        Hotkey.from_seed(bytes(31))
