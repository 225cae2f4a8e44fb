"""API keys of a gateway's OpenAI-style routes: `bm-` and 43 characters, kept as hashes in one file.

A key is 32 random bytes, so nobody can guess one or run through all of them, and a plain SHA-256 is enough
to keep it by: a slow hash only helps where people choose the secret. Whoever reads the file can use none of
its keys. Left out: rights of a key beyond "may ask", and dates after which it ends (`revoke`).
"""

from bakemesh.apikeys.document import ApiKey, KeyFileRefused, digest_of, new_secret
from bakemesh.apikeys.files import add, load, revoke
from bakemesh.apikeys.known import KnownKeys

__all__ = [
    "ApiKey",
    "KeyFileRefused",
    "KnownKeys",
    "add",
    "digest_of",
    "load",
    "new_secret",
    "revoke",
]
