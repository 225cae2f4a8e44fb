"""A gateway's parameters: read as one, all problems told at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bakemesh.axon.parameters import NAMES, ROWS, ParametersRefused, Wallet, read
from bakemesh.axon.settings import Limits
from bakemesh.cli.verbs.axon import PARAMETERS
from bakemesh.protocol.axon.freshness import Window


def test_little_is_needed() -> None:
    found = read({"hotkey": "/k.json"})
    assert (found.host, found.port, found.hotkey) == ("127.0.0.1", 8091, Path("/k.json"))
    assert found.limits == Limits()
    assert found.window == Window()
    assert found.open is False


def test_all_of_it() -> None:
    found = read(
        {
            "wallet": "miner",
            "wallet-hotkey": "first",
            "wallets": "/w",
            "bind": "[::1]:0",
            "routes": "/a.py, /b.py",
            "tls-cert": "/c.pem",
            "tls-key": "/k.pem",
            "deny": "/deny",
            "chat-model": "small",
            "nonce-window-ms": 5000,
            "max-body": "1MiB",
            "hotkey-rate": "0",
            "request-ms": "1500",
        }
    )
    assert found.hotkey == Wallet("miner", "first", Path("/w"))
    assert (found.host, found.port) == ("::1", 0)
    assert found.routes == (Path("/a.py"), Path("/b.py"))
    assert found.tls is not None
    assert found.models.chat == "small"
    assert found.window == Window(5000, 2000)
    assert found.limits == Limits(body_bytes=1 << 20, hotkey_rate=0, request_s=1.5)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "bakemesh hotkey new"),
        ({"hotkey": "/k", "wallet": "w"}, "both hotkey and wallet"),
        ({"hotkey": "/k", "tls-cert": "/c"}, "go together"),
        ({"hotkey": "/k", "open": "yes", "bind": "0.0.0.0"}, "can be reached from other machines"),
        ({"hotkey": "/k", "max-bodi": "1"}, "max-body"),
        ({"hotkey": "/k", "threads": "0"}, "from 1 to 1024"),
        ({"hotkey": "/k", "hotkey-rate": "nan"}, "hotkey-rate"),
        ({"hotkey": "/k", "bind": ":80"}, "names no host"),
        ({"hotkey": "/k", "wallet-hotkey": " "}, "empty"),
    ],
)
def test_what_is_wrong_is_told(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ParametersRefused, match=words):
        read(given)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ParametersRefused) as refused:
        read({"threads": "many", "max-header": "1", "odd": "1"})
    assert len(refused.value.problems) == 3


def test_the_command_line_has_the_same_ones_with_the_same_words() -> None:
    assert {name: row.text for name, row in ROWS.items() if name != "routes"} == PARAMETERS
    assert "routes" in NAMES


def test_one_hotkey_is_remembered_for_as_long_as_its_rate_lets_it_through() -> None:
    assert Limits(hotkey_rate=10).nonces_of_one(Window()) >= 10 * 12 + 20
    assert Limits(hotkey_rate=0, nonces=7).nonces_of_one(Window()) == 7
    assert Limits(hotkey_rate=1e6, nonces=7).nonces_of_one(Window()) == 7
