"""Words of a command line: those of shlex, and in time."""

from __future__ import annotations

import shlex
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bakemesh.protocol.builder.spec.words import split

LINES = st.text(alphabet="ab \t\n\r'\"\\$é\u00a0\v#;", max_size=30)


@given(LINES)
@example("")
@example("a 'b c' \"d \\\" e\" f\\ g ''")
@example('"a\\b\\\\c\\$"')
def test_the_words_are_those_of_shlex(line: str) -> None:
    try:
        expected = shlex.split(line)
    except ValueError:
        with pytest.raises(ValueError, match="No "):
            split(line)
    else:
        assert split(line) == expected


@pytest.mark.parametrize("piece", ["x", "\\x", "''", '"x"', "'", '"', "\\", ' "\\', '"\\""'])
def test_any_line_is_split_in_one_pass(piece: str) -> None:
    """Nested loops would not come back within the test's time."""
    line = piece * (2**17 // len(piece))
    with suppress(ValueError):
        split(line)
