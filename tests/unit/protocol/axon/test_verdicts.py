"""Ends of a request, and reasons that may stand in a header."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.protocol.axon.verdicts import HTTP_STATUS, LONGEST_REASON, Verdict, escaped, printable
from support.recorded import recorded


def test_every_verdict_has_a_status_that_http_knows() -> None:
    assert set(HTTP_STATUS) == set(Verdict)
    assert all(HTTPStatus(status) for status in HTTP_STATUS.values())
    assert [verdict for verdict, status in HTTP_STATUS.items() if status < 400] == [Verdict.OK]


@given(st.text())
def test_a_reason_is_always_a_legal_header_of_bounded_length(reason: str) -> None:
    found = escaped(reason)
    assert len(found) <= LONGEST_REASON
    assert all(0x20 <= ord(each) <= 0x7E for each in found)
    assert found == found.strip()


@given(st.text(st.characters(codec="utf-8"), max_size=20).map(str.strip))
def test_a_short_reason_can_be_read_again(reason: str) -> None:
    assert unquote(escaped(reason)) == reason
    assert unquote(printable(reason)) == reason or printable(reason) == reason


@given(st.text(min_size=1).map(lambda text: text * 300))
def test_a_cut_reason_is_not_cut_within_an_escape(reason: str) -> None:
    found = escaped(reason)
    for place, each in enumerate(found):
        if each == "%":
            int(found[place + 1 : place + 3].ljust(2, "x"), 16)


@pytest.mark.parametrize(
    ("reason", "wanted"),
    [
        ("not registered", "not registered"),
        ("100%", "100%25"),
        ("a\r\nSet-Cookie: b", "a%0D%0ASet-Cookie: b"),
        ("é🌍", "%C3%A9%F0%9F%8C%8D"),
        ("\ud800", "%ED%A0%80"),
        ("x" * 9000, "x" * LONGEST_REASON),
        ("x" * 255 + "é", "x" * 255),
        ("x" * 254 + "é", "x" * 254),
        ("x" * 253 + "é", "x" * 253 + "%C3"),
        ("  a  ", "a"),
        ("", ""),
    ],
)
def test_reasons(reason: str, wanted: str) -> None:
    assert escaped(reason) == wanted


def test_the_reasons_that_break_the_real_axons_answer_are_among_them() -> None:
    edges = recorded("axon_edges")
    assert edges["blacklist reason with CRLF"][0] == 503
    assert edges["blacklist reason with emoji"][0] == 422
    assert edges["blacklist reason 9000 chars"][0] == 400
