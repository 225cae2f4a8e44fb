"""Refused recipes in one line: what a test asks of load_recipe."""

from __future__ import annotations

from typing import Any

from bakemesh.protocol.builder.spec import Problem, RecipeRefused, load_recipe


def refused(xml: str, **how: Any) -> RecipeRefused:
    """The refusal of `xml`; fails where it is taken."""
    try:
        recipe = load_recipe(xml, **how)
    except RecipeRefused as error:
        return error
    raise AssertionError(f"taken: {recipe}")


def only(xml: str, **how: Any) -> Problem:
    """The one problem of `xml`; fails where there are more."""
    problems = refused(xml, **how).problems
    assert len(problems) == 1, [str(problem) for problem in problems]
    return problems[0]


def cli(attributes: str = "", inside: str = "") -> str:
    """A recipe of one `<cli>` step that runs `true`, with more attributes and children."""
    return f'<recipe><cli command="true" {attributes}>{inside}</cli></recipe>'
