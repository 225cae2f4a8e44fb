"""sr25519 keys that sign and verify (package `sr25519`, extra `[axon]`). Pure: no file is read here.

Guarantees: whatever is given as an address or a signature, `verified` answers True or False. A signature is
`0x` and 128 hexadecimal digits; the message is also taken in the wrapping of browser wallets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from bakemesh.protocol.axon import ss58
from bakemesh.protocol.axon.signing import wrapped

_SIGNATURE = re.compile(r"0x[0-9a-fA-F]{128}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Hotkey:
    """A key pair; `address` is its SS58 address. The secret is not shown by `repr`."""

    public_key: bytes
    secret_key: bytes = field(repr=False)
    address: str

    @classmethod
    def from_seed(cls, seed: bytes) -> Hotkey:
        """The pair of a mini secret of 32 bytes. Raises ValueError for another length."""
        import sr25519

        if len(seed) != 32:
            raise ValueError(f"a secret seed has 32 bytes, this has {len(seed)}")
        public, secret = sr25519.pair_from_seed(seed)
        return cls(bytes(public), bytes(secret), ss58.encode(bytes(public)))

    def sign(self, message: str) -> str:
        """The signature of a text: `0x` and 128 hexadecimal digits, another one each time."""
        import sr25519

        return "0x" + bytes(sr25519.sign((self.public_key, self.secret_key), message.encode())).hex()


def verified(address: str, message: str, signature: str) -> bool:
    """Whether the key of this address signed the message."""
    import sr25519

    if _SIGNATURE.fullmatch(signature) is None:
        return False
    try:
        public = ss58.decode(address)
    except ValueError:
        return False
    raw = bytes.fromhex(signature[2:])
    try:
        return bool(
            sr25519.verify(raw, message.encode(), public)
            or sr25519.verify(raw, wrapped(message).encode(), public)
        )
    except (ValueError, TypeError):  # a public key that is no point of the curve
        return False
