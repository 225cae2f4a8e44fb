"""One class a code, and what an error object says is kept."""

from __future__ import annotations

import pytest

from bakemesh.inference import errors
from bakemesh.inference.errors import InferenceError, OtherFailure, raised
from bakemesh.protocol.inference.errors import Code, ErrorObject, error_of


@pytest.mark.parametrize("code", list(Code))
def test_every_code_has_a_class_of_its_own(code: Code):
    error = raised(error_of(code, "what, where, what would be right"), "a1")
    assert code == type(error).CODE
    assert str(error) == "node a1: what, where, what would be right"
    assert sum(code == getattr(each, "CODE", None) for each in vars(errors).values()) == 1 + (
        code is Code.MODULE_RESTARTED  # NodeGone is one
    )


def test_what_it_says_is_kept():
    said = ErrorObject("queue_full", "m", "transient", False, 1500, {"stage": "x"})
    error = raised(said)
    assert (error.code, error.transient, error.safe_to_retry, error.retry_after_s, error.details) == (
        "queue_full",
        True,
        False,
        1.5,
        {"stage": "x"},
    )
    assert error.error is said


def test_a_code_of_a_later_version_is_taken_by_its_class():
    for kind, transient in (("transient", True), ("permanent", False)):
        error = raised(ErrorObject("brand_new", "m", kind))
        assert type(error) is OtherFailure
        assert error.transient is transient
        assert error.code == "brand_new"


def test_the_tree_of_the_docstring_is_the_tree():
    shown = [line.strip("├─└│ ").split()[0] for line in (errors.__doc__ or "").splitlines() if "─ " in line]
    there = [
        name
        for name, each in vars(errors).items()
        if isinstance(each, type) and issubclass(each, InferenceError) and each is not InferenceError
    ]
    assert sorted(shown) == sorted(there)
