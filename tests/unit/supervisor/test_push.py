"""A push is cut so that its parts joined are the data, each within its limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.supervisor import push
from bakemesh.supervisor.errors import MessageTooLarge
from support.bakes import IDENTITY

MIB = 1024**2


@given(st.binary(max_size=5000), st.integers(1, 700))
def test_parts_joined_are_the_data(data: bytes, size: int) -> None:
    parts = list(push.parts(IDENTITY, "Words", data, size + push.ENVELOPE_BYTES))
    assert b"".join(one.data for one in parts) == data
    assert [one.part for one in parts] == list(range(1, len(parts) + 1))
    assert [bool(one.lastpart) for one in parts] == [False] * (len(parts) - 1) + [True]
    assert all(len(one.data) <= size for one in parts)


@pytest.mark.parametrize(("length", "count"), [(0, 1), (MIB, 1), (MIB + 1, 2), (64 * MIB, 64)])
def test_a_part_holds_a_mebibyte(length: int, count: int) -> None:
    assert len(list(push.parts(IDENTITY, "Words", bytes(length), 8 * MIB))) == count


def test_text_goes_as_utf8() -> None:
    (only,) = push.parts(IDENTITY, "Words", "grün", 8 * MIB)
    assert only.data == "grün".encode()


def test_too_much_is_refused_before_the_first_part_with_both_sizes() -> None:
    with pytest.raises(MessageTooLarge, match=r"67,108,865 bytes.*67,108,864"):
        push.parts(IDENTITY, "Words", bytes(64 * MIB + 1), 8 * MIB)
