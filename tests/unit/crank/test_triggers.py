"""Which triggers a message wakes: each once, in the order of the spec."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from bakemesh.crank.triggers import Triggers
from bakemesh.protocol.builder.spec.component import Trigger, matches

SEGMENT = st.sampled_from(["A", "B", "C"])
TYPE = st.lists(SEGMENT, min_size=1, max_size=4).map(".".join)
PATTERN = st.lists(st.one_of(SEGMENT, st.just("*")), min_size=1, max_size=4).map(".".join)


@given(PATTERN, TYPE)
def test_a_star_is_exactly_one_segment(pattern, type_):
    shape = r"\.".join("[^.]+" if each == "*" else re.escape(each) for each in pattern.split("."))
    assert matches(pattern, type_) is bool(re.fullmatch(shape, type_))


@given(st.lists(PATTERN, max_size=6), TYPE)
def test_however_patterns_overlap_each_trigger_that_matches_is_woken_once_in_order(patterns, type_):
    triggers = Triggers(Trigger(name=str(n), type=each) for n, each in enumerate(patterns))
    # The server gives the message once for each subscription that matches it, in any order.
    woken = [
        each.name
        for pattern in reversed(triggers.patterns)
        if matches(pattern, type_)
        for each in triggers.of(pattern, type_)
    ]
    assert woken == [str(n) for n, each in enumerate(patterns) if matches(each, type_)]
    assert len(triggers.patterns) == len(set(patterns))


def test_what_is_read_from_the_store_is_not_woken_live_and_is_not_even_subscribed_where_it_is_all():
    triggers = Triggers(
        [
            Trigger(name="One", type="A.B", durable=("A.B",)),
            Trigger(name="Some", type="A.*", durable=("A.B",)),
            Trigger(name="Live", type="A.*"),
        ]
    )
    assert triggers.patterns == ("A.*",)
    assert [each.name for each in triggers.of("A.*", "A.B")] == ["Live"]
    assert [each.name for each in triggers.of("A.*", "A.C")] == ["Some", "Live"]
    assert [(each.name, type_) for each, type_ in triggers.stored] == [("One", "A.B"), ("Some", "A.B")]


def test_ready_is_found_by_pattern_too():
    triggers = Triggers(
        [
            Trigger(name="A", type="Psyclone.*"),
            Trigger(name="B", type="Psyclone.Ready"),
            Trigger(name="C", type="*"),
        ]
    )
    assert [each.name for each in triggers.ready] == ["A", "B"]
    assert triggers.named("C") is not None
    assert triggers.named("c") is None
