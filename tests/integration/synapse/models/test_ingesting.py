"""Real GGUF files into a library: read in a process of its own, kept under their digest, refused where they
would do harm or answer wrongly; and nothing of a refused one is left."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

import pytest

from bakemesh.artifacts import Cache
from bakemesh.synapse.models import Library, ModelRefused, TextRefused, isolating, library
from bakemesh.synapse.models.header import read
from support import models
from support.processes import children


def open_library(folder: Path) -> Library:
    return Library(folder / "synapse", Cache(folder / "synapse" / "cache"))


def files(folder: Path) -> list[Path]:
    return [each for each in (folder / "synapse").rglob("*") if each.is_file() and each.name != "models.json"]


def test_an_embedder_with_its_ids(tmp_path: Path) -> None:
    path = models.bert(tmp_path / "tiny.gguf")
    told: list[tuple[str, int, int]] = []
    manifest = open_library(tmp_path).ingest(path, "tiny", progress=lambda *each: told.append(each))
    assert manifest.digest == manifest.source == f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    assert (manifest.kind, manifest.pooling, manifest.dims, manifest.limit) == ("embed", "mean", 64, 128)
    assert (manifest.tokenizer.model, manifest.tokenizer.source) == ("bert", "gguf")
    assert {stage for stage, _, _ in told} == {"hash", "read"}
    model = open_library(tmp_path).get("tiny")
    assert model is not None
    assert model.manifest == manifest
    assert model.artifact.path.read_bytes() == path.read_bytes()
    ids, counts = model.tokenizer.embed_ids(["the cat runs", "Red DOG"])
    assert memoryview(ids).cast("i").tolist() == [*models.words("the cat runs"), *models.words("red dog")]
    assert counts == [5, 4]
    count, counts, ids = model.tokenizer.pair_ids("the cat", ["red dog", "runs"])
    assert memoryview(ids).cast("i").tolist() == models.words("the cat red dog runs", special=False)
    assert (count, counts) == (2, [2, 1])
    assert len(files(tmp_path)) == 2


def test_a_generator_with_its_prompt_and_a_chat_from_beside(tmp_path: Path) -> None:
    models.alphabet(tmp_path / "alphabet.gguf")
    (tmp_path / "chat_template.jinja").write_text(
        "{{ bos_token }}{% for m in messages %}{{ m.content }}</s>{% endfor %}"
    )
    shelf = open_library(tmp_path)
    assert shelf.ingest(tmp_path, "abc").template_problem is None
    model = shelf.get("abc")
    assert model is not None
    assert memoryview(model.tokenizer.prompt_ids("xyz ab")).cast("i").tolist() == models.characters("xyz ab")
    chat = model.render([{"role": "user", "content": "ab"}])
    assert chat == "ab</s>"
    ids = memoryview(model.tokenizer.prompt_ids(chat, special=True)).cast("i").tolist()
    assert ids == [*models.characters("ab"), models.EOS]
    assert memoryview(model.tokenizer.prompt_ids("</s>")).cast("i").tolist() == models.characters("</s>")


def test_a_chat_without_a_template_or_with_a_broken_one(tmp_path: Path) -> None:
    path = models.alphabet(tmp_path / "alphabet.gguf")
    shelf = open_library(tmp_path)
    shelf.ingest(path, "none")
    (tmp_path / "chat_template.jinja").write_text("{% for")
    assert "cannot be used" in (shelf.ingest(path, "broken").template_problem or "")
    for alias in ("none", "broken"):
        model = shelf.get(alias)
        assert model is not None
        with pytest.raises(TextRefused) as caught:
            model.render([{"role": "user", "content": "x"}])
        assert caught.value.code == "capability_absent"


REFUSED = {
    "twice": (models.twice_the_same_word, "twice: an engine dies of it", "artifact_invalid"),
    "cut": (lambda path: models.cut_short(path, -1), "cut off", "artifact_invalid"),
    "part": (models.one_of_two_parts, "2 parts", "artifact_invalid"),
    "unfaithful": (lambda path: models.bert(path, "rank"), "2 segment types", "config_invalid"),
    "no head": (
        lambda path: models.bert(path, "rank", segments=1, head=False),
        "no classification head",
        "config_invalid",
    ),
    "qwen3": (models.qwen3, "Qwen3 kind", "config_invalid"),
    "text": (lambda path: path.write_text("no model" * 10), "begins with", "artifact_invalid"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_named_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    make, reason, code = REFUSED[name]
    path = tmp_path / "bad.gguf"
    make(path)
    shelf = open_library(tmp_path)
    with pytest.raises(ModelRefused, match=reason) as caught:
        shelf.ingest(path, "bad")
    assert caught.value.message.startswith("bad.gguf: ")
    assert caught.value.code == code
    assert shelf.all() == []
    assert files(tmp_path) == []
    assert path.exists()


def test_an_unfaithful_one_that_is_wanted_says_so(tmp_path: Path) -> None:
    path = models.bert(tmp_path / "rank.gguf", "rank")
    manifest = open_library(tmp_path).ingest(path, "rank", config={"allow_unfaithful": "yes"})
    assert (manifest.kind, manifest.faithful) == ("rerank", False)
    assert "segment types" in (manifest.unfaithful or "")
    assert manifest.config == {"allow_unfaithful": "yes"}


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    path = models.bert(tmp_path / "tiny.gguf")
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": {"type": "BPE"}}))
    with pytest.raises(ModelRefused, match=r"tokenizer\.json is"):
        open_library(tmp_path).ingest(path, "tiny")


def test_bf16_is_made_where_the_cpu_has_it_and_used_there_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = models.bert(tmp_path / "tiny.gguf")
    from bakemesh.synapse.models import ingesting

    for module in (ingesting, library):
        monkeypatch.setattr(module, "fast_bf16", lambda: True)
    told: set[str] = set()
    manifest = open_library(tmp_path).ingest(
        path, "tiny", weights="fastest", progress=lambda stage, *_: told.add(stage)
    )
    assert manifest.digest != manifest.source
    assert (manifest.weights, "convert" in told) == ("bf16 of f32", True)
    fast = open_library(tmp_path).get("tiny")
    assert fast is not None
    assert fast.artifact.digest == manifest.digest
    assert fast.artifact.path.stat().st_size == manifest.bytes < path.stat().st_size
    assert fast.artifact.path.stat().st_mode & 0o777 == 0o440
    assert read(fast.artifact.path).tensors["blk.0.attn_q.weight"].type.name == "BF16"
    monkeypatch.setattr(library, "fast_bf16", lambda: False)
    shelf = open_library(tmp_path)
    plain = shelf.get("tiny")
    assert plain is not None
    assert (plain.artifact.digest, plain.manifest.weights) == (manifest.source, "f32")
    assert plain.manifest.bytes == path.stat().st_size
    monkeypatch.setattr(ingesting, "fast_bf16", lambda: False)
    assert shelf.ingest(path, "other", weights="fastest").weights == "f32"
    assert shelf.remove("tiny")
    assert Cache(tmp_path / "synapse" / "cache").path(manifest.digest) is None
    assert Cache(tmp_path / "synapse" / "cache").path(manifest.source) is not None


# -- the process that reads


def asked(tmp_path: Path) -> dict[str, object]:
    path = models.bert(tmp_path / "tiny.gguf")
    return {
        "path": str(path),
        "file": "tiny.gguf",
        "beside": None,
        "config": {},
        "into": str(tmp_path),
        "bf16": False,
    }


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os; os.abort()", "ended with -6"),
        ("import sys; sys.exit('no way')", "ended with 1: no way"),
        ("import time; time.sleep(600)", "came to nothing"),
        ("import sys\nwhile True: sys.stdout.write('x' * 1000000)", "more is said"),
        ("import resource, signal, os; os.kill(os.getpid(), signal.SIGSEGV)", "ended with -11"),
    ],
)
def test_whatever_the_file_does_to_it_the_ingest_ends(tmp_path: Path, code: str, reason: str) -> None:
    before = set(children(os.getpid()))
    with pytest.raises(ModelRefused, match=reason):
        isolating.inspect(
            asked(tmp_path), lambda *_: None, command=(sys.executable, "-c", code), silence_s=2.0
        )
    assert set(children(os.getpid())) <= before


def test_a_process_without_memory_ends_as_a_refusal(tmp_path: Path) -> None:
    small = (
        "from bakemesh.synapse.models import inspecting\n"
        "inspecting.MOST_MEMORY = 8 << 20\n"
        "inspecting.main()\n"
    )
    with pytest.raises(ModelRefused, match=r"tiny\.gguf"):
        isolating.inspect(asked(tmp_path), lambda *_: None, command=(sys.executable, "-c", small))
