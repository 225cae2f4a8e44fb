"""The server's configuration: who may be let in without a word, and what the text says."""

from __future__ import annotations

from pathlib import Path

import pytest

from bakemesh.bus.server_config import Join, ServerConfig, is_loopback, open_to_others, render
from bakemesh.bus.settings import Tls

FOLDER = Path("/state/bus")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)
    assert open_to_others(ServerConfig("a", FOLDER, host=host, leaf_host=host)) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "node-7.example", "", "128.0.0.1"])
def test_off_loopback_it_wants_authorization(host: str) -> None:
    assert not is_loopback(host)
    assert "listen address" in (open_to_others(ServerConfig("a", FOLDER, host=host)) or "")
    assert "leaf listen address" in (open_to_others(ServerConfig("a", FOLDER, leaf_host=host)) or "")
    assert open_to_others(ServerConfig("a", FOLDER, host=host, authorization="authorization {}")) is None
    # A server that takes no leaves does not listen there.
    assert open_to_others(ServerConfig("a", FOLDER, leaf_host=host, leaf_port=None)) is None
    assert open_to_others(ServerConfig("a", FOLDER, leaf_host=host, join=Join("nats://hub:7422"))) is None


def test_a_hub_takes_leaves_and_a_leaf_joins() -> None:
    hub = render(ServerConfig("a", FOLDER))
    assert 'domain: "hub"' in hub
    assert 'listen: "127.0.0.1:-1"' in hub
    assert hub.count("listen:") == 2
    assert "no_advertise: true" in hub
    leaf = render(ServerConfig("b", FOLDER, port=4222, join=Join("nats://hub:7422", nkey_seed="SUSEED")))
    assert 'domain: "b"' in leaf
    assert 'url: "nats://hub:7422"' in leaf
    assert 'nkey: "SUSEED"' in leaf
    assert leaf.count("listen:") == 1
    assert "leafnodes" not in render(ServerConfig("a", FOLDER, leaf_port=None))


def test_a_seed_is_not_in_a_repr() -> None:
    assert "SUSEED" not in repr(ServerConfig("b", FOLDER, join=Join("nats://hub:7422", nkey_seed="SUSEED")))


def test_durability_tls_and_odd_folders() -> None:
    assert "sync_interval" not in render(ServerConfig("a", FOLDER))
    assert "sync_interval: always" in render(ServerConfig("a", FOLDER, sync_always=True))
    text = render(
        ServerConfig(
            "a", Path('/a "quoted" folder'), host="::1", tls=Tls(Path("/ca"), Path("/c"), Path("/k"))
        )
    )
    assert r'store_dir: "/a \"quoted\" folder/jetstream"' in text
    assert 'listen: "[::1]:-1"' in text
    assert text.count('cert_file: "/c"') == 2  # for clients and for leaves
    assert text.count("{") == text.count("}")


def test_the_authorization_is_the_last_block_as_it_is() -> None:
    assert render(ServerConfig("a", FOLDER, authorization="authorization {\n  users = []\n}\n")).endswith(
        "}\nauthorization {\n  users = []\n}\n"
    )
