"""GENERATE and GENERATE_STREAM on llama.cpp: exact text, grammars, stops, seeds, cancels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support import models
from support.engine import generate, load, stream
from support.workerhost import Host, i32

pytestmark = pytest.mark.engine
AB = models.characters("xyz ab")
FOREVER = models.characters("0")


@pytest.fixture(scope="module")
def chain(host: Host, folder: Path) -> str:
    """The model whose text is exact."""
    return load(host, folder / "alphabet.gguf")


@pytest.fixture(scope="module")
def babble(host: Host, folder: Path) -> str:
    """The model whose text depends on all that was before."""
    return load(host, folder / "babble.gguf")


def ended(got: dict[str, object]) -> tuple[object, ...]:
    """What a TEXT says."""
    assert got["type"] == "TEXT", got
    return got["text"], got["n_prompt"], got["n_gen"], got["finish_reason"]


def test_text_goes_on_until_the_model_ends_it(host: Host, chain: str) -> None:
    assert ended(generate(host, chain, AB)) == ("cdefghijklmnopqrstuvwxyz", 7, 24, "stop")


@pytest.mark.parametrize("most", [1, 5, 24])
def test_text_goes_on_until_max_tokens(host: Host, chain: str, most: int) -> None:
    assert ended(generate(host, chain, AB, most)) == ("cdefghijklmnopqrstuvwxyz"[:most], 7, most, "length")


def test_a_stream_tells_the_pieces_of_the_text(host: Host, chain: str) -> None:
    pieces, got = stream(host, chain, AB)
    assert pieces == list("cdefghijklmnopqrstuvwxyz")
    assert ended(got) == ("cdefghijklmnopqrstuvwxyz", 7, 24, "stop")


def test_a_character_of_several_tokens_is_told_whole(host: Host, chain: str) -> None:
    pieces, got = stream(host, chain, models.characters("#"))
    assert pieces == ["é", "!"]
    assert ended(got) == ("é!", 2, 3, "stop")
    assert ended(generate(host, chain, models.characters("#"), 1)) == ("", 2, 1, "length")


def test_generation_ends_where_the_context_is_full(host: Host, folder: Path) -> None:
    ref = load(host, folder / "alphabet.gguf", ctx_size="300")
    text, n_prompt, n_gen, why = ended(generate(host, ref, FOREVER, 5000))
    assert (n_prompt, n_gen, why) == (2, 299, "length")
    assert text == ("1234567890" * 30)[:299]
    got = generate(host, ref, [1] * 301)
    assert (got["type"], got["code"]) == ("ERR", "bad_request")
    assert "301" in got["msg"]
    assert "300" in got["msg"]
    assert ended(generate(host, ref, [*[1] * 299, FOREVER[1]], 5)) == ("1", 300, 1, "length")


# -- grammars


@pytest.mark.parametrize(
    ("grammar", "wanted"),
    [
        ('root ::= "yes" | "no"', {"yes", "no"}),
        ('root ::= [c-f]{4} "!"', {"cdef!"}),
        ('root ::= "é🙂"', {"é🙂"}),
    ],
)
def test_a_grammar_is_kept_to(host: Host, chain: str, grammar: str, wanted: set[str]) -> None:
    got = generate(host, chain, AB, grammar=grammar)
    text, _, _, why = ended(got)
    assert text in wanted
    assert why == "grammar_complete"
    pieces, streamed = stream(host, chain, AB, grammar=grammar)
    assert "".join(pieces) == streamed["text"] == text


def test_a_sampled_text_keeps_to_its_grammar_too(host: Host, babble: str) -> None:
    for seed in range(10):
        _, got = stream(
            host, babble, AB, grammar='root ::= [0-9]{3} ("-" [a-c]{2})?', temperature=2.0, seed=seed
        )
        number, _, letters = str(ended(got)[0]).partition("-")
        assert len(number) == 3
        assert number.isdigit()
        assert not letters or (len(letters) == 2 and set(letters) <= set("abc"))


@pytest.mark.parametrize(
    "grammar",
    [
        'root ::= "unclosed',
        "root ::= undefined",
        'other ::= "x"',
        " ",
        'root ::= root "a" | "b"',
        "\0",
        "x" * 300_000,
    ],
)
def test_a_grammar_that_cannot_be_read_is_refused_and_the_worker_lives(
    host: Host, chain: str, grammar: str
) -> None:
    got = generate(host, chain, AB, grammar=grammar)
    assert (got["type"], got["code"]) == ("ERR", "bad_request")
    assert "grammar" in got["msg"]
    assert ended(generate(host, chain, AB))[0] == "cdefghijklmnopqrstuvwxyz"


def test_a_json_schema_is_kept_to(host: Host, babble: str) -> None:
    schema = {
        "type": "object",
        "properties": {
            "kind": {"enum": ["cat", "dog"]},
            "legs": {"type": "integer", "minimum": 2, "maximum": 9},
        },
        "required": ["kind", "legs"],
        "additionalProperties": False,
    }
    _, got = stream(host, babble, AB, 200, json_schema=json.dumps(schema))
    text, _, _, why = ended(got)
    made = json.loads(str(text))
    assert why == "grammar_complete"
    assert made["kind"] in ("cat", "dog")
    assert 2 <= made["legs"] <= 9


@pytest.mark.parametrize(
    "schema", ["{", '{"$ref": "https://127.0.0.1:1/x.json"}', '{"type": "nothing"}', "7"]
)
def test_a_json_schema_that_cannot_become_a_grammar_is_refused(host: Host, chain: str, schema: str) -> None:
    _, got = stream(host, chain, AB, json_schema=schema)
    assert (got["type"], got["code"]) == ("ERR", "bad_request")
    assert "json_schema" in got["msg"]


# -- stops, sampling


@pytest.mark.parametrize(
    ("stop", "text", "count"),
    [
        (["hij"], "cdefg", 8),
        (["mm", "ij", "k"], "cdefgh", 8),
        (["c"], "", 1),
        (["nothing"], "cdefghijklmnopqrstuvwxyz", 24),
    ],
)
def test_a_stop_string_ends_the_text_right_before_it(
    host: Host, chain: str, stop: list[str], text: str, count: int
) -> None:
    pieces, got = stream(host, chain, AB, stop=stop)
    assert "".join(pieces) == text
    assert ended(got) == (text, 7, count, "stop")


def test_equal_seeds_give_equal_texts_and_others_others(host: Host, babble: str) -> None:
    def text(seed: int | None) -> str:
        fields = {} if seed is None else {"seed": seed}
        _, got = stream(host, babble, AB, 24, temperature=1.5, top_k=50, top_p=0.95, min_p=0.01, **fields)
        return str(ended(got)[0])

    assert text(1) == text(1)
    assert len({text(seed) for seed in range(5)}) > 1
    assert len({text(None) for _ in range(5)}) > 1


def test_temperature_zero_is_greedy(host: Host, babble: str) -> None:
    greedy = ended(generate(host, babble, AB, 24))
    _, got = stream(host, babble, AB, 24, temperature=0, top_k=40, seed=5)
    assert ended(got) == greedy
    _, got = stream(host, babble, AB, 24, temperature=5.0, top_k=1, seed=5)
    assert ended(got) == greedy


@pytest.mark.parametrize(
    "fields", [{"temperature": -1.0}, {"top_p": 1.5}, {"grammar": 'root ::= "a"', "json_schema": "{}"}]
)
def test_options_that_mean_nothing_are_refused(host: Host, chain: str, fields: dict[str, object]) -> None:
    _, got = stream(host, chain, AB, **fields)
    assert (got["type"], got["code"]) == ("ERR", "bad_request")


def test_an_encoder_makes_no_text(host: Host, folder: Path) -> None:
    got = generate(host, load(host, folder / "mean.gguf"), models.words("the cat"))
    assert (got["type"], got["code"]) == ("ERR", "bad_request")
    assert "bert" in got["msg"]


# -- cancel


def test_a_cancelled_generation_ends_with_the_text_so_far(host: Host, chain: str) -> None:
    req_id = host.ask_only("GENERATE_STREAM", i32(*FOREVER), model_ref=chain, max_tokens=2000)
    pieces = [host.recv()["text"] for _ in range(5)]
    host.send({"type": "CANCEL", "req_id": "c1", "target": req_id})
    while (got := host.recv())["type"] == "TOKEN":
        pieces.append(got["text"])
    text, _, count, why = ended(got)
    assert (text, why) == ("".join(pieces), "cancelled")
    assert 5 <= int(str(count)) < 2000
    assert ended(generate(host, chain, AB))[0] == "cdefghijklmnopqrstuvwxyz"


def test_a_prefill_is_cancelled_in_its_middle(host: Host, folder: Path, tmp_path: Path) -> None:
    long = 60_000
    ref = load(host, models.alphabet(tmp_path / "long.gguf", context=65_536), ctx_size="0")
    req_id = host.ask_only("GENERATE", i32(*[FOREVER[1]] * long), model_ref=ref, max_tokens=5)
    host.send({"type": "CANCEL", "req_id": "c2", "target": req_id})
    got = host.recv()
    assert got["req_id"] == req_id
    assert ended(got) == ("", long, 0, "cancelled")
    assert ended(generate(host, ref, AB))[0] == "cdefghijklmnopqrstuvwxyz"
