"""Hashes of bodies: FIPS 202 SHA3-256, which is not the Keccak-256 of Ethereum."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

EMPTY = "a7ffc6f8bf1ed76651c14756a061d662f580ff4de43b49fa82d80a4b80f8434a"  # of no bytes at all


def sha3_256_hex(data: bytes) -> str:
    """64 lower-case hexadecimal characters. Source: the bittensor-synapse document, "Hashing Module"."""
    return hashlib.sha3_256(data).hexdigest()


def fields_hash(values: Iterable[Any]) -> str:
    """The real SDK's hash of a body: of the hashes of Python's `str` of each value, in this order."""
    return sha3_256_hex(
        "".join(
            [hashlib.sha3_256(str(value).encode("utf-8", "surrogatepass")).hexdigest() for value in values]
        ).encode()
    )
