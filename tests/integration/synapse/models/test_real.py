"""What the engine of the pinned version really has, and real models and templates."""

from __future__ import annotations

import datetime
import functools
import json
import re
import subprocess
from pathlib import Path

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from bakemesh.artifacts import Cache
from bakemesh.synapse.models import Library
from bakemesh.synapse.models.architectures import OTHERS, TEXT
from bakemesh.synapse.models.errors import TextRefused
from bakemesh.synapse.models.templates import ChatTemplate
from support import gemma, llama_tokenizer, minilm, packages, vocabularies
from support.engine import need_engine

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]
CHAT = [
    {"role": "user", "content": "Hello <|im_end|> \n there"},
    {"role": "assistant", "content": "Hi."},
    {"role": "user", "content": "More?"},
]
TEXTS = {"bos_token": "<s>", "eos_token": "</s>"}


@pytest.fixture(scope="module", autouse=True)
def _engine() -> None:
    need_engine()


def test_the_engine_has_every_architecture_that_is_listed(tmp_path: Path) -> None:
    assert not llama_tokenizer.known(["no-such-thing", "nor-this"], tmp_path)
    listed = sorted(TEXT | OTHERS.keys())
    assert llama_tokenizer.known(listed, tmp_path) == set(listed)


def test_real_templates_render_as_they_do_without_bounds() -> None:
    found = packages.or_skip(vocabularies.folder)
    assert found
    compared = 0
    for path in vocabularies.templates():
        source = path.read_text()
        if "firefunction" in path.name:  # it is of no use without functions
            with pytest.raises(TextRefused, match="'functions' is undefined"):
                ChatTemplate(source, TEXTS).render(CHAT)
            continue
        ours = ChatTemplate(source, TEXTS).render(CHAT)
        plain = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        plain.filters["tojson"] = functools.partial(json.dumps, ensure_ascii=False)
        plain.globals["raise_exception"] = lambda message: pytest.fail(message)
        plain.globals["strftime_now"] = lambda pattern: datetime.datetime.now().strftime(pattern)
        if re.search(r"{%-?\s*generation", source):
            continue  # a tag of its own
        wanted = plain.from_string(source).render(messages=CHAT, add_generation_prompt=True, **TEXTS)
        assert ours == wanted, path.name
        compared += 1
    assert compared >= 60


def test_minilm_with_its_own_tokenizer_beside(tmp_path: Path) -> None:
    folder = packages.or_skip(minilm.once)
    library = Library(tmp_path, Cache(tmp_path / "cache"))
    manifest = library.ingest(folder, "mini")
    assert (manifest.kind, manifest.pooling, manifest.dims, manifest.limit) == ("embed", "mean", 384, 512)
    assert (manifest.weights, manifest.tokenizer.source) == ("f16", "tokenizer.json")
    model = library.get("mini")
    assert model is not None
    ids, counts = model.tokenizer.embed_ids(minilm.TEXTS[:2])
    (theirs,) = llama_tokenizer.ids(folder / minilm.FILE, [minilm.TEXTS[0]], add_special=True)
    assert memoryview(ids).cast("i").tolist()[: counts[0]] == theirs


def test_gemma_with_a_template_beside(tmp_path: Path) -> None:
    packages.or_skip(gemma.gguf)
    (tmp_path / "gemma").mkdir()
    library = Library(tmp_path / "library", Cache(tmp_path / "library" / "cache"))
    manifest = library.ingest(gemma.with_template(tmp_path / "gemma"), "gemma")
    assert (manifest.kind, manifest.architecture, manifest.dims) == ("generate", "gemma3", 640)
    assert (manifest.vocabulary, manifest.context, manifest.limit) == (262_144, 32_768, 4096)
    model = library.get("gemma")
    assert model is not None
    chat = model.render([{"role": "user", "content": " Hello <end_of_turn>"}])
    assert chat == "<start_of_turn>user\nHello <end_of_turn><end_of_turn>\n<start_of_turn>model\n"
    ids = memoryview(model.tokenizer.prompt_ids(chat, special=True)).cast("i").tolist()
    assert ids == llama_tokenizer.ids(gemma.gguf(), [chat], add_special=True, parse=True)[0]
    assert ids.count(2) == 1


def test_a_fetched_file_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made: list[Path] = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "file").write_text("x")

    assert packages.once("thing", make) == packages.once("thing", make)
    assert len(made) == 1

    def fail(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise subprocess.SubprocessError("no registry")

    with pytest.raises(subprocess.SubprocessError):
        packages.once("other", fail)
    assert not (packages.cache() / "other").exists()
