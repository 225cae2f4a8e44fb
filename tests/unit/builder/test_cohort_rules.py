"""Whether a cohort message is for this node, and what its Result says."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.builder.bake.state import Refused
from bakemesh.builder.cohorts import check, members_of, told


@given(st.frozensets(st.text(max_size=8)))
def test_members_as_they_are_kept(members: frozenset[str]) -> None:
    assert members_of(json.dumps(sorted(members)).encode()) == members


@pytest.mark.parametrize("value", [None, b"", b"{", b'"web"', b'{"web": 1}', b"[1]", b"null"])
def test_what_is_no_list_of_names_is_no_cohort(value: bytes | None) -> None:
    assert members_of(value) is None


@pytest.mark.parametrize(
    ("cohort", "key", "members", "code"),
    [
        ("web", "other", frozenset({"alpha"}), "malformed_message"),
        ("web", "web", None, "unknown_cohort"),
        ("web", "web", frozenset({"beta"}), "unknown_cohort"),
        ("web", "web", frozenset[str](), "unknown_cohort"),
    ],
)
def test_refusals(cohort: str, key: str, members: frozenset[str] | None, code: str) -> None:
    with pytest.raises(Refused) as refused:
        check(cohort, key, "alpha", members)
    assert refused.value.code == code


def test_a_member_is_told() -> None:
    check("web", "web", "alpha", frozenset({"alpha", "beta"}))


def test_how_many_took_it() -> None:
    assert told(0, {}) == "no component here asks for cohort messages"
    assert told(2, {}) == "taken by 2 of 2 components"
    assert told(1, {"slow": "silent"}) == "taken by 1 of 2 components; slow: silent"
