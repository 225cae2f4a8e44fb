"""What parameters say reaches the HTTP side: none of them is lost on the way."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from bakemesh.axon import parameters
from bakemesh.axon.service import AxonSettings
from bakemesh.axon.settings import GatewaySettings, Limits, Tls
from bakemesh.protocol.axon.freshness import Window

GIVEN: dict[str, int | str] = {
    "hotkey": "/k",
    "bind": "0.0.0.0:9",
    "tls-cert": "/c",
    "tls-key": "/p",
    "deny": "/d",
    "nonce-window-ms": 7,
    "nonce-ahead-ms": 3,
}


def settings(**more: int | str) -> AxonSettings:
    given = GIVEN | {name.replace("_", "-"): value for name, value in more.items()}
    return AxonSettings(
        node="n",
        node_id="n",
        name="axon",
        folder=Path("/state/axon"),
        api_keys=Path("/state/axon/api-keys"),
        parameters=parameters.read(given),
        drain_s=2.5,
    )


def test_the_gateway_has_all_that_its_parameters_say() -> None:
    made = settings(threads=5).gateway()
    assert made == GatewaySettings(
        host="0.0.0.0",
        port=9,
        folder=Path("/state/axon/seen"),
        tls=Tls(cert=Path("/c"), key=Path("/p")),
        deny=Path("/d"),
        window=Window(7, 3),
        limits=Limits(threads=5),
        drain_s=2.5,
    )
    plain = GatewaySettings()
    same = [each.name for each in fields(plain) if getattr(made, each.name) == getattr(plain, each.name)]
    assert same == []
