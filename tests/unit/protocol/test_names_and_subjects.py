"""Names, identity and subjects: what is built parses back, what cannot be a token is refused by name."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.protocol import identity, names, storage, subjects
from bakemesh.protocol.errors import NameRefused, SubjectError
from bakemesh.protocol.subjects import ANY, TABLE, Own, Role, Travels

TOKEN = string.ascii_letters + string.digits + "_-"


def token(limit: int) -> st.SearchStrategy[str]:
    return st.text(alphabet=TOKEN, min_size=1, max_size=limit)


types = st.lists(token(20), min_size=1, max_size=5).map(".".join)


@given(token(32), token(24), token(64), token(128), types)
def test_a_subject_parses_back(mesh: str, node_id: str, party: str, key: str, type_: str) -> None:
    built = subjects.build(mesh, node_id, party, key, type_)
    assert subjects.parse(built) == subjects.Subject(mesh, node_id, party, key, type_)


@given(st.text(max_size=60))
def test_no_text_raises_anything_else(text: str) -> None:
    try:
        parsed = subjects.parse(text)
    except SubjectError:
        return
    assert str(parsed) == text


@pytest.mark.parametrize("character", [".", "*", ">", " ", "\x00", "é", "/", "$"])
def test_a_forbidden_character_is_named(character: str) -> None:
    with pytest.raises(NameRefused) as caught:
        names.check("Supervisor", f"night{character}ly")
    assert repr(character) in str(caught.value)
    assert "Supervisor" in str(caught.value)


@pytest.mark.parametrize(
    ("what", "limit"), [("NodeID", 24), ("Supervisor", 32), ("RecipeID", 128), ("alias", 64)]
)
def test_lengths(what: str, limit: int) -> None:
    assert names.check(what, "x" * limit) == "x" * limit
    with pytest.raises(NameRefused, match=str(limit)):
        names.check(what, "x" * (limit + 1))


@pytest.mark.parametrize("value", ["", None, 5, b"x"])
def test_what_is_no_name(value: object) -> None:
    with pytest.raises(NameRefused):
        names.check("NodeID", value)
    assert not names.is_valid("NodeID", value)


@given(token(32), token(32), st.integers(1, 10**18))
def test_a_minted_recipe_id_is_taken(supervisor: str, recipe: str, number: int) -> None:
    try:
        minted = identity.recipe_id(supervisor, recipe, number)
    except NameRefused:  # too long together
        assert len(f"{supervisor}-{recipe}-{number}") > 128
        return
    identity.check(identity.Identity(supervisor, recipe, minted, "n", "n"))
    assert minted.endswith(f"-{number}")


def test_two_bakes_may_share_the_string_but_not_the_key() -> None:
    one = identity.Identity("a", "b-c", identity.recipe_id("a", "b-c", 1), "n", "n")
    two = identity.Identity("a-b", "c", identity.recipe_id("a-b", "c", 1), "n", "n")
    assert one.recipe_id == two.recipe_id
    assert one.key != two.key


@pytest.mark.parametrize("number", [0, -1])
def test_n_counts_from_one(number: int) -> None:
    with pytest.raises(NameRefused):
        identity.recipe_id("s", "r", number)


def test_reverse_streams_are_written_by_builders_of_their_node_alone() -> None:
    for row in TABLE:
        if row.travels in (Travels.STATUS, Travels.DATA):
            assert row.publish == ((Role.BUILDER, Own.NODE),), row.type


def test_nobody_speaks_under_anothers_name() -> None:
    for row in TABLE:
        for _, own in row.publish:
            assert own is not Own.NOTHING, row.type


def test_data_is_never_subscribed_and_never_a_dashboards() -> None:
    (row,) = [row for row in TABLE if row.travels is Travels.DATA]
    assert row.subscribe == ()
    assert Role.DASHBOARD not in [role for role, _ in row.read]


def test_how_types_travel() -> None:
    assert subjects.travels("Psyclone.Builder.BakeControl.Pause") is Travels.REQUEST
    assert subjects.travels("Psyclone.Builder.BakeControl") is None
    assert subjects.travels("Psyclone.Builder.Bake.Data") is Travels.DATA
    assert subjects.travels("Robot.Button") is None


def test_names_of_stores() -> None:
    assert storage.status_stream("m", "b1") == "m-status-b1"
    assert storage.hub_data_stream("m") == "m-data"
    assert storage.claim_key("b1") == "b1.claim"
    assert storage.bucket_subject(storage.ids_bucket("m"), "s") == "$KV.m-ids.s"
    assert subjects.pattern("m", "T.*", party="p") == f"m.{ANY}.p.{ANY}.T.*"


@pytest.mark.parametrize("value", ["any", "hub", "", "a.b", None])
def test_ids_that_no_node_may_have(value: object) -> None:
    with pytest.raises(NameRefused):
        names.check_own_node_id(value)
    assert names.check_own_node_id("b1") == "b1"
