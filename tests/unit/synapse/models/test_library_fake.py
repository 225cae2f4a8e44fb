"""The library with models of the fake format: aliases, manifests, ids, chats; kept over a restart."""

from __future__ import annotations

import json
from array import array
from pathlib import Path

import pytest

from bakemesh.artifacts import Cache
from bakemesh.synapse.models import (
    AliasesDamaged,
    Library,
    Manifest,
    ModelRefused,
    TextRefused,
    TooManyTokens,
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "small.fake"
    path.write_text('{"dims": 16, "context": 10}')
    return path


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return open_library(tmp_path)


def open_library(folder: Path) -> Library:
    return Library(folder / "synapse", Cache(folder / "synapse" / "cache"))


def numbers(ids: bytes) -> list[int]:
    return array("i", ids).tolist()


def test_ingested_under_its_alias_and_there_after_a_restart(
    library: Library, source: Path, tmp_path: Path
) -> None:
    told: list[tuple[str, int, int]] = []
    manifest = library.ingest(
        source, "mini", config={"slow_ms": "5"}, progress=lambda *each: told.append(each)
    )
    assert told[-1] == ("hash", manifest.bytes, manifest.bytes)
    for each in (library, open_library(tmp_path)):
        model = each.get("mini")
        assert model is not None
        assert model.manifest == manifest
        assert model.artifact.path.read_bytes() == source.read_bytes()
        assert (model.artifact.digest, model.artifact.format) == (manifest.digest, "fake")
        assert model.config == {"dims": "16", "ctx_size": "10", "slow_ms": "5"}
        assert [one.alias for one in each.all()] == ["mini"]
    assert (manifest.kind, manifest.dims, manifest.limit, manifest.faithful) == ("embed", 16, 10, True)


def test_a_manifest_is_json_there_and_back(library: Library, source: Path) -> None:
    manifest = library.ingest(source, "mini")
    assert Manifest.from_json(json.loads(json.dumps(manifest.to_json()))) == manifest
    assert json.loads(json.dumps(manifest.told()))["template"] is True
    for broken in ({}, {**manifest.to_json(), "tokenizer": 5}, {**manifest.to_json(), "tokenizer": {}}):
        with pytest.raises(ValueError, match="no manifest"):
            Manifest.from_json(broken)


def test_an_alias_may_be_given_anew_and_taken_back(library: Library, source: Path, tmp_path: Path) -> None:
    first = library.ingest(source, "mini")
    library.ingest(source, "other")
    source.unlink()
    source.write_text('{"kind": "generate"}')
    second = library.ingest(source, "mini")
    model = library.get("mini")
    assert model is not None
    assert model.manifest.kind == "generate"
    cache = Cache(tmp_path / "synapse" / "cache")
    assert library.remove("mini")
    assert not library.remove("mini")
    assert (cache.path(second.digest), cache.path(first.digest) is None) == (None, False)
    assert library.remove("other")
    assert cache.digests() == []
    assert open_library(tmp_path).all() == []


def test_ids_are_bytes_and_limits_name_both_counts(library: Library, source: Path) -> None:
    library.ingest(source, "mini")
    model = library.get("mini")
    assert model is not None
    tokenizer = model.tokenizer
    assert tokenizer is model.tokenizer
    ids, counts = tokenizer.embed_ids(["ab", "é"])
    assert (numbers(ids), counts) == ([97, 98, 0xC3, 0xA9], [2, 2])
    assert numbers(tokenizer.plain_ids("\udcff")) == [ord("?")]
    with pytest.raises(TooManyTokens) as caught:
        tokenizer.embed_ids(["x" * 10, "x" * 11])
    assert (caught.value.have, caught.value.most, caught.value.item) == (11, 10, 1)
    assert caught.value.error.details == {"have": 11, "most": 10, "item": 1}
    assert tokenizer.embed_ids(["x" * 11], truncate=True)[1] == [10]
    with pytest.raises(TextRefused, match="item 1 has no tokens"):
        tokenizer.embed_ids(["a", ""])
    with pytest.raises(TooManyTokens, match=r"^the prompt has 10 tokens; this model takes at most 9$"):
        tokenizer.prompt_ids("x" * 10)
    assert len(tokenizer.prompt_ids("x" * 9)) == 36


def test_pairs_share_the_limit(library: Library, source: Path) -> None:
    library.ingest(source, "mini")
    model = library.get("mini")
    assert model is not None
    pair = model.tokenizer.pair_ids
    count, counts, ids = pair("abc", ["d", "efg"])
    assert (count, counts, bytes(numbers(ids))) == (3, [1, 3], b"abcdefg")
    with pytest.raises(TooManyTokens, match="query and document 1 has 11 tokens"):
        pair("abc", ["d", "x" * 8])
    assert pair("abc", ["d", "x" * 8], truncate=True)[1] == [1, 7]
    with pytest.raises(TooManyTokens):
        pair("x" * 10, ["d"], truncate=True)
    for query, documents in (("", ["a"]), ("a", ["b", ""])):
        with pytest.raises(TextRefused, match="no tokens"):
            pair(query, documents)


def test_a_chat_is_its_contents(library: Library, source: Path) -> None:
    library.ingest(source, "mini")
    model = library.get("mini")
    assert model is not None
    turns = [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "c"}]
    assert model.render(turns) == "abc"
    with pytest.raises(TextRefused, match="turn 1"):
        model.render([turns[0], {"content": "x"}])


@pytest.mark.parametrize("alias", ["", "a b", "a.b", "x" * 65, "*", "ä", "a\n"])
def test_what_cannot_be_in_a_subject_is_no_alias(library: Library, source: Path, alias: str) -> None:
    with pytest.raises(ModelRefused, match="is no alias") as caught:
        library.ingest(source, alias)
    assert caught.value.code == "bad_request"


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"size": 1}',
        '{"kind": "chat"}',
        '{"dims": 12}',
        '{"dims": true}',
        "[" * 70000,
        "[" * 60000,
    ],
)
def test_what_is_no_fake_model_is_refused_and_leaves_nothing(
    library: Library, source: Path, tmp_path: Path, text: str
) -> None:
    source.write_text(text)
    with pytest.raises(ModelRefused, match=r"small\.fake") as caught:
        library.ingest(source, "mini")
    assert caught.value.code == "artifact_invalid"
    assert library.get("mini") is None
    cache = tmp_path / "synapse" / "cache"
    assert [each for each in cache.rglob("*") if each.is_file()] == []


def test_a_folder_with_one_model_is_that_model(library: Library, source: Path) -> None:
    assert library.ingest(source.parent, "mini").name == "small"
    (source.parent / "second.gguf").write_bytes(b"")
    with pytest.raises(ModelRefused, match=r"2 models \(second.gguf, small.fake\)"):
        library.ingest(source.parent, "mini")
    with pytest.raises(ModelRefused, match="no such file"):
        library.ingest(source.parent / "absent", "mini")
    (source.parent / "empty").mkdir()
    with pytest.raises(ModelRefused, match=r"ends in \.gguf"):
        library.ingest(source.parent / "empty", "mini")


def test_configs_are_texts(library: Library, source: Path) -> None:
    bad: dict[str, str] = {"ctx_size": 5}  # type: ignore[dict-item]
    for config in (bad, {"k": "x" * 5000}, {str(key): "" for key in range(65)}):
        with pytest.raises(ModelRefused) as caught:
            library.ingest(source, "mini", config=config)
        assert caught.value.code == "config_invalid"
    with pytest.raises(ModelRefused, match="asis or fastest"):
        library.ingest(source, "mini", weights="f16")


def test_the_least_placement_share_is_the_manifests_and_no_key_of_a_load(
    library: Library, source: Path
) -> None:
    found = library.ingest(source, "mini", config={"min_placement_share": "0.8", "ctx_size": "64"})
    assert found.min_placement_share == 0.8
    assert found.config["ctx_size"] == "64"
    assert "min_placement_share" not in found.config
    assert Manifest.from_json(found.to_json()) == found
    for wrong in ("most", "1.5", "-1", "nan"):
        with pytest.raises(ModelRefused, match="from 0 to 1"):
            library.ingest(source, "mini", config={"min_placement_share": wrong})


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 2}', '{"version": 1, "models": {"a": {}}}'])
def test_damaged_aliases_are_not_written_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "synapse").mkdir()
    file = tmp_path / "synapse" / "models.json"
    file.write_text(text)
    with pytest.raises(AliasesDamaged, match=r"models\.json"):
        open_library(tmp_path)
    assert file.read_text() == text
