"""What a model is for, how long its items may be, and which ones are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bakemesh.synapse.models.architectures import ENCODERS, OTHERS, TEXT
from bakemesh.synapse.models.errors import ModelRefused
from bakemesh.synapse.models.header import Header, read
from bakemesh.synapse.models.judging import Judged, judge
from support import models


def judged(path: Path, **config: str) -> Judged:
    return judge(read(path), config, "file.gguf")


@pytest.fixture
def header(tmp_path: Path) -> Header:
    return read(models.bert(tmp_path / "bert.gguf"))


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_an_embedder_has_its_own_pooling(tmp_path: Path, pooling: str) -> None:
    found = judged(models.bert(tmp_path / "m.gguf", pooling))
    assert (found.kind, found.pooling, found.dims, found.config) == ("embed", pooling, 64, {})
    assert (found.context, found.limit, found.vocabulary) == (128, 128, len(models.WORDS))
    assert (found.architecture, found.name, found.weights) == ("bert", "tiny bert", "f32")


def test_a_generator_says_its_context(tmp_path: Path) -> None:
    path = models.alphabet(tmp_path / "m.gguf", context=10_000)
    found = judged(path)
    assert (found.kind, found.context, found.limit) == ("generate", 10_000, 4096)
    assert found.config == {"ctx_size": "4096"}
    assert judged(path, ctx_size="0").limit == 10_000
    assert judged(path, ctx_size="99999").limit == 10_000
    assert judged(path, ctx_size="100", batch_size="50").limit == 50
    assert judged(path, pooling="last").config == {"pooling": "last"}
    assert judged(path, pooling="last").kind == "embed"


def test_a_head_makes_a_reranker_unless_the_file_or_config_says_otherwise(tmp_path: Path) -> None:
    assert judged(models.bert(tmp_path / "r.gguf", "rank", segments=1)).kind == "rerank"
    both = models.bert(tmp_path / "b.gguf", "mean", segments=1, head=True)
    assert judged(both).kind == "embed"
    found = judged(both, pooling="rank")
    assert (found.kind, found.config) == ("rerank", {"pooling": "rank"})


UNFAITHFUL: dict[str, Callable[[Path], Path]] = {
    "segment types": lambda path: models.bert(path, "rank"),
    "Qwen3 kind": models.qwen3,
}


@pytest.mark.parametrize("reason", UNFAITHFUL)
def test_unfaithful_rerankers_are_refused_unless_wanted(tmp_path: Path, reason: str) -> None:
    path = UNFAITHFUL[reason](tmp_path / "m.gguf")
    with pytest.raises(ModelRefused, match=reason) as caught:
        judged(path)
    assert caught.value.code == "config_invalid"
    found = judged(path, allow_unfaithful="yes")
    assert found.kind == "rerank"
    assert found.unfaithful is not None
    assert reason in found.unfaithful


def test_without_a_head_there_is_no_reranking_at_all(tmp_path: Path) -> None:
    path = models.bert(tmp_path / "m.gguf", "rank", segments=1, head=False)
    with pytest.raises(ModelRefused, match="no classification head"):
        judged(path, allow_unfaithful="yes")


@pytest.mark.parametrize(("name", "code"), [("clip", "capability_absent"), ("t5", "capability_absent"), ("x", "artifact_invalid"), ("", "artifact_invalid")])  # fmt: skip  # noqa: E501
def test_other_architectures_are_refused_by_name(header: Header, name: str, code: str) -> None:
    header.values["general.architecture"] = name
    with pytest.raises(ModelRefused, match=f"architecture '?{name}") as caught:
        judge(header, {}, "file.gguf")
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("split.count", 3, "3 parts"),
        ("bert.context_length", None, "context_length is None"),
        ("bert.context_length", 1 << 40, "context_length"),
        ("bert.embedding_length", 0, "embedding_length is 0"),
        ("tokenizer.ggml.tokens", [], "no vocabulary"),
    ],
)
def test_what_contradicts_itself_is_refused(header: Header, key: str, value: object, reason: str) -> None:
    header.values[key] = value
    with pytest.raises(ModelRefused, match=reason):
        judge(header, {}, "file.gguf")


def test_a_vocabulary_alone_is_no_model(header: Header) -> None:
    header.tensors.clear()
    with pytest.raises(ModelRefused, match="no weights"):
        judge(header, {}, "file.gguf")


@pytest.mark.parametrize(
    "config", [{"ctx_size": "x"}, {"batch_size": "0"}, {"ctx_size": "-1"}, {"pooling": "sum"}]
)
def test_a_config_that_cannot_be_is_named(header: Header, config: dict[str, str]) -> None:
    (key,) = config
    with pytest.raises(ModelRefused, match=f"config.{key}") as caught:
        judge(header, config, "file.gguf")
    assert caught.value.code == "config_invalid"


def test_architectures_are_in_one_list_only() -> None:
    assert ENCODERS <= TEXT
    assert not TEXT & OTHERS.keys()
