"""Bodies that were made to hurt; and the synapses that every gateway serves."""

from __future__ import annotations

import json
import math
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, ValidationError, create_model

from bakemesh.protocol.axon import (
    DeserializationFailed,
    Embedding,
    Profile,
    Rerank,
    Synapse,
    SynapseError,
    Tensor,
    TextPrompt,
    sha3_256_hex,
)
from bakemesh.protocol.axon.builtin import BUILTIN, LONGEST_TEXT, MOST_TEXTS


class Loose(Synapse):
    anything: Any = None
    x: float = 0.0
    n: int = 0
    rows: list[int] = []  # noqa: RUF012


class Tree(BaseModel):
    left: Tree | None = None


class Grows(Synapse):
    tree: Tree = Tree()


HOSTILE = {
    "nothing": b"",
    "not json": b"<html>",
    "an array": b"[1]",
    "a string": b'"a"',
    "null": b"null",
    "two": b"{}{}",
    "not utf-8": b'{"anything":"\xff"}',
    "a lone surrogate": rb'{"anything":"\ud800"}',
    "a NUL": b'{"anything":"\0"}',
    "nested arrays": b'{"anything":' + b"[" * 100_000,
    "nested objects": b'{"a":' * 100_000,
    "a nested model": b'{"tree":' + b'{"left":' * 10_000,
    "100,000 digits": b'{"n":' + b"9" * 100_000 + b"}",
    "100,000 digits for anything": b'{"anything":' + b"9" * 100_000 + b"}",
    "an infinite whole number": b'{"n":Infinity}',
    "a fraction for a whole number": b'{"n":1.5}',
    "no timeout": b'{"timeout":null}',
    "a timeout in words": b'{"timeout":"soon"}',
    "a timeout that never comes": b'{"timeout":NaN}',
    "a timeout before now": b'{"timeout":-1}',
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_hostile_body_is_refused_in_few_words(name: str) -> None:
    cls = Grows if name == "a nested model" else Loose
    with pytest.raises(DeserializationFailed) as found:
        cls.from_body(HOSTILE[name])
    assert len(str(found.value)) < 400


def test_the_first_of_some_errors_says_where_it_is() -> None:
    with pytest.raises(
        DeserializationFailed, match=r"timeout: Input should be a valid number.* \(and 1 more\)"
    ):
        Loose.from_body(b'{"rows":[1,"a",2,"b"],"timeout":"soon"}')


def test_a_thousand_missing_fields_are_not_listed() -> None:
    fields: dict[str, Any] = {f"field_{number}": (int, ...) for number in range(1_001)}
    many = create_model("Many", __base__=Synapse, **fields)
    with pytest.raises(DeserializationFailed, match="the body: 1001 values are not what Many says"):
        many.from_body(b"{}")


def test_what_a_sender_wrote_does_not_fill_the_message() -> None:
    class Said(Synapse):
        rows: dict[str, dict[str, int]] = {}  # noqa: RUF012

    body = json.dumps({"rows": {"x" * 9000: {"y" * 9000: "z" * 9000}}}).encode()
    with pytest.raises(DeserializationFailed) as found:
        Said.from_body(body)
    assert len(str(found.value)) < 400


@pytest.mark.parametrize("depth", [1, 100, 190])
def test_what_was_read_can_be_written_and_hashed(depth: int) -> None:
    class Hashed(Loose):
        required_hash_fields: ClassVar[tuple[str, ...]] = ("anything",)

    synapse = Hashed.from_body(b'{"anything":' + b"[" * depth + b"]" * depth + b"}")
    again = Hashed.from_body(synapse.body())
    assert again.declared_hash() == synapse.declared_hash()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_floats_that_are_no_number_survive_a_body(value: float) -> None:
    again = Loose.from_body(Loose(x=value, anything=[value]).body())
    assert str(again.x) == str(again.anything[0]) == str(value)


@pytest.mark.parametrize(
    ("given_", "wanted"),
    [
        (b'"nonce":18446744073709551615', {"nonce": 2**64 - 1}),
        (b'"nonce":18446744073709551616', {}),
        (b'"nonce":-1', {}),
        (b'"nonce":"17"', {"nonce": 17}),
        (b'"nonce":"x"', {}),
        (b'"nonce":1.0', {}),
        (b'"nonce":true', {}),
        (b'"nonce":[]', {}),
        (b'"nonce":' + b"9" * 4000, {}),
        (b'"port":65536,"version":4294967296,"status_code":1000000', {}),
        (b'"process_time":1' + b"0" * 400, {}),
        (b'"process_time":1', {"process_time": 1.0}),
        (b'"process_time":"1e3"', {"process_time": 1000.0}),
        (b'"hotkey":5,"ip":null,"uuid":{}', {}),
        (b'"hotkey":"5Bob","unknown":1', {"hotkey": "5Bob"}),
    ],
)
def test_a_terminal_in_a_body_is_read_as_leniently_as_in_headers(
    given_: bytes, wanted: dict[str, Any]
) -> None:
    for side in (b"dendrite", b"axon"):
        synapse = Synapse.from_body(b'{"' + side + b'":{' + given_ + b"}}")
        assert getattr(synapse, side.decode()).model_dump(exclude_none=True) == wanted


@pytest.mark.parametrize("value", [b"null", b"5", b'"x"', b"[]", b"[[]]"])
def test_a_terminal_that_is_none_knows_nothing(value: bytes) -> None:
    synapse = Synapse.from_body(b'{"dendrite":' + value + b',"axon":' + value + b"}")
    assert synapse.dendrite.model_dump(exclude_none=True) == synapse.axon.model_dump(exclude_none=True) == {}


@pytest.mark.parametrize("value", [b"null", b"-1", b'"1"', b"1.5", b"18446744073709551616", b"{}"])
def test_a_size_that_cannot_be_read_is_0(value: bytes) -> None:
    synapse = Synapse.from_body(b'{"total_size":' + value + b',"header_size":' + value + b"}")
    assert (synapse.total_size, synapse.header_size) == (0, 0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=9,
)
ENVELOPE = st.dictionaries(
    st.sampled_from([*Loose.model_fields, "dendrite", "axon", "unknown"]),
    JSON | st.dictionaries(st.sampled_from(["nonce", "port", "hotkey", "process_time", "uuid"]), JSON),
)


@given(ENVELOPE | JSON)
def test_arbitrary_json_is_a_synapse_or_a_synapse_error(value: Any) -> None:
    for cls in (Loose, *BUILTIN):
        try:
            synapse = cls.from_body(json.dumps(value).encode())
        except SynapseError as error:
            assert len(str(error)) < 1000  # noqa: PT017
            continue
        assert cls.from_body(synapse.body()).body() == synapse.body()
        synapse.to_headers(Profile.SDK)


@given(st.binary(max_size=80))
def test_arbitrary_bytes_are_no_synapse(body: bytes) -> None:
    try:
        Loose.from_body(body)
    except DeserializationFailed:
        return


def test_fields_with_an_alias_come_back() -> None:
    class Aliased(Synapse):
        max_tokens: int = Field(default=1, alias="maxTokens")

    assert Aliased.from_body(Aliased(maxTokens=3).body()).max_tokens == 3
    assert Aliased.from_body(b'{"maxTokens":4}').max_tokens == 4
    assert Aliased.from_body(b'{"max_tokens":5}').max_tokens == 5


def test_the_body_that_is_hashed_is_the_body_that_is_sent() -> None:
    """The document's order: serialise once, hash these bytes, sign the hash. The hash is not in the body."""
    synapse = TextPrompt(prompt="x")
    body = synapse.body()
    assert synapse.body_hash() == sha3_256_hex(body)
    synapse.set_computed_body_hash(synapse.body_hash())
    assert synapse.to_headers()["computed_body_hash"] == sha3_256_hex(body)
    assert json.loads(body)["computed_body_hash"] == ""


# -- the built-in ones


def test_names_inputs_and_defaults() -> None:
    assert [cls.route() for cls in BUILTIN] == ["TextPrompt", "Embedding", "Rerank"]
    prompt = TextPrompt()
    assert (prompt.max_tokens, prompt.temperature, prompt.stream) == (128, 0.7, False)
    assert TextPrompt.required_hash_fields == ("prompt", "max_tokens", "temperature", "stream")
    assert Embedding.required_hash_fields == ("texts",)
    assert Rerank.required_hash_fields == ("query", "documents")


@pytest.mark.parametrize(
    ("cls", "filled", "answer"),
    [
        (TextPrompt, {"completion": "Paris"}, {"completion": "Paris"}),
        (Rerank, {"scores": [0.5, -1.0]}, {"scores": [0.5, -1.0]}),
    ],
)
def test_outputs(cls: type[Synapse], filled: dict[str, Any], answer: dict[str, Any]) -> None:
    output = cls(**filled).output()
    assert json.loads(output.model_dump_json()) == answer
    assert cls.deserialize_body(json.dumps(answer).encode()) == output
    with pytest.raises(ValidationError):
        cls().output()


def test_the_output_of_embedding_is_a_tensor() -> None:
    import numpy

    vectors = Tensor.from_numpy(numpy.eye(2, dtype="<f4"))
    output = Embedding(texts=["a", "b"], embeddings=vectors).output()
    again = Embedding.deserialize_body(output.model_dump_json().encode())
    assert again.embeddings.numpy().tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("cls", "body"),
    [
        (TextPrompt, {"max_tokens": 0}),
        (TextPrompt, {"max_tokens": (1 << 20) + 1}),
        (TextPrompt, {"temperature": -0.1}),
        (TextPrompt, {"temperature": 2.1}),
        (TextPrompt, {"temperature": math.nan}),
        (TextPrompt, {"temperature": math.inf}),
        (TextPrompt, {"prompt": None}),
        (TextPrompt, {"prompt": "x" * (LONGEST_TEXT + 1)}),
        (Embedding, {"texts": [""] * (MOST_TEXTS + 1)}),
        (Embedding, {"texts": [None] * 100_000}),
        (Embedding, {"texts": "one"}),
        (Rerank, {"documents": [1]}),
    ],
)
def test_limits(cls: type[Synapse], body: dict[str, Any]) -> None:
    with pytest.raises(DeserializationFailed):
        cls.from_body(json.dumps(body).encode())
