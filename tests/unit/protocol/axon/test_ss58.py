"""Addresses of public keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.protocol.axon import ss58
from support.recorded import ALICE

KEYS = st.binary(min_size=32, max_size=32)


@given(KEYS)
def test_a_key_comes_back_from_its_address(key: bytes) -> None:
    address = ss58.encode(key)
    assert len(address) in (47, 48)
    assert ss58.decode(address) == key


@given(KEYS, st.integers(0, 47), st.characters())
def test_a_character_that_is_changed_is_noticed(key: bytes, place: int, letter: str) -> None:
    """A checksum of two bytes lets one change in 65,536 through: such a one is another key."""
    address = ss58.encode(key)
    changed = address[:place] + letter + address[place + 1 :]
    if changed == address:
        return
    try:
        assert ss58.decode(changed) != key
    except ValueError:
        return


@given(st.text(max_size=80))
def test_any_text_is_an_address_or_a_value_error_that_says_why(text: str) -> None:
    try:
        key = ss58.decode(text)
    except ValueError as error:
        assert 10 < len(str(error)) < 120  # noqa: PT017
        return
    assert ss58.encode(key) == text


@given(KEYS)
def test_a_key_has_one_address(key: bytes) -> None:
    with pytest.raises(ValueError, match="superfluous"):
        ss58.decode("1" + ss58.encode(key))


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("", "has 47 or 48 characters"),
        ("5" * 65, "has 47 or 48 characters"),
        ("5" * 60, "has 35 bytes, this has more"),
        (ALICE.address[:-1] + "0", "'0' is no base58 character"),
        (ALICE.address[:-1], "the prefix is"),
        (ALICE.address[:-1] + "Z", "its checksum is wrong"),
        ("15oF4uVJwmo4TdGW7VfQxNLavjCXviqxT9S1MgbjMNHr6Sp5", "the prefix is 0, not 42"),
    ],
)
def test_what_is_no_address_of_this_network(address: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ss58.decode(address)


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_a_key_has_32_bytes(size: int) -> None:
    with pytest.raises(ValueError, match=f"has 32 bytes, this has {size}"):
        ss58.encode(bytes(size))
