"""Bodies: what is taken, what is refused and by which name, and what the mesh is asked for it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from bakemesh.axon.openai.asking import (
    alias_of,
    documents_of,
    items_of,
    prompts_of,
    turns_of,
    wanted_of,
)
from bakemesh.axon.openai.refusals import Refused, of_validation
from bakemesh.axon.openai.requests import (
    Body,
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    RerankRequest,
)
from bakemesh.inference.asking import items_of as given_items
from bakemesh.inference.asking import message_of
from bakemesh.inference.options import entries_of
from bakemesh.protocol.inference.requests import Generate

CHAT = {"model": "small", "messages": [{"role": "user", "content": "hi"}]}
TEXT = {"model": "small", "prompt": "hi"}


def read(kind: type[Body], body: Any) -> Any:
    return kind.model_validate_json(body if isinstance(body, bytes) else json.dumps(body))


def refused(kind: type[Body], body: Any) -> Refused:
    with pytest.raises(ValidationError) as error:
        read(kind, body)
    return of_validation(error.value, kind)


def chat(**more: Any) -> ChatRequest:
    found: ChatRequest = read(ChatRequest, CHAT | more)
    return found


@pytest.mark.parametrize(
    ("given", "expected"),
    [("a", "a"), (["a", "b"], ["a", "b"]), ([1, 2], [[1, 2]]), ([[1, 2], [3]], [[1, 2], [3]])],
)
def test_inputs_are_texts_or_ids(given: Any, expected: Any) -> None:
    items = items_of(read(EmbeddingRequest, {"model": "m", "input": given}))
    made, wanted = given_items(items), given_items(expected)
    assert (made.texts, made.ids) == (wanted.texts, wanted.ids)


@pytest.mark.parametrize(
    "given", [[], [[]], [1, "a"], ["a", [1]], [-1], [1 << 31], [1.5], [True], None, 3, {"a": 1}]
)
def test_inputs_that_are_neither_name_the_field(given: Any) -> None:
    found = refused(EmbeddingRequest, {"model": "m", "input": given})
    assert (found.param or "").startswith("input")
    assert found.status == 400


def test_prompts() -> None:
    for said, expected in (("a", ["a"]), (["a", "b"], ["a", "b"]), ([1], [[1]]), ([[1], [2]], [[1], [2]])):
        assert prompts_of(read(CompletionRequest, TEXT | {"prompt": said})) == expected


def test_what_is_not_known_is_ignored() -> None:
    assert chat(user="me", store=True, metadata={"a": "b"}, service_tier="flex", new_thing=[1]) == chat()


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (ChatRequest, "n", 2),
        (ChatRequest, "tools", [{"type": "function"}]),
        (ChatRequest, "tool_choice", "required"),
        (ChatRequest, "functions", [{}]),
        (ChatRequest, "logprobs", True),
        (ChatRequest, "top_logprobs", 3),
        (ChatRequest, "modalities", ["audio"]),
        (ChatRequest, "audio", {"voice": "x"}),
        (ChatRequest, "web_search_options", {}),
        (ChatRequest, "presence_penalty", 0.5),
        (ChatRequest, "frequency_penalty", -1),
        (ChatRequest, "logit_bias", {"5": 100}),
        (CompletionRequest, "n", 3),
        (CompletionRequest, "best_of", 2),
        (CompletionRequest, "echo", True),
        (CompletionRequest, "suffix", "end"),
        (CompletionRequest, "logprobs", 0),
    ],
)
def test_what_would_change_the_answer_is_refused_by_name(kind: type[Body], name: str, value: Any) -> None:
    body = CHAT if kind is ChatRequest else TEXT
    found = refused(kind, body | {name: value})
    assert (found.param or "").partition(".")[0] == name
    assert found.code == "unsupported_parameter"
    assert name in str(found)
    assert "leave it out" in str(found)


@pytest.mark.parametrize(
    "neutral",
    [
        {"n": 1}, {"n": None}, {"tools": []}, {"tools": None}, {"tool_choice": "none"}, {"logprobs": False},
        {"top_logprobs": 0}, {"modalities": ["text"]}, {"presence_penalty": 0}, {"frequency_penalty": 0.0},
        {"logit_bias": {}}, {"logit_bias": None}, {"stop": []}, {"stop": None}, {"seed": None},
    ],
)  # fmt: skip
def test_what_changes_nothing_is_taken(neutral: dict[str, Any]) -> None:
    assert wanted_of(chat(**neutral)) == wanted_of(chat())


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "tool", "content": "x"}, "messages.0.role"),
        ({"role": "user"}, "messages.0.content"),
        ({"role": "user", "content": None}, "messages.0.content"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, "messages.0.content.0.type"),
        ({"role": "assistant", "content": "", "tool_calls": [{}]}, "messages.0.tool_calls"),
    ],
)
def test_turns_that_the_mesh_cannot_read_are_named(message: dict[str, Any], param: str) -> None:
    found = refused(ChatRequest, CHAT | {"messages": [message]})
    assert found.param is not None
    assert found.param.startswith(param.rpartition(".0.type")[0] or param)


def test_turns() -> None:
    turns = [
        {"role": "developer", "content": "be brief", "name": "boss"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "c", "tool_calls": None},
    ]
    assert turns_of(chat(messages=turns)) == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "ab"},
        {"role": "assistant", "content": "c"},
    ]


def test_a_missing_field_is_said_to_be_missing() -> None:
    found = refused(ChatRequest, {"model": "m"})
    assert (found.code, found.param, str(found)) == (
        "missing_required_parameter",
        "messages",
        "messages is missing",
    )


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"3", b'{"a":' * 10_000, b"\xff\xfe", b'{"model": "\\ud800"}']
)
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    assert refused(ChatRequest, body).status == 400


def test_a_message_does_not_quote_what_was_sent() -> None:
    found = refused(ChatRequest, CHAT | {"temperature": "my secret"})
    assert "secret" not in str(found)
    assert found.param == "temperature"


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "temperature": st.floats(0, 2) | st.none(),
            "top_p": st.floats(0, 1) | st.none(),
            "seed": st.integers(-(1 << 63), (1 << 63) - 1),
            "stop": st.text(min_size=1, max_size=9) | st.lists(st.text(min_size=1, max_size=9), max_size=16),
            "max_tokens": st.integers(1, 1 << 20),
            "max_completion_tokens": st.integers(1, 1 << 20),
        },
    )
)
def test_whatever_is_taken_is_something_that_the_mesh_can_be_asked(more: dict[str, Any]) -> None:
    try:
        request = chat(**more)
    except ValidationError:  # text that JSON cannot carry
        return
    wanted = wanted_of(request)
    made = message_of(Generate, {"prompt": "x", **entries_of(wanted)})
    assert made.maxtokens == more.get("max_completion_tokens", more.get("max_tokens", 1024))
    assert made.temperature == (1.0 if more.get("temperature") is None else more["temperature"])


def test_a_completion_has_openais_default() -> None:
    assert wanted_of(read(CompletionRequest, TEXT))["max_tokens"] == 16


@pytest.mark.parametrize(
    ("given", "schema"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"type": "object"}),
        (
            {
                "type": "json_schema",
                "json_schema": {"name": "x", "strict": True, "schema": {"type": "array"}},
            },
            {"type": "array"},
        ),
    ],
)
def test_a_response_format_is_a_constraint(given: dict[str, Any], schema: Any) -> None:
    wanted = wanted_of(chat(response_format=given))["json_schema"]
    assert (wanted if wanted is None else json.loads(str(wanted))) == schema


def test_a_response_format_that_is_none_is_refused() -> None:
    assert (refused(ChatRequest, CHAT | {"response_format": {"type": "xml"}}).param or "").startswith(
        "response_format"
    )


def test_documents_are_texts_or_objects() -> None:
    body = {"query": "q", "documents": ["a", {"text": "b", "title": "t"}]}
    assert documents_of(read(RerankRequest, body)) == ["a", "b"]


@pytest.mark.parametrize("name", ["gpt-4.1", "org/model", "-", "a b", "ä", "*", "a.b"])
def test_a_name_that_can_be_no_alias_is_no_model(name: str) -> None:
    with pytest.raises(Refused) as error:
        alias_of(name)
    assert (error.value.status, error.value.code) == (404, "model_not_found")


def test_an_alias_is_taken_as_it_is() -> None:
    assert alias_of("text-embedding-3-small") == "text-embedding-3-small"
    assert alias_of(None) is None


def test_ids_become_an_array_of_whole_numbers() -> None:
    (row,) = items_of(read(EmbeddingRequest, {"model": "m", "input": [5, 6]}))
    assert np.asarray(row).tolist() == [5, 6]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (EmbeddingRequest, {"model": "m", "input": [None] * 20_000}),
        (EmbeddingRequest, {"model": "m", "input": [[None] * 1_000] * 20}),
        (CompletionRequest, {"model": "m", "prompt": [None] * 20_000}),
        (CompletionRequest, {"model": "m", "prompt": "a", "stop": [None] * 20_000}),
        (ChatRequest, {"model": "m", "messages": [{}] * 4_000}),
        (ChatRequest, {"model": "m", "messages": [{"role": "user", "content": [{}] * 4_000}]}),
        (RerankRequest, {"query": "a", "documents": [None] * 2_000}),
    ],
)
def test_of_many_wrong_values_few_are_kept(kind: type[Body], body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as failed:
        kind.model_validate_json(json.dumps(body))
    assert failed.value.error_count() < 10
