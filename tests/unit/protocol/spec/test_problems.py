"""How problems are said: short, quoted, and with a suggestion that costs little whatever the names."""

import difflib

import pytest

from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.builder.spec.problems import (
    Collector,
    EnoughProblems,
    Problem,
    RecipeRefused,
    clip,
    quoted,
    suggestion,
)


def test_a_collector_stops_the_reading_when_it_is_full():
    problems = Collector("f", most=2)
    problems.add(1, None, None, "a")
    with pytest.raises(EnoughProblems):
        problems.add(2, None, None, "b")
    assert [problem.line for problem in problems.problems] == [1, 2]


@pytest.mark.parametrize(
    "text", ["", "a" * 20, "ü" * 10, "€" * 6, "a" * 21, "ü" * 11, "€" * 400, "a" * 10 + "😀" * 10]
)
def test_a_cut_text_fits_and_a_short_one_is_left_alone(text):
    cut = clip(text, 20)
    assert len(cut.encode()) <= 20
    assert cut == text or (cut.endswith("…") and text.startswith(cut[:-1]))
    assert (cut == text) == (len(text.encode()) <= 20)


def test_quoted_values_cannot_draw_on_a_terminal():
    assert quoted("a\x1b[2Jb\n\ud800") == r"'a\x1b[2Jb\n\ud800'"
    assert len(quoted("x" * 1000)) < 70


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("retyable", "retryable"),
        ("RETRYABLE", "retryable"),
        ("retri", "retries"),
        ("zzz", None),
        ("x" * 5000, None),
    ],
)
def test_the_nearest_name_is_suggested_or_none(name, said):
    expected = f"; did you mean '{said}'?" if said else ""
    assert suggestion(name, ["name", "retryable", "retries", "weight"]) == expected


def test_among_many_names_the_near_one_is_still_found():
    names = [f"step-{number}" for number in range(1000)]
    assert suggestion("stepp-77", [*names, "stop-77"]) in (
        "; did you mean 'step-77'?",
        "; did you mean 'stop-77'?",
    )


def test_only_a_few_of_many_names_are_compared(monkeypatch):
    compared = []
    real = difflib.get_close_matches

    def counting(word, possibilities, **how):
        compared.append(len(possibilities))
        return real(word, possibilities, **how)

    monkeypatch.setattr(difflib, "get_close_matches", counting)
    suggestion("n" * 50, ["n" * 49 + str(number) for number in range(1000)])
    suggestion("n", [str(number) for number in range(1000)])
    assert compared[0] <= 4
    assert compared[1] <= 32


def test_a_refusal_lists_its_problems():
    problems = [Problem("f", 1, "cli", "name", "a"), Problem("f", 2, None, None, "b")]
    error = RecipeRefused(problems, Code.INVALID_RECIPE)
    assert str(error) == "f:1: <cli> name=: a\nf:2: b"
    assert error.problems == tuple(problems)
    assert problems[1].entry() == {"line": 2, "message": "b"}
