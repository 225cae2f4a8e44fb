"""An axon's address: what is taken, what is refused before anything is sent."""

from __future__ import annotations

import pytest

from bakemesh.dendrite import Target, TargetRefused
from support.recorded import ALICE


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://10.0.0.7:8091", Target("10.0.0.7", 8091, ALICE.address)),
        ("http://10.0.0.7:8091/", Target("10.0.0.7", 8091, ALICE.address)),
        ("http://axon.example", Target("axon.example", 80, ALICE.address)),
        ("https://axon.example", Target("axon.example", 443, ALICE.address, tls=True)),
        ("https://[::1]:9", Target("::1", 9, ALICE.address, tls=True)),
    ],
)
def test_a_url_is_a_target(url: str, expected: Target) -> None:
    assert Target.of_url(url, ALICE.address) == expected


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("10.0.0.7:8091", "expected http://HOST:PORT"),
        ("ftp://a:1", "expected http://HOST:PORT"),
        ("http://", "expected http://HOST:PORT"),
        ("http://a:99999", "expected http://HOST:PORT"),
        ("http://a:b", "expected http://HOST:PORT"),
        ("http://a:1/Echo", "more than where"),
        ("http://a:1?x", "more than where"),
        ("http://me:secret@a:1", "more than where"),
        ("http://[::1", "expected http://HOST:PORT"),
    ],
)
def test_a_url_that_is_none_is_refused(url: str, told: str) -> None:
    with pytest.raises(TargetRefused, match=told):
        Target.of_url(url, ALICE.address)


@pytest.mark.parametrize(
    ("host", "port", "hotkey", "told"),
    [
        ("", 1, "", "no host"),
        ("a b", 1, "", "no host"),
        ("a/b", 1, "", "no host"),
        ("a\r\nx: y", 1, "", "no host"),
        ("a", 0, "", "1 to 65535"),
        ("a", 65536, "", "1 to 65535"),
        ("a", 1, "5Wrong", "axon hotkey"),
        ("a", 1, ALICE.address[:-1] + "Z", "axon hotkey"),
    ],
)
def test_what_is_no_address_is_refused(host: str, port: int, hotkey: str, told: str) -> None:
    with pytest.raises(TargetRefused, match=told):
        Target(host, port, hotkey)


def test_a_route_stands_in_the_url_and_an_address_of_six_in_brackets() -> None:
    target = Target("::1", 8091, ALICE.address)

    assert str(target.url("Echo")) == "http://[::1]:8091/Echo"
    assert target.place == "[::1]:8091"
    assert str(Target("a", 443, tls=True).url("Echo")) == "https://a/Echo"
