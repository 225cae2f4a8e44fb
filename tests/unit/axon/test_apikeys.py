"""Who may use the OpenAI-style routes, and as whom."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from bakemesh.apikeys import KnownKeys, add
from bakemesh.axon.apikeys import ApiKeys, OpenRefused, check_open

IP = "127.0.0.1"


def test_without_any_key_nobody_may(tmp_path: Path) -> None:
    for keys in (ApiKeys(), ApiKeys(KnownKeys(tmp_path / "none"))):
        assert keys.who(None, IP) is None
        assert keys.who("Bearer bm-" + "a" * 43, IP) is None


def test_a_known_key_counts_by_its_name(tmp_path: Path) -> None:
    secret = add(tmp_path / "keys", "app", datetime.now(UTC))
    for is_open in (False, True):
        keys = ApiKeys(KnownKeys(tmp_path / "keys"), open=is_open)
        assert keys.who(f"Bearer {secret}", IP) == "key:app"
        assert keys.who("Bearer bm-" + "a" * 43, IP) is None
    assert ApiKeys(KnownKeys(tmp_path / "keys")).who(None, IP) is None


def test_an_open_gateway_counts_by_address(tmp_path: Path) -> None:
    keys = ApiKeys(KnownKeys(tmp_path / "none"), open=True)
    assert keys.who(None, IP) == f"address:{IP}"
    assert keys.who("Bearer whatever", IP) == f"address:{IP}"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_what_only_this_machine_reaches_may_be_open(host: str) -> None:
    check_open(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.5", "example.org", "", "::ffff:10.0.0.1"])
def test_what_others_reach_may_not(host: str) -> None:
    with pytest.raises(OpenRefused, match="axon-key new"):
        check_open(host)
