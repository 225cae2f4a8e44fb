"""The verdict on a recipe: every code, and that the first that applies is the answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bakemesh.builder.judge import Bake, Facts, Forward, Refuse, judge
from bakemesh.builder.steps import SUPPORTED
from bakemesh.protocol.builder.spec import Limits
from bakemesh.protocol.envelope import Envelope
from bakemesh.protocol.subjects import RECIPE, Subject

XML = '<recipe name="r"><cli command="true"/></recipe>'
FACTS = Facts(
    node="alpha",
    node_id="a1",
    accept_forwarded=True,
    draining=False,
    now=1_000_000_000,
    max_payload=8 * 2**20,
    used=lambda party, key: False,
    wait_s=lambda issuer: 0.0,
    refusal_wait_s=lambda party: 0.0,
    supported=SUPPORTED,
    limits=Limits(),
)


def ask(
    facts: Facts = FACTS, *, party: str = "boss", key: str = "boss-r-1", created: int = 0, **changes: Any
):  # type: ignore[no-untyped-def]
    entries = {
        "Supervisor": "boss",
        "Recipe": "r",
        "RecipeID": "boss-r-1",
        "Node": "alpha",
        "NodeID": "a1",
        "RecipeSpec": XML,
        **changes,
    }
    entries = {name: value for name, value in entries.items() if value is not None}
    subject = Subject("psyclone", "a1", party, key, RECIPE)
    return judge(subject, Envelope(RECIPE, b"i" * 16, created, "boss@x", entries), facts)


def code(*args: Any, **kwargs: Any) -> str:
    verdict = ask(*args, **kwargs)
    assert isinstance(verdict, Refuse)
    return str(verdict.code)


def test_a_good_recipe_is_baked() -> None:
    verdict = ask()
    assert isinstance(verdict, Bake)
    assert [step.KIND for step in verdict.recipe.steps] == ["cli"]


def test_entry_keys_have_no_case() -> None:
    assert isinstance(ask(RecipeSpec=None, recipespec=XML, NodeID=None, NODEID="a1"), Bake)


@pytest.mark.parametrize("entry", ["Supervisor", "Recipe", "RecipeID", "Node", "NodeID"])
def test_a_missing_identity_entry_is_wrong_identity(entry: str) -> None:
    verdict = ask(**{entry: None})
    assert isinstance(verdict, Refuse)
    assert verdict.code == "wrong_identity"
    assert entry in verdict.summary


@pytest.mark.parametrize(
    "changes",
    [
        {"RecipeSpec": None},
        {"RecipeSpec": b"<recipe/>"},
        {"RecipeSpec": 7},
        {"Supervisor": 7},
        {"params": "no map"},
        {"recipespec": "twice"},
    ],
)
def test_wrong_values_are_malformed(changes: dict[str, Any]) -> None:
    assert code(**changes) == "malformed_message"


@pytest.mark.parametrize(
    "changes",
    [
        {"RecipeID": "boss-r-2"},
        {"RecipeID": "boss-r-1", "Recipe": "other"},
        {"RecipeID": "x"},
        {"Supervisor": "b" * 33},
        {"Node": "no node"},
        {"NodeID": "any"},
        {"NodeID": "hub"},
    ],
)
def test_identity_that_does_not_hold_together(changes: dict[str, Any]) -> None:
    assert code(**changes) == "wrong_identity"


def test_the_supervisors_name_stands_in_for_a_missing_recipe_name() -> None:
    xml = '<recipe><cli command="true"/></recipe>'
    assert isinstance(ask(Recipe="boss", RecipeID="boss-boss-1", key="boss-boss-1", RecipeSpec=xml), Bake)


def test_another_party_is_unauthorised_and_keeps_the_id_free() -> None:
    verdict = ask(party="mallory")
    assert isinstance(verdict, Refuse)
    assert (verdict.code, verdict.tell, verdict.uses_id) == ("unauthorised", True, False)
    assert verdict.identity.supervisor == "mallory"


def test_a_recipe_for_another_node_is_forwarded() -> None:
    assert ask(NodeID="b1") == Forward("b1")


def test_a_forwarded_recipe_is_taken_once_and_never_sent_on() -> None:
    assert isinstance(ask(party="builder-z"), Bake)
    assert code(party="builder-z", NodeID="b1") == "wrong_identity"
    assert code(replace(FACTS, accept_forwarded=False), party="builder-z") == "unauthorised"


def test_a_refused_forward_is_told_to_its_supervisor_and_uses_none_of_his_ids_up() -> None:
    closed = replace(FACTS, accept_forwarded=False)
    for facts, changes in (
        (closed, {}),
        (FACTS, {"NodeID": "b1"}),
        (closed, {"RecipeSpec": 7}),
        (closed, {"Node": None}),
    ):
        verdict = ask(facts, party="builder-z", **changes)
        assert isinstance(verdict, Refuse)
        assert (verdict.party, verdict.identity.supervisor) == ("boss", "boss"), changes
        assert (verdict.tell, verdict.uses_id) == (True, False), changes
    # Let in, it is as good as the Supervisor's own.
    verdict = ask(party="builder-z", RecipeSpec="<recipe name='r'/>")
    assert isinstance(verdict, Refuse)
    assert (verdict.code, verdict.party, verdict.uses_id) == ("invalid_recipe", "boss", True)
    # Where nobody can be told by name, the forwarder is; and on a bake that is known, nobody.
    nameless = ask(party="builder-z", Supervisor="no name")
    assert isinstance(nameless, Refuse)
    assert (nameless.party, nameless.tell) == ("builder-z", True)
    known = replace(closed, used=lambda party, key: (party, key) == ("boss", "boss-r-1"))
    verdict = ask(known, party="builder-z")
    assert isinstance(verdict, Refuse)
    assert not verdict.tell


def test_a_used_recipe_id_gets_a_result_alone() -> None:
    verdict = ask(replace(FACTS, used=lambda party, key: True))
    assert isinstance(verdict, Refuse)
    assert (verdict.code, verdict.tell, verdict.uses_id) == ("duplicate_recipe_id", False, False)


def test_too_large_comes_before_what_is_wrong_inside() -> None:
    assert code(RecipeSpec="<recipe name='r'>" + "x" * 2**21) == "too_large"


def test_expiry_counts_from_the_message() -> None:
    assert code(expires=999_999_999) == "expired"
    xml = '<recipe name="r" expires-ms="1000"><cli command="true"/></recipe>'
    assert code(RecipeSpec=xml, created=FACTS.now - 2_000_000) == "expired"
    assert isinstance(ask(RecipeSpec=xml, created=FACTS.now - 500_000), Bake)
    ahead = ask(RecipeSpec=xml, created=2**63 - 1)
    assert isinstance(ahead, Bake)
    assert ahead.expires == 2**63 - 1, "no number in a message, or in the journal, is larger"


def test_an_invalid_recipe_lists_its_problems() -> None:
    verdict = ask(RecipeSpec='<recipe name="r"><cli comand="a"/><cil command="b"/></recipe>')
    assert isinstance(verdict, Refuse)
    assert verdict.code == "invalid_recipe"
    assert len(verdict.problems) >= 2
    assert "command" in verdict.summary
    assert verdict.uses_id


def test_kinds_of_steps_that_are_not_run_here_are_refused_by_name() -> None:
    facts = replace(FACTS, supported=frozenset({"cli"}))
    assert code(facts, RecipeSpec='<recipe name="r"><attach module="m"/></recipe>') == "unsupported_step"


def test_draining_and_rate_keep_the_recipe_free_to_come_again() -> None:
    draining = ask(replace(FACTS, draining=True))
    limited = ask(replace(FACTS, wait_s=lambda issuer: 1.5))
    assert isinstance(draining, Refuse)
    assert isinstance(limited, Refuse)
    assert (draining.code, draining.tell, draining.uses_id) == ("draining", False, False)
    assert (limited.code, limited.tell, limited.uses_id, limited.retry_ms) == (
        "rate_limited",
        False,
        False,
        1501,
    )


def test_a_flood_of_refusals_is_limited_by_who_sends_it() -> None:
    asked: list[str] = []

    def none_left(party: str) -> float:
        asked.append(party)
        return 0.5

    flooded = replace(FACTS, refusal_wait_s=none_left)
    limited = ask(flooded, RecipeSpec="<nope/>")
    assert isinstance(limited, Refuse)
    assert (limited.code, limited.tell, limited.uses_id, limited.retry_ms) == (
        "rate_limited",
        False,
        False,
        501,
    )
    assert "invalid_recipe" in limited.summary
    assert code(flooded, party="mallory") == "rate_limited"
    assert asked == ["boss", "mallory"]
    assert isinstance(ask(flooded), Bake), "what is good is not hurt by it"
    assert code(replace(flooded, draining=True)) == "draining", "nothing is kept of it anyway"
    assert asked == ["boss", "mallory"]
