"""The deny list: what a line may be."""

from __future__ import annotations

import pytest

from bakemesh.axon.denied import DenyList, DenyListRefused

BOB = "5FHneW46xGXgs5mUiveU4sbTyGBzmstUspZC92UhjJM694ty"
TEXT = f"""
# who is not served
192.0.2.7
198.51.100.0/24   # a network
2001:db8::/32
{BOB}
"""


def test_addresses_networks_and_hotkeys() -> None:
    denied = DenyList.of(TEXT)
    for ip in ("192.0.2.7", "198.51.100.9", "2001:db8::1", "::ffff:192.0.2.7"):
        assert denied.address(ip)
    for ip in ("192.0.2.8", "198.51.101.0", "2001:db9::1", "", "no address"):
        assert not denied.address(ip)
    assert denied.hotkey(BOB)
    assert not denied.hotkey(BOB[:-1])


def test_a_list_that_is_empty_denies_nobody() -> None:
    denied = DenyList.of("# nobody\n\n")
    assert not denied.address("192.0.2.7")
    assert not denied.hotkey(BOB)


@pytest.mark.parametrize("word", ["example.org", BOB[:-1] + "z", "300.1.2.3", "10.0.0.0/99"])
def test_a_line_that_is_none_is_refused_with_its_number(word: str) -> None:
    with pytest.raises(DenyListRefused, match=f"denied, line 3: '{word}'"):
        DenyList.of(f"\n\n{word}\n", "denied")
