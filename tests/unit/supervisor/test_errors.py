"""Errors say what was wrong, where, and what would be right."""

from __future__ import annotations

from bakemesh.protocol.builder.messages import Result
from bakemesh.supervisor.errors import AmbiguousRecipeID, RecipeRejected


def test_a_refused_recipe_lists_every_problem_with_its_place() -> None:
    result = Result(
        verb="Recipe",
        accepted=False,
        code="invalid_recipe",
        summary="2 problems",
        recipe_id="nightly-index-1",
        problems=[
            {"line": 3, "element": "cli", "attribute": "retyable", "message": "did you mean retryable?"},
            {"line": 9, "element": "shell", "attribute": None, "message": "no such element"},
        ],
    )
    error = RecipeRejected(result)
    assert error.code == "invalid_recipe"
    assert str(error).splitlines() == [
        "recipe nightly-index-1 was refused, invalid_recipe: 2 problems",
        "  line 3 <cli> retyable=: did you mean retryable?",
        "  line 9 <shell>: no such element",
    ]


def test_an_ambiguous_id_lists_its_candidates() -> None:
    error = AmbiguousRecipeID("a-b-c-1", {("a-b", "n1"), ("a", "n2")})
    assert "supervisor 'a' on node n2, supervisor 'a-b' on node n1" in str(error)
