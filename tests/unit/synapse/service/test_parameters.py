"""Parameters as one value, or every problem at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.synapse.parameters import NAMES, GivenModel, Parameters, ParametersRefused, is_alias, read


def test_nothing_given_is_a_module_of_its_own_workers() -> None:
    assert read({}) == Parameters()
    assert Parameters().own_lanes
    assert not Parameters().bus_lanes


def test_everything_can_be_given() -> None:
    made = read(
        {
            "lanes": "both",
            "workers": "3",
            "weights": "fastest",
            "engine": "fake",
            "memory-mib": 512,
            "max-queue-ms": 250,
            "telemetry": "otlp",
            "model.chat": "/m/chat.gguf",
            "model.chat.ctx_size": 4096,
            "model.mini": "/m/mini",
        }
    )
    assert made == Parameters(
        lanes="both",
        workers=3,
        weights="fastest",
        engine="fake",
        memory_mib=512,
        max_queue_ms=250,
        telemetry="otlp",
        models=(
            GivenModel(alias="chat", path=Path("/m/chat.gguf"), config={"ctx_size": "4096"}),
            GivenModel(alias="mini", path=Path("/m/mini")),
        ),
    )
    assert made.own_lanes
    assert made.bus_lanes


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("worker", 2, "did you mean 'workers'"),
        ("modell.chat", "/x", "there are"),
        ("lanes", "locl", "did you mean 'local'"),
        ("workers", 0, "from 1 to"),
        ("workers", "two", "from 1 to"),
        ("workers", 1.5, "from 1 to"),
        ("memory-mib", -1, "from 64 to"),
        ("model.", "/x", "an alias is"),
        ("model.-", "/x", "but not '-'"),
        ("model.a b", "/x", "an alias is"),
        ("model.chat", "relative.gguf", "absolute path"),
        ("model.chat", 3, "absolute path"),
    ],
)
def test_a_problem_says_what_would_be_right(name: str, value: int | float | str, said: str) -> None:
    with pytest.raises(ParametersRefused) as caught:
        read({name: value})
    (problem,) = caught.value.problems
    assert said in problem
    assert repr(name) in problem


def test_a_key_of_a_model_that_is_not_given_is_told_with_the_nearest_one() -> None:
    with pytest.raises(ParametersRefused, match="did you mean 'chat'"):
        read({"model.chat": "/x", "model.chatt.ctx_size": "1"})
    with pytest.raises(ParametersRefused, match="no runtime key"):
        read({"model.chat": "/x", "model.chat.CTX-SIZE": "1"})


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ParametersRefused) as caught:
        read({"worker": 1, "lanes": "none", "engine": "x", "model.a": "b"})
    assert len(caught.value.problems) == 4


@given(st.dictionaries(st.sampled_from([*NAMES, "model.a", "model.a.k", "x"]), st.text() | st.integers()))
def test_whatever_is_given_is_taken_or_refused(given: dict[str, int | float | str]) -> None:
    try:
        made = read(given)
    except ParametersRefused as refused:
        problems = refused.problems
    else:
        problems = ()
        assert all(is_alias(each.alias) for each in made.models)
        assert "x" not in given
    assert len(problems) <= len(given)
