"""Settings of a connection are checked where they are made, and keep their secrets."""

from __future__ import annotations

import pytest

from bakemesh.bus import BusSettings, Credentials
from bakemesh.protocol.errors import NameRefused


def test_servers_may_be_one_text() -> None:
    assert BusSettings(servers="nats://a:1, nats://b:2").servers == ("nats://a:1", "nats://b:2")  # type: ignore[arg-type]


@pytest.mark.parametrize("servers", [(), ("",), ("nats://a:1", "")])
def test_no_server_is_refused(servers: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="at least one URL"):
        BusSettings(servers=servers)


@pytest.mark.parametrize("field", ["mesh", "name", "node_id", "identity"])
@pytest.mark.parametrize("value", ["a.b", "a b", "*", ">", "x" * 65])
def test_what_becomes_a_token_is_checked(field: str, value: str) -> None:
    with pytest.raises(NameRefused):
        BusSettings(**{field: value})


def test_who_one_is() -> None:
    assert BusSettings(name="nightly").party == "nightly"
    builder = BusSettings(name="builder", node_id="alpha", identity="builder-alpha")
    assert (builder.party, builder.sender) == ("builder-alpha", "builder@alpha")


def test_secrets_are_not_in_a_repr() -> None:
    credentials = Credentials(nkey_seed="SUSEED", password="geheim", token="tok-1")
    shown = repr(BusSettings(credentials=credentials))
    assert not any(secret in shown for secret in ("SUSEED", "geheim", "tok-1"))
