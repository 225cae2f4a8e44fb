"""Every example and every vector of the bittensor-synapse document, under its Python names."""

from __future__ import annotations

import hashlib
from typing import ClassVar

import pytest
from pydantic import BaseModel

import bakemesh.protocol.axon as prelude
from bakemesh.protocol.axon import (
    DeserializationFailed,
    InvalidHeaderValue,
    MissingHeader,
    StreamingSynapse,
    Synapse,
    SynapseError,
    TerminalInfo,
    header_keys,
    keys,
    parse_header,
    parse_header_f64,
    parse_header_u64,
    sha3_256_hex,
    signing_message,
)

EMPTY = "a7ffc6f8bf1ed76651c14756a061d662f580ff4de43b49fa82d80a4b80f8434a"
GRW = "5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY"


class PromptResponse(BaseModel):
    completion: str


class TextPromptSynapse(StreamingSynapse):
    """The document's full example; its class and its route have two names."""

    Output: ClassVar = PromptResponse

    name: str = "TextPrompt"
    prompt: str = ""
    max_tokens: int = 0
    temperature: float = 0.7


def test_the_prelude_has_every_name_of_it() -> None:
    names = {"Synapse", "SynapseError", "StreamingSynapse", "TerminalInfo", "sha3_256_hex", "signing_message"}
    assert names | {"keys", "header_keys", "StreamItem"} <= set(prelude.__all__)
    assert all(hasattr(prelude, name) for name in prelude.__all__)


def test_the_full_example() -> None:
    synapse = TextPromptSynapse(prompt="What is the capital of France?", max_tokens=128)
    headers = synapse.to_headers()
    assert headers["name"] == "TextPrompt"
    assert synapse.timeout == 12.0

    body = synapse.body()
    digest = sha3_256_hex(body)
    assert synapse.body_hash() == digest == headers["computed_body_hash"]
    assert headers["total_size"] == str(len(body))
    message = signing_message(
        1700000000000, "5DendriteKey", "5AxonKey", "550e8400-e29b-41d4-a716-446655440000", digest
    )
    assert message == (f"1700000000000.5DendriteKey.5AxonKey.550e8400-e29b-41d4-a716-446655440000.{digest}")

    output = TextPromptSynapse.deserialize_body(b'{"completion":"Paris"}')
    assert output == PromptResponse(completion="Paris")


def test_the_example_comes_back_from_its_headers_without_its_body() -> None:
    synapse = TextPromptSynapse(prompt="not in the headers", max_tokens=3)
    synapse.set_timeout(5)
    synapse.set_dendrite(TerminalInfo(hotkey="5Dend", nonce=7))
    synapse.set_axon(TerminalInfo(ip="10.0.0.1", port=8091))
    again = TextPromptSynapse.from_headers(synapse.to_headers())
    assert (again.name, again.timeout, again.prompt, again.max_tokens) == ("TextPrompt", 5.0, "", 0)
    assert again.dendrite == synapse.dendrite
    assert again.axon == synapse.axon


@pytest.mark.parametrize("missing", ["name", "timeout"])
def test_from_headers_needs_a_name_and_a_timeout(missing: str) -> None:
    headers = TextPromptSynapse().to_headers()
    del headers[missing]
    with pytest.raises(MissingHeader, match=f"missing required header: {missing}"):
        TextPromptSynapse.from_headers(headers)


def test_every_setter_is_seen_in_its_accessor() -> None:
    synapse = TextPromptSynapse()
    synapse.set_timeout(3)
    synapse.set_computed_body_hash("ab")
    synapse.set_total_size(17)
    synapse.set_header_size(18)
    dendrite, axon = TerminalInfo(hotkey="d"), TerminalInfo(hotkey="a")
    synapse.set_dendrite(dendrite)
    synapse.set_axon(axon)
    assert (synapse.timeout, synapse.computed_body_hash) == (3.0, "ab")
    assert (synapse.total_size, synapse.header_size) == (17, 18)
    assert synapse.dendrite is dendrite
    assert synapse.axon is axon
    headers = synapse.to_headers()
    assert {key: headers[key] for key in keys.TOP_LEVEL} == {
        "name": "TextPrompt",
        "timeout": "3.0",
        "header_size": "18",
        "total_size": "17",
        "computed_body_hash": "ab",
    }


def test_to_headers_has_what_the_document_says() -> None:
    synapse = TextPromptSynapse()
    synapse.set_axon(TerminalInfo(hotkey="5Axon"))
    synapse.set_dendrite(TerminalInfo(hotkey="5Dend"))
    headers = synapse.to_headers()
    for key in (*keys.TOP_LEVEL, "bt_header_axon_hotkey", "bt_header_dendrite_hotkey"):
        assert key in headers
    assert "bt_header_axon_ip" not in headers
    assert "" not in headers.values()


def test_header_size_is_that_of_all_other_keys_and_values() -> None:
    headers = TextPromptSynapse(prompt="x").to_headers()
    size = int(headers.pop("header_size"))
    assert size == len("".join(headers) + "".join(headers.values()))


def test_header_constants() -> None:
    assert (keys.NAME, keys.TIMEOUT) == ("name", "timeout")
    assert (keys.HEADER_SIZE, keys.TOTAL_SIZE) == ("header_size", "total_size")
    assert keys.COMPUTED_BODY_HASH == "computed_body_hash"
    assert keys.AXON_PREFIX == "bt_header_axon_"
    assert keys.DENDRITE_PREFIX == "bt_header_dendrite_"
    assert keys.INPUT_OBJ_PREFIX == "bt_header_input_obj_"


def test_terminal_info_header_constants() -> None:
    assert header_keys.STATUS_CODE == "status_code"
    assert header_keys.STATUS_MESSAGE == "status_message"
    assert header_keys.PROCESS_TIME == "process_time"
    assert header_keys.IP == "ip"
    assert header_keys.PORT == "port"
    assert header_keys.VERSION == "version"
    assert header_keys.NONCE == "nonce"
    assert header_keys.UUID == "uuid"
    assert header_keys.HOTKEY == "hotkey"
    assert header_keys.SIGNATURE == "signature"
    values = {value for key, value in vars(header_keys).items() if key.isupper()}
    assert values == set(TerminalInfo.model_fields)


def test_hashing_vectors() -> None:
    assert sha3_256_hex(b"") == EMPTY
    assert sha3_256_hex(b"abc") == "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532"


def test_the_documents_hash_of_hello_is_no_sha3_256_of_it() -> None:
    """The document's example agrees with FIPS 202 in its first 14 digits only; the real SDK and hashlib,
    which the document names as the measure, say the other one.
    """
    said = "3338be694f50c5d33fb5496c37c2f9be3f0a3f5c6a21d6bb7b5a870a2eb6ec75"
    right = "3338be694f50c5f338814986cdf0686453a888b84f424d792af4b9202398f392"
    assert hashlib.sha3_256(b"hello").hexdigest() == sha3_256_hex(b"hello") == right
    assert len(sha3_256_hex(b"hello")) == 64
    assert said != right
    assert said[:14] == right[:14]


def test_signing_message_vector() -> None:
    message = signing_message(
        1234567890, "5DendriteHotkey123", "5AxonHotkey456", "550e8400-e29b-41d4-a716-446655440000", EMPTY
    )
    assert message == (
        "1234567890.5DendriteHotkey123.5AxonHotkey456.550e8400-e29b-41d4-a716-446655440000."
        "a7ffc6f8bf1ed76651c14756a061d662f580ff4de43b49fa82d80a4b80f8434a"
    )
    assert message.count(".") == 4


def test_process_chunk_of_text() -> None:
    assert TextPromptSynapse.process_chunk("schön".encode()) == "schön"
    with pytest.raises(DeserializationFailed, match="deserialization failed"):
        TextPromptSynapse.process_chunk(b"\xff")


def test_process_chunk_of_another_item() -> None:
    class Numbers(StreamingSynapse):
        Item: ClassVar = list[int]

    assert Numbers.process_chunk(b"[1, 2]") == [1, 2]
    with pytest.raises(DeserializationFailed):
        Numbers.process_chunk(b'["a"]')


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"completion": 1}', b'{"completion": null}'])
def test_deserialize_body_refuses_what_is_not_the_output(body: bytes) -> None:
    with pytest.raises(DeserializationFailed, match="deserialization failed"):
        TextPromptSynapse.deserialize_body(body)


def test_a_new_terminal_info_knows_nothing() -> None:
    assert set(TerminalInfo().model_dump().values()) == {None}
    assert TerminalInfo().to_headers_with_prefix("bt_header_axon_") == {}


def test_to_headers_with_prefix() -> None:
    headers = TerminalInfo(hotkey=GRW, nonce=12345).to_headers_with_prefix("bt_header_axon_")
    assert headers == {"bt_header_axon_hotkey": GRW, "bt_header_axon_nonce": "12345"}


def test_from_headers_with_prefix() -> None:
    headers = {"bt_header_dendrite_hotkey": "5DendKey", "bt_header_dendrite_nonce": "99999"}
    info = TerminalInfo.from_headers_with_prefix(headers, "bt_header_dendrite_")
    assert (info.hotkey, info.nonce, info.ip) == ("5DendKey", 99999, None)


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("nonce", "not a number"),
        ("nonce", "18446744073709551616"),  # u64 is over
        ("nonce", "-1"),
        ("nonce", "1.0"),
        ("nonce", " 1"),
        ("nonce", "1_000"),  # Python's int would read it
        ("nonce", "٣"),  # a digit of another script: so too
        ("nonce", ""),
        ("version", "4294967296"),  # u32
        ("port", "65536"),  # u16
        ("status_code", "65536"),
        ("process_time", "fast"),
        ("process_time", "1_0.0"),
        ("process_time", ""),
    ],
)
def test_what_cannot_be_read_is_none(field: str, text: str) -> None:
    info = TerminalInfo.from_headers_with_prefix({f"p_{field}": text, "p_ip": "::1"}, "p_")
    assert getattr(info, field) is None
    assert info.ip == "::1"


@pytest.mark.parametrize(
    ("field", "most"), [("nonce", 2**64 - 1), ("version", 2**32 - 1), ("port", 65535), ("status_code", 65535)]
)
def test_the_largest_of_each_integer_type_is_read(field: str, most: int) -> None:
    info = TerminalInfo.from_headers_with_prefix({f"p_{field}": str(most)}, "p_")
    assert getattr(info, field) == most
    with pytest.raises(ValueError, match="less than or equal"):
        TerminalInfo(**{field: most + 1})


def test_parse_header() -> None:
    assert parse_header({"name": "Echo"}, "name") == "Echo"
    with pytest.raises(MissingHeader, match=r"^missing required header: name$"):
        parse_header({}, "name")


@pytest.mark.parametrize(
    ("text", "value"), [("12.0", 12.0), ("1", 1.0), ("-.5", -0.5), ("1e3", 1000.0), ("inf", float("inf"))]
)
def test_parse_header_f64(text: str, value: float) -> None:
    assert parse_header_f64({"timeout": text}, "timeout") == value


def test_parse_header_u64() -> None:
    assert parse_header_u64({"total_size": "18446744073709551615"}, "total_size") == 2**64 - 1


@pytest.mark.parametrize("parse", [parse_header_f64, parse_header_u64])
def test_a_number_that_is_none_says_which_header_it_was(parse: object) -> None:
    assert callable(parse)
    with pytest.raises(MissingHeader):
        parse({}, "total_size")
    with pytest.raises(
        InvalidHeaderValue, match=r"^invalid header value for total_size: 'abc' is no"
    ) as found:
        parse({"total_size": "abc"}, "total_size")
    assert found.value.key == "total_size"
    assert isinstance(found.value.source, ValueError)


def test_all_errors_are_synapse_errors() -> None:
    for kind in (MissingHeader, InvalidHeaderValue, DeserializationFailed):
        assert issubclass(kind, SynapseError)
    assert str(DeserializationFailed("why")) == "deserialization failed: why"


def test_the_route_of_a_class_is_its_name_unless_told_otherwise() -> None:
    class Child(TextPromptSynapse):
        pass

    assert Synapse.route() == "Synapse"
    assert TextPromptSynapse.route() == TextPromptSynapse().name == "TextPrompt"
    assert Child.route() == Child().name == "Child"
