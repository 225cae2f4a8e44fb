"""The root's name, read before the rest."""

import pytest

from bakemesh.protocol.builder.spec import root_name


@pytest.mark.parametrize(
    ("xml", "name"),
    [
        ('<recipe name="a"/>', "a"),
        ("<recipe/>", ""),
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
    "xml",
    [
        "",
        "no xml",
        '<psySpec name="a"/>',
        '<!DOCTYPE recipe><recipe name="a"/>',
        '<recipe name="\ud800"/>',
        '<recipe name="a"',
        '<recipe name="a" name="b"/>',
        '<!--' + "x" * 1_100_000 + '--><recipe name="a"/>',
        '<recipe name="' + "x" * 1_100_000 + '"/>',
    ],
)  # fmt: skip
def test_a_root_that_cannot_be_read_has_none(xml):
    assert root_name(xml) is None
