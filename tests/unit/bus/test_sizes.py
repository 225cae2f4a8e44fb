"""Sizes of the streams: shares of what is free, within bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.bus.sizes import GIB, MIB, SMALLEST_DEFAULT, STATUS_BYTES, Sizes, readable


@given(free=st.integers(0, 2**50), nodes=st.integers(1, 1000))
def test_all_nodes_together_take_a_quarter_at_most(free: int, nodes: int) -> None:
    sizes = Sizes(nodes_expected=nodes)
    for each, largest in ((sizes.data(free), 10 * GIB), (sizes.status(free), STATUS_BYTES)):
        assert SMALLEST_DEFAULT <= each <= largest
        assert each * nodes <= free / 4 or each == SMALLEST_DEFAULT


def test_the_rule_in_numbers() -> None:
    assert Sizes().data(78 * GIB) == 10 * GIB
    assert Sizes(nodes_expected=4).data(80 * GIB) == 5 * GIB
    assert Sizes(nodes_expected=4).hub_data(20 * GIB) == 5 * GIB
    assert Sizes().status(78 * GIB) == 256 * MIB
    assert Sizes(nodes_expected=200).status(55 * GIB) * 200 < 14 * GIB, "two hundred nodes on a usual disk"
    assert Sizes(free=8 * GIB).data(10**15) == 2 * GIB, "what is known goes before what the server says"


def test_a_chosen_size_is_taken_as_it_is() -> None:
    chosen = Sizes(data_bytes=5 * MIB, hub_data_bytes=20 * GIB, nodes_expected=7)
    assert (chosen.data(None), chosen.hub_data(1)) == (5 * MIB, 20 * GIB)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"nodes_expected": 0}, "nodes expected: 0"),
        ({"data_bytes": 0}, "data stream"),
        ({"hub_data_bytes": -1}, "hub"),
    ],
)
def test_senseless_numbers_are_refused(wrong: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Sizes(**wrong)


def test_sizes_for_people() -> None:
    assert [readable(size) for size in (0, 1023, 1024, 10 * GIB)] == ["0 B", "1023 B", "1.0 KiB", "10.0 GiB"]
