"""The JSON of a key file. Pure: text in, key pair out, and back.

    {"ss58Address": "5…", "publicKey": "0x…", "accountId": "0x…", "secretSeed": "0x…", "cryptoType": 1}

Read is `secretSeed` (32 bytes), or `privateKey` (64 bytes) where a derived key has no seed; `ss58Address`
must be that of the secret. The rest is written for the SDK's sake. A message never holds the secret.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bakemesh.protocol.axon import ss58
from bakemesh.protocol.axon.signatures import Hotkey

SEED = "secretSeed"
SECRET = "privateKey"
ADDRESS = "ss58Address"
_SR25519 = 1


class HotkeyRefused(Exception):
    """Raised when a key file cannot be used or made: what is wrong, where, and what would be right."""


def read(text: str, where: str) -> Hotkey:
    """The key pair of a file's text. Raises HotkeyRefused."""
    found = _object(text, where)
    if found.get("cryptoType", _SR25519) != _SR25519:
        raise HotkeyRefused(f"{where}: cryptoType {found['cryptoType']!r}; a hotkey is sr25519, which is 1")
    address = found.get(ADDRESS)
    if not isinstance(address, str):
        raise HotkeyRefused(f"{where}: it has no {ADDRESS}, the address of the key as text")
    hotkey = _pair(found, where)
    if hotkey.address != address:
        raise HotkeyRefused(
            f"{where}: the secret is that of {hotkey.address}, {ADDRESS} is another; one of them is wrong"
        )
    return hotkey


def written(hotkey: Hotkey, seed: bytes) -> str:
    """The text of a key file for this pair and the seed it was made from."""
    public = "0x" + hotkey.public_key.hex()
    document = {
        ADDRESS: hotkey.address,
        "publicKey": public,
        "accountId": public,
        SEED: "0x" + seed.hex(),
        SECRET: "0x" + hotkey.secret_key.hex(),
        "cryptoType": _SR25519,
    }
    return json.dumps(document, indent=1) + "\n"


def _object(text: str, where: str) -> Mapping[str, Any]:
    if text.startswith(("$NACL", "$ANSIBLE_VAULT", "gAAAA")):
        raise HotkeyRefused(f"{where}: it is encrypted; give an unencrypted hotkey")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # its text would tell a part of the file
        raise HotkeyRefused(f"{where}: it is not JSON; a key file has {ADDRESS} and {SEED}") from None
    if not isinstance(found, dict):
        raise HotkeyRefused(f"{where}: it is no JSON object; a key file has {ADDRESS} and {SEED}")
    return found


def _pair(found: Mapping[str, Any], where: str) -> Hotkey:
    seed = _bytes(found.get(SEED), 32)
    if seed is not None:
        return Hotkey.from_seed(seed)
    secret = _bytes(found.get(SECRET), 64)
    if secret is None:
        raise HotkeyRefused(
            f"{where}: it has neither {SEED} (0x and 64 hexadecimal digits) nor {SECRET} (0x and 128)"
        )
    import sr25519

    try:
        public = bytes(sr25519.public_from_secret_key(secret))
    except ValueError:
        raise HotkeyRefused(f"{where}: its {SECRET} is no sr25519 secret key") from None
    return Hotkey(public, secret, ss58.encode(public))


def _bytes(value: Any, length: int) -> bytes | None:
    if not isinstance(value, str) or len(value) not in (2 * length, 2 * length + 2):
        return None
    try:
        raw = bytes.fromhex(value.removeprefix("0x"))
    except ValueError:
        return None
    return raw if len(raw) == length else None
