"""The code against protocol/vectors/axon-*.json, which any other implementation can run too."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from bakemesh.protocol.axon import (
    InvalidHeaderValue,
    InvalidTensor,
    Synapse,
    Tensor,
    TerminalInfo,
    keys,
    schemas,
    sha3_256_hex,
    signing_message,
)
from bakemesh.protocol.axon.builtin import BUILTIN
from bakemesh.protocol.axon.claims import check, claim_of
from bakemesh.protocol.axon.freshness import Window
from bakemesh.protocol.axon.hashing import fields_hash
from bakemesh.protocol.axon.headers import normal
from bakemesh.protocol.axon.signatures import verified
from bakemesh.protocol.axon.sse import Decoder, encode
from bakemesh.protocol.axon.verdicts import escaped
from support.vectors import named, vectors

HEADERS, HASHES, SIGNING = vectors("axon-headers"), vectors("axon-hashes"), vectors("axon-signing")
STREAMS, TENSORS = vectors("axon-streams"), vectors("axon-tensors")


@pytest.mark.parametrize("row", **named(HEADERS["normal"]))
def test_headers_become_a_map_or_are_refused(row: dict[str, Any]) -> None:
    raw = [(key.encode("latin-1"), value.encode("latin-1")) for key, value in row["headers"]]
    if row["map"] is None:
        with pytest.raises(InvalidHeaderValue):
            normal(raw)
    else:
        assert normal(raw) == row["map"]


@pytest.mark.parametrize("row", **named(HEADERS["terminals"]))
def test_terminals(row: dict[str, Any]) -> None:
    info = TerminalInfo.from_headers_with_prefix(row["headers"], keys.DENDRITE_PREFIX)
    assert info.model_dump(exclude_none=True) == row["terminal"]
    again = info.to_headers_with_prefix(keys.DENDRITE_PREFIX)
    assert again == {key: value for key, value in row["headers"].items() if key in again}
    assert len(again) == len(row["terminal"])


@pytest.mark.parametrize("row", HEADERS["reasons"], ids=[row["header"][:20] for row in HEADERS["reasons"]])
def test_reasons(row: dict[str, Any]) -> None:
    assert escaped(row["reason"]) == row["header"]


@pytest.mark.parametrize("row", **named(HASHES["bodies"], "text"))
def test_hashes_of_bodies(row: dict[str, Any]) -> None:
    assert sha3_256_hex(row["text"].encode()) == row["body_hash"]


@pytest.mark.parametrize("row", **named(HASHES["declared"]))
def test_hashes_of_declared_fields(row: dict[str, Any]) -> None:
    assert fields_hash(row["strs"]) == row["body_hash"]


@pytest.mark.parametrize("row", **named(SIGNING["messages"], "message"))
def test_messages(row: dict[str, Any]) -> None:
    message = row.pop("message")
    assert signing_message(**row) == message


@pytest.mark.parametrize("row", **named(SIGNING["signatures"]))
def test_signatures(row: dict[str, Any]) -> None:
    assert verified(row["address"], row["message"], row["signature"]) is row["verifies"]


@pytest.mark.parametrize("row", **named(SIGNING["btauth"], "payload"))
def test_btauth(row: dict[str, Any]) -> None:
    own = row["headers"].get("X-Bittensor-Receiver", "5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY")
    headers = normal([(key.encode(), value.encode()) for key, value in row["headers"].items()])
    claim = claim_of(headers, own, method=row["method"], target=row["target"], body=row["body"].encode())
    assert claim.message == row["payload"]
    check(claim, own, claim.nonce, Window())


@pytest.mark.parametrize("row", **named(SIGNING["nonces"]))
def test_nonces(row: dict[str, Any]) -> None:
    assert (Window().problem(row["nonce"], row["now_ns"]) is None) is row["fresh"]


@pytest.mark.parametrize("row", **named(STREAMS["decoded"]))
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_streams(row: dict[str, Any], size: int) -> None:
    raw, decoder = bytes.fromhex(row["hex"]), Decoder()
    events = [event for at in range(0, len(raw), size) for event in decoder.feed(raw[at : at + size])]
    assert [{"name": event.name, "data": event.data.decode()} for event in events] == row["events"]


@pytest.mark.parametrize("row", **named(STREAMS["encoded"], "hex"))
def test_texts_as_events(row: dict[str, Any]) -> None:
    assert encode(row["text"], row["event"]).hex() == row["hex"]


@pytest.mark.parametrize("row", **named(TENSORS["tensors"]))
def test_tensors_both_ways(row: dict[str, Any]) -> None:
    tensor = Tensor(**row["tensor"])
    assert Tensor.from_numpy(tensor.numpy()) == tensor


@pytest.mark.parametrize("row", **named(TENSORS["refused"]))
def test_refused_tensors(row: dict[str, Any]) -> None:
    with pytest.raises(InvalidTensor):
        Tensor(**row["tensor"])


@pytest.mark.parametrize("cls", [Synapse, *BUILTIN], ids=lambda cls: cls.__name__)
def test_a_body_fits_its_schema(cls: type[Synapse]) -> None:
    schema = schemas.files()[f"axon.{cls.route()}.json"]
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(cls().model_dump(mode="json"))
    assert not validator.is_valid(
        {name: {"not": "it"} for name in cls.required_hash_fields} | {"timeout": "x"}
    )
    if cls.Output is not None:
        jsonschema.Draft202012Validator.check_schema(schemas.files()[f"axon.{cls.route()}.Output.json"])
