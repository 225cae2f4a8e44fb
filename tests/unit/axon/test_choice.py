"""Which model stands for a kind, and what of a request goes on to the mesh."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.axon.mesh import Kind, Models, clamped, first_of, traceparent_of
from bakemesh.inference import ModelInfo

ALIASES = st.sampled_from(["a", "b", "c"])
MODELS = st.lists(
    st.builds(
        lambda node, alias, kind, state: ModelInfo(node, alias, kind, state, "", 0, 0, {}),
        ALIASES,
        ALIASES,
        st.sampled_from([*Kind, "other"]),
        st.sampled_from(["ready", "loaded", "quarantined"]),
    )
)


@given(MODELS, st.sampled_from(list(Kind)), st.randoms())
def test_the_choice_is_of_that_kind_and_does_not_hang_on_the_order(
    models: list[ModelInfo], kind: Kind, chance: object
) -> None:
    found = first_of(models, kind)
    assert found == first_of(reversed(models), kind)
    mine = [each for each in models if each.kind == kind]
    assert (found is None) == (not mine)
    usable = {each.alias for each in mine if each.state != "quarantined"}
    if usable:
        assert found == min(usable)


def test_settings_name_a_model_for_each_kind() -> None:
    named = Models(embed="e", chat="c")
    assert [named.of(kind) for kind in Kind] == ["e", None, "c"]


@given(st.floats())
def test_a_priority_is_always_one_that_the_mesh_takes(priority: float) -> None:
    found = clamped(priority)
    assert -100 <= found <= 100
    if -100 <= priority <= 100:
        assert abs(found - priority) < 1
    if math.isnan(priority):
        assert found == 0


@pytest.mark.parametrize("text", [None, "", "00-x", "00-" + "0" * 32 + "-" + "0" * 16 + "-01\r\nx", "a" * 55])
def test_what_is_no_traceparent_does_not_go_on(text: str | None) -> None:
    assert traceparent_of(text) is None


def test_a_traceparent_goes_on() -> None:
    text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert traceparent_of(text) == text
