"""The root's name, read before the rest."""

import pytest

from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.builder.spec import RecipeRefused, root_name


@pytest.mark.parametrize(
    ("xml", "name"),
    [
        ('<recipe name="a"/>', "a"),
        ("<recipe/>", None),
        ('<recipe name=""/>', ""),
        ('<?xml version="1.0" encoding="utf-16"?><!-- c -->\n<RECIPE x="1" NAME="a">', "a"),
        ('<recipe name="a"><cli', "a"),
        ('<recipe name="a"><cli command="\0"/>', "a"),
        ('<!--' + "x" * 900_000 + '--><recipe name="a"/>', "a"),
        ('<recipe name="a">' + "<cli/>" * 2_000_000, "a"),
    ],
)  # fmt: skip
def test_the_name_is_read_and_nothing_else(xml, name):
    assert root_name(xml) == name


@pytest.mark.parametrize(
    ("xml", "line", "code"),
    [
        ("", 1, Code.INVALID_RECIPE),
        ("\n\nx", 3, Code.INVALID_RECIPE),
        ('<psySpec name="a"/>', 1, Code.INVALID_RECIPE),
        ('\n<!DOCTYPE recipe><recipe name="a"/>', 2, Code.INVALID_RECIPE),
        ('\n<recipe name="\ud800"/>', 2, Code.INVALID_RECIPE),
        ('<recipe name="a"', 1, Code.INVALID_RECIPE),
        ('<!--' + "x" * 1_100_000 + '--><recipe name="a"/>', 1, Code.TOO_LARGE),
        ('<recipe name="' + "x" * 1_100_000 + '"/>', 1, Code.TOO_LARGE),
    ],
)  # fmt: skip
def test_a_root_that_cannot_be_read_is_refused_with_its_line(xml, line, code):
    with pytest.raises(RecipeRefused) as caught:
        root_name(xml)
    assert (caught.value.problems[0].line, caught.value.code) == (line, code)
