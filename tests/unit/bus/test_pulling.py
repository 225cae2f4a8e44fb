"""Acknowledgement subjects and statuses, as the server writes them."""

from __future__ import annotations

import pytest

from bakemesh.bus.pulling import Place, place


def test_both_forms() -> None:
    short = "$JS.ACK.A.cons.2.9.4.1796091328026418649.7"
    long = "$JS.ACK.hub.ACCHASH.A.cons.2.9.4.1796091328026418649.7.rand"
    expected = Place("cons", sequence=9, delivered=4, times=2, pending=7)
    assert place(short) == expected
    assert place(long) == expected
    assert place(long.removesuffix(".rand")) == expected


@pytest.mark.parametrize(
    "reply", ["", "_INBOX.a.b", "$JS.ACK.A.cons.x.9.4.1.7", "$JS.ACK.A", "$JS.ACK.a.b.c.d.1.2.3.4"]
)
def test_what_is_none(reply: str) -> None:
    assert place(reply) is None
