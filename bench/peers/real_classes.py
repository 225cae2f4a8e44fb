"""The peer's synapse classes and key, for the scripts beside it; runs in the real SDK's interpreter."""

import os
import typing

import bittensor as bt
from bittensor.utils import networking
from bittensor_wallet import Keypair

networking.get_external_ip = lambda: "192.0.2.10"  # else it asks strangers on the internet

if os.environ.get("CACHE_REQUIRED"):  # its slow look-up: a JSON schema is made for each request
    _known = {}

    def _required(self):
        kind = type(self)
        if kind not in _known:
            _known[kind] = [name for name, field in kind.model_fields.items() if field.is_required()]
        return _known[kind]

    bt.Synapse.get_required_fields = _required


class Echo(bt.Synapse):
    """The same fields as ours."""

    required_hash_fields: typing.ClassVar[tuple[str, ...]] = ("text", "n")
    text: str = ""
    n: int = 0
    reply: str | None = None


class Required(bt.Synapse):
    """Inputs without defaults."""

    required_hash_fields: typing.ClassVar[tuple[str, ...]] = ("prompt", "roles", "n", "temperature", "flags")
    prompt: str
    roles: list[str]
    n: int
    temperature: float
    flags: dict[str, bool]
    reply: str | None = None


def key() -> Keypair:
    """//Bob."""
    return Keypair.create_from_uri("//Bob")


def info(port: int, hotkey: str):
    """An axon to call."""
    return bt.AxonInfo(
        version=1,
        ip="127.0.0.1",
        port=port,
        ip_type=4,
        hotkey=hotkey,
        coldkey=hotkey,
        protocol=4,
        placeholder1=0,
        placeholder2=0,
    )
