"""The JSON of a key file: what is read, what is refused, and that no message tells a secret."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.hotkeys import HotkeyRefused
from bakemesh.hotkeys.document import read, written
from bakemesh.protocol.axon import Hotkey
from bakemesh.protocol.axon.signatures import verified

# As the SDK's wallet writes them: from a mnemonic (thrown away), and derived (//Alice), which has no seed.
FROM_MNEMONIC = {
    "ss58Address": "5CcuGsDrJtHMh6rfMg4CuD5WZUQnjoKLwDSAcYA8SQ9K1a9x",
    "secretPhrase": "jazz bomb blue question average effort glance urban remind fashion measure eagle",
    "cryptoType": 1,
    "privateKey": "0x9223d86a5318708b35f664a4371b7f8f7f449db4ab8871c770286e553d96f20e"
    "cbb251d7fc9d7a9833331e155a1ea73f80ccae6f7c28b6870820b6078a6e8302",
    "secretSeed": "0x9025f699a6051f07f03f63687a857df5a2ffe2877726b8fd77ab391f71aa3e1a",
    "accountId": "0x188e4963f295f427de744ab41cb30450ada90af5fa338866fd259fda8fc36450",
    "publicKey": "0x188e4963f295f427de744ab41cb30450ada90af5fa338866fd259fda8fc36450",
}
DERIVED = {
    "accountId": "0xd43593c715fdd31c61141abd04a99fd6822c8558854ccde39a5684e7a56da27d",
    "cryptoType": 1,
    "publicKey": "0xd43593c715fdd31c61141abd04a99fd6822c8558854ccde39a5684e7a56da27d",
    "privateKey": "0x33a6f3093f158a7109f679410bef1a0c54168145e0cecb4df006c1c2fffb1f09"
    "925a225d97aa00682d6a59b95b18780c10d7032336e88f3442b42361f4a66011",
    "ss58Address": "5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY",
}
# The same wallet given a seed as text writes its bytes as characters; the private key is right.
RAW_SEED = {
    "privateKey": "0x704b72419b89bab3a4632685428901bf5715b44e40ec0df50f01fdc1553bf60b"
    "092539815e61663c7f9c4c9c377346f5d2936875bd760f0ac5c5f4f6e78a6d76",
    "ss58Address": "5DtDLm5rQHShDqojQpsvcN8tRXHVFaecfDoRet1SU6BFD9Fi",
    "secretSeed": "0x" + "\x11" * 32,
    "cryptoType": 1,
}


@pytest.mark.parametrize("document", [FROM_MNEMONIC, DERIVED, RAW_SEED], ids=["seed", "derived", "raw seed"])
def test_a_wallets_file_is_read_and_its_key_signs(document: dict[str, object]) -> None:
    hotkey = read(json.dumps(document), "key file k")

    assert hotkey.address == document["ss58Address"]
    assert verified(hotkey.address, "a message", hotkey.sign("a message"))


@given(seed=st.binary(min_size=32, max_size=32))
def test_what_is_written_is_read_again(seed: bytes) -> None:
    hotkey = Hotkey.from_seed(seed)

    assert read(written(hotkey, seed), "key file k") == hotkey


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"ss58Address": DERIVED["ss58Address"]}, "one of them is wrong"),
        ({"ss58Address": None}, "no ss58Address"),
        ({"cryptoType": 0}, "sr25519"),
        ({"secretSeed": "0x12", "privateKey": None}, "neither secretSeed"),
        ({"secretSeed": None, "privateKey": "0x" + "zz" * 64}, "neither secretSeed"),
        ({"secretSeed": None, "privateKey": "0x" + "ff" * 64}, "no sr25519 secret key"),
        ({"secretSeed": ["0x"], "privateKey": 7}, "neither secretSeed"),
    ],
)
def test_a_file_that_does_not_fit_itself_is_refused(change: dict[str, object], told: str) -> None:
    with pytest.raises(HotkeyRefused, match=told) as refused:
        read(json.dumps(FROM_MNEMONIC | change), "key file k")

    assert str(refused.value).startswith("key file k: ")
    assert FROM_MNEMONIC["secretSeed"] not in str(refused.value)
    assert "jazz" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not JSON"),
        ("jazz bomb blue question", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "no JSON object"),
        ("$NACLabcdef", "encrypted"),
    ],
)
def test_a_text_that_is_no_key_file_is_refused(text: str, told: str) -> None:
    with pytest.raises(HotkeyRefused, match=told) as refused:
        read(text, "key file k")

    assert "jazz" not in str(refused.value)
