"""Our ids against those of llama.cpp's own tokenizer, on real vocabularies of every kind that is listed.

WordPiece is held against the model's own tokenizer.json, that it was trained with; llama.cpp is another one
there for texts that `DIFFERENT` describes, and the same for all others.
"""

from __future__ import annotations

import functools
import unicodedata
from pathlib import Path

import pytest

from bakemesh.synapse.models.building import beside, build
from bakemesh.synapse.models.errors import ModelRefused
from bakemesh.synapse.models.header import read
from bakemesh.synapse.models.kinds import BYTE_LEVEL, SINGLE, Vocabulary, vocabulary
from bakemesh.synapse.models.manifest import TokenizerFacts
from bakemesh.synapse.models.tokenizing import Tokenizer
from bakemesh.synapse.models.vocabulary import encoder, load
from support import corpus, gemma, llama_tokenizer, minilm, packages, smollm, vocabularies
from support.engine import need_engine

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]
LINES = corpus.lines()
LIMIT = 1 << 20
KINDS = {name: f"gpt2/{name}" for name in BYTE_LEVEL} | {
    "llama-spm": "llama/default",
    "gemma": "llama/default",
}
# Characters that llama.cpp takes otherwise than BERT: three that are spaces to it and no text to BERT, one
# that it does not know, and its own mark for the beginning of a word.
DIFFERENT = "\x0b\x0c\x85\u0a76\u2581"


@pytest.fixture(scope="module", autouse=True)
def _engine() -> None:
    need_engine()


@functools.cache
def path_of(name: str) -> Path:
    fetch = {"gemma": gemma.gguf, "smollm": smollm.gguf, "minilm": lambda: minilm.once() / minilm.FILE}
    return packages.or_skip(fetch.get(name, lambda: vocabularies.gguf(name)))


@functools.cache
def known(name: str) -> Vocabulary:
    return vocabulary(read(path_of(name)))


@functools.cache
def tokenizer(name: str) -> Tokenizer:
    words = known(name)
    facts = TokenizerFacts(
        model=words.model,
        pre=words.pre,
        source="gguf",
        before=words.before,
        behind=words.behind,
        pair=words.pair,
        control=words.control,
    )
    return Tokenizer(encoder(build(words)), facts, LIMIT)


def numbers(ids: bytes) -> list[int]:
    return memoryview(ids).cast("i").tolist()


def first_difference(
    name: str, ours: list[list[int]], theirs: list[list[int]], lines: list[str] = LINES
) -> str | None:
    """For a message: the line, and the words from where they part."""
    assert len(ours) == len(theirs) == len(lines)
    for line, mine, other in zip(lines, ours, theirs, strict=True):
        if mine != other:
            at = next((n for n, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b), 0)
            said = [[known(name).tokens[token] for token in ids[at : at + 8]] for ids in (mine, other)]
            return f"{line!r}: {said[0]}, llama.cpp: {said[1]}"
    return None


def test_every_listed_kind_is_tried() -> None:
    assert set(KINDS.values()) | {"bert/default"} >= {f"gpt2/{name}" for name in BYTE_LEVEL} | {
        f"{model}/default" for model in SINGLE
    }
    assert len(LINES) >= 4000


@pytest.mark.parametrize("name", KINDS)
def test_the_kind_is_what_it_is_listed_as(name: str) -> None:
    assert f"{known(name).model}/{known(name).pre}" == KINDS[name]


@pytest.mark.parametrize("name", KINDS)
def test_texts_have_the_same_ids(name: str) -> None:
    theirs = llama_tokenizer.ids(path_of(name), LINES)
    ours = [numbers(tokenizer(name).plain_ids(line)) for line in LINES]
    assert first_difference(name, ours, theirs) is None


@pytest.mark.parametrize("name", KINDS)
def test_rendered_chats_have_the_same_ids(name: str) -> None:
    """Special tokens parsed, and what the model wants before and behind."""
    control = [*known(name).control, *known(name).user[:50]]
    lines = [
        f"{control[n % len(control)]}{line}{control[(7 * n) % len(control)]} {line[:5]}"
        for n, line in enumerate(LINES)
    ]
    theirs = llama_tokenizer.ids(path_of(name), lines, add_special=True, parse=True)
    ours = [numbers(tokenizer(name).prompt_ids(line, special=True)) for line in lines]
    assert first_difference(name, ours, theirs, lines) is None


@pytest.mark.parametrize("name", KINDS)
def test_embeddings_have_the_same_special_tokens(name: str) -> None:
    lines = [line for line in LINES[:300] if tokenizer(name).plain_ids(line)]
    assert len(lines) > 250
    theirs = llama_tokenizer.ids(path_of(name), lines, add_special=True)
    ids, counts = tokenizer(name).embed_ids(lines)
    assert numbers(ids) == [token for line in theirs for token in line]
    assert counts == [len(line) for line in theirs]


def test_a_byte_and_a_surrogate_that_are_no_text_do_no_harm() -> None:
    for name in KINDS:
        assert numbers(tokenizer(name).plain_ids("a\ud800b\x00")) == numbers(
            tokenizer(name).plain_ids("a?b\x00")
        )


# -- WordPiece


def as_bert(line: str) -> bool:
    """Whether llama.cpp takes the line as BERT does: it drops the vowels of Hangul and of Indian scripts, and
    has no longest word."""
    parts = unicodedata.normalize("NFD", line)
    return not (
        any("\uac00" <= each <= "\ud7a3" or each in DIFFERENT for each in line)
        or any(unicodedata.category(each) in ("Mc", "Me") for each in parts)
        or any(len(word) > 100 for word in line.split())
    )


def test_word_pieces_are_those_of_the_models_own_tokenizer() -> None:
    official = encoder(load(minilm_folder() / "tokenizer.json"))
    ours = tokenizer("minilm")
    assert (
        first_difference("minilm", [numbers(ours.plain_ids(line)) for line in LINES], official(LINES)) is None
    )


@pytest.mark.parametrize("name", ["minilm", "bert-bge"])
def test_word_pieces_are_llamas_where_it_does_as_bert(name: str) -> None:
    lines = [line for line in LINES if line and as_bert(line)]
    assert len(lines) > 1500
    theirs = llama_tokenizer.ids(path_of(name), lines, add_special=True)
    ids, counts = tokenizer(name).embed_ids(lines)
    rest = iter(numbers(ids))
    ours = [[next(rest) for _ in range(count)] for count in counts]
    assert first_difference(name, ours, theirs, lines) is None


@pytest.mark.parametrize("line", ["한국어", "को", "x" * 101])
def test_what_is_said_of_llama_is_true(line: str) -> None:
    """Where it does not fail any more, `as_bert` is to be loosened."""
    assert not as_bert(line)
    (theirs,) = llama_tokenizer.ids(path_of("minilm"), [line])
    assert theirs != numbers(tokenizer("minilm").plain_ids(line))


def test_a_tokenizer_beside_the_model_has_to_be_its_own() -> None:
    words = known("minilm")
    found = beside(minilm_folder() / "tokenizer.json", words)
    assert encoder(found)(LINES[:200]) == encoder(build(words))(LINES[:200])
    with pytest.raises(ModelRefused, match="is not this model's"):
        beside(minilm_folder() / "tokenizer.json", known("gpt-2"))
    other = known("bert-bge")
    swapped = [*other.tokens[:-2], other.tokens[-1], other.tokens[-2]]
    object.__setattr__(other, "tokens", swapped)
    known.cache_clear()
    with pytest.raises(ModelRefused, match="in the model"):
        beside(minilm_folder() / "tokenizer.json", other)


def minilm_folder() -> Path:
    return path_of("minilm").parent
