"""What is said of a bring-up that failed where components are somebody else's."""

from __future__ import annotations

from bakemesh.startup.owners import Owners


def owned(**owners: str) -> Owners:
    found = Owners("startup-alpha")
    found.heard("b1", [{"name": name, "owner": owner} for name, owner in owners.items()])
    return found


def test_nothing_is_said_where_all_is_ours_or_nobody_wants_it():
    found = owned(one="startup-alpha", two="startup-beta", three="")
    assert found.advice("b1", ["one", "three", "new"]) == ""
    assert found.advice("c1", ["two"]) == ""


def test_whose_it_is_and_what_to_do():
    said = owned(one="startup-beta", two="startup-alpha").advice("b1", ["one", "two"])
    assert said.startswith("one there belong to startup-beta, which was given a PsySpec with them, too; ")
    assert "bakemesh components remove" in owned(one="nightly").advice("b1", ["one"])
    many = owned(**{f"m{number}": "startup-beta" for number in range(9)})
    assert "m4 and 4 more there" in many.advice("b1", [f"m{number}" for number in range(9)])


def test_the_last_status_counts():
    found = owned(one="startup-beta")
    found.heard("b1", [])
    assert found.advice("b1", ["one"]) == ""
