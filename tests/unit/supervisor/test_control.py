"""ctrlseq: rising for each bake, whatever the clock does."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from bakemesh.protocol.builder.codes import Verb
from bakemesh.supervisor.control import MESSAGES, ControlSequence, control_message
from support.bakes import IDENTITY

OTHER = ("nightly", "nightly-index-2")


@given(st.lists(st.integers(0, 2**50), min_size=1, max_size=50))
def test_numbers_rise_even_when_the_clock_goes_back(clock: list[int]) -> None:
    sequence = ControlSequence()
    numbers = [sequence.next(IDENTITY.key, now) for now in clock]
    assert all(later > earlier for earlier, later in itertools.pairwise(numbers))
    assert all(number >= now for number, now in zip(numbers, clock, strict=True))


def test_a_bake_starts_from_the_clock_whatever_another_did() -> None:
    sequence = ControlSequence()
    sequence.next(IDENTITY.key, 5_000)
    assert sequence.next(OTHER, 1_000) == 1_000


def test_an_accepted_number_that_was_seen_is_exceeded() -> None:
    sequence = ControlSequence()
    sequence.seen(IDENTITY.key, 9_000)
    sequence.seen(IDENTITY.key, 8_000)
    assert sequence.next(IDENTITY.key, 1_000) == 9_001


def test_every_verb_has_its_message_with_identity_and_issuer() -> None:
    assert set(MESSAGES) == set(Verb)
    for verb in Verb:
        message = control_message(verb, IDENTITY, 7, "ops")
        assert message.type == f"Psyclone.Builder.BakeControl.{verb}"
        assert (message.identity, message.ctrlseq, message.issuedby) == (IDENTITY, 7, "ops")
