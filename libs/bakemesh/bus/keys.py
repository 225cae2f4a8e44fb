"""User keys for a server's authorization: a seed that stays with its owner, and the public key that the
server knows.

Needs the extra `bakemesh[auth]`. What each key may do is `bakemesh.protocol.rights`' business.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from bakemesh.bus.errors import BadCredentials


@dataclass(frozen=True, slots=True)
class UserKey:
    """An nkey of a user: `seed` begins SU, `public` U."""

    public: str
    seed: str = field(repr=False)


def make_user_key() -> UserKey:
    """A new random key. Raises BadCredentials where the extra is not installed."""
    try:
        import nkeys
    except ImportError as error:
        raise BadCredentials("keys need the extra: pip install 'bakemesh[auth]'") from error
    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    pair = nkeys.from_seed(bytearray(seed))
    try:
        return UserKey(public=pair.public_key.decode(), seed=seed.decode())
    finally:
        pair.wipe()
