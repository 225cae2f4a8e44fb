"""What is signed. Text in, text out; who signs it is in `signatures`.

Source: the bittensor-synapse document, "Signing Module"; for `btauth/1` protocol/axon-v1.md, section 7.
"""

from __future__ import annotations

import hashlib

BTAUTH = "btauth/1"
SCHEME = "sr25519"
NOBODY = "-"  # the receiver of a `btauth/1` request that names none


def signing_message(nonce: int, dendrite_hotkey: str, axon_hotkey: str, uuid: str, body_hash: str) -> str:
    """`{nonce}.{dendrite_hotkey}.{axon_hotkey}.{uuid}.{body_hash}`."""
    return f"{nonce}.{dendrite_hotkey}.{axon_hotkey}.{uuid}.{body_hash}"


def response_message(nonce: int, dendrite_hotkey: str, axon_hotkey: str, uuid: str) -> str:
    """What an axon signs under an error: `{nonce}.{dendrite_hotkey}.{axon_hotkey}.{uuid}`."""
    return f"{nonce}.{dendrite_hotkey}.{axon_hotkey}.{uuid}"


def btauth_payload(
    method: str, target: str, body: bytes, nonce_ns: int, sender: str, receiver: str | None
) -> str:
    """The payload of `btauth/1`; `target` is the path with its query as it stands in the request line."""
    digest = hashlib.sha256(body).hexdigest()
    return "\n".join(
        (BTAUTH, SCHEME, method.upper(), target, digest, str(nonce_ns), sender, receiver or NOBODY)
    )


def wrapped(message: str) -> str:
    """As browser wallets sign it: `<Bytes>…</Bytes>`."""
    return f"<Bytes>{message}</Bytes>"
