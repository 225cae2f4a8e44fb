"""JSON Schemas to grammars: ranges are exact, what is not honoured is refused by name."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.worker.engines.llama.schema import SchemaRefused, _integers, _numbers, grammar

NUMBERS = st.integers(-12_000, 12_000)
DIGITS = "(?:[0-9]{1,15})"


def regex(rule: str) -> re.Pattern[str]:
    """A rule of literals, classes and repetitions as a regular expression."""
    text = re.sub(r'"([^"]*)"', lambda found: re.escape(found[1]), rule)
    return re.compile(text.replace("digits", DIGITS).replace(" ", ""))


@given(NUMBERS, NUMBERS, NUMBERS)
def test_whole_numbers_of_a_range_and_no_others(low: int, high: int, number: int) -> None:
    low, high = min(low, high), max(low, high)
    found = regex(_integers(low, high))
    for each in {number, low, high, low - 1, high + 1, 0}:
        assert bool(found.fullmatch(str(each))) == (low <= each <= high)
    assert not found.fullmatch("-0")
    assert not found.fullmatch(f"0{abs(number)}")


@given(NUMBERS, NUMBERS, st.decimals(-12_000, 12_000, places=2))
def test_numbers_of_a_range_and_no_others(low: int, high: int, number: Any) -> None:
    low, high = min(low, high), max(low, high)
    found = regex(_numbers(low, high))
    text = f"{number:.2f}"
    if found.fullmatch(text):
        assert low <= float(text) <= high
    elif not text.startswith("-0") and not text.endswith(".00"):
        assert not low < number < high
    for each in (low, high):
        assert found.fullmatch(str(each))


REFUSED = {
    "a keyword": ({"type": "string", "pattern": "^a$"}, "pattern"),
    "a keyword without a type": ({"multipleOf": 3}, "multipleOf"),
    "a keyword of another type": ({"type": "string", "minimum": 3}, "minimum"),
    "beside $ref": ({"$ref": "#/$defs/a", "minLength": 1, "$defs": {"a": {}}}, "minLength"),
    "a strange $ref": ({"$ref": "https://127.0.0.1/x"}, "does not point into"),
    "a $ref to nothing": ({"$ref": "#/$defs/a"}, "points to nothing"),
    "a type": ({"type": "nothing"}, "type must be of"),
    "an unknown format": ({"type": "string", "format": "email"}, "email"),
    "required without a property": ({"type": "object", "required": ["a"]}, "'a'"),
    "oneOf that overlaps": ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf"),
    "allOf of two": ({"allOf": [{}, {}]}, "allOf"),
    "false": ({"type": "array", "items": {"not": {}}}, "not"),
    "an empty range": ({"type": "integer", "minimum": 3, "maximum": 2}, "from 3 to 2"),
    "half a bound": ({"type": "number", "minimum": 0.5}, "whole number"),
    "nothing": (False, "allows nothing"),
    "a number": (7, "no schema"),
    "infinite": ({"const": float("inf")}, "float"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_honoured_is_refused_by_name(name: str) -> None:
    schema, word = REFUSED[name]
    with pytest.raises(ValueError, match=re.escape(word)):
        grammar(schema)


def test_a_schema_that_is_nested_without_end_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(5000):
        schema = {"type": "array", "items": schema}
    with pytest.raises(SchemaRefused, match="deeply"):
        grammar(schema)
