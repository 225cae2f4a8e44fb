"""The three profiles: how a request says what its body is. Source: protocol/axon-v1.md, section 4."""

from __future__ import annotations

from enum import StrEnum


class Profile(StrEnum):
    """`SYNAPSE`: the bittensor-synapse document; `SDK`: the Python SDK 9 and 10; `BTAUTH`: the SDK 11."""

    SYNAPSE = "synapse"
    SDK = "sdk"
    BTAUTH = "btauth"
