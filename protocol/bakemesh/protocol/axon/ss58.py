"""SS58 addresses of public keys: base58 of a prefix byte, 32 bytes and a checksum of two."""

from __future__ import annotations

import hashlib
from functools import lru_cache

PREFIX = 42  # generic Substrate, and what Bittensor uses
LONGEST = 64
_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_DIGITS = {letter: value for value, letter in enumerate(_ALPHABET)}


def _checksum(data: bytes) -> bytes:
    return hashlib.blake2b(b"SS58PRE" + data, digest_size=64).digest()[:2]


def encode(public_key: bytes) -> str:
    """The address of a public key of 32 bytes. Raises ValueError for another length."""
    if len(public_key) != 32:
        raise ValueError(f"a public key has 32 bytes, this has {len(public_key)}")
    data = bytes([PREFIX]) + public_key
    number = int.from_bytes(data + _checksum(data), "big")
    letters = []
    while number:
        number, digit = divmod(number, 58)
        letters.append(_ALPHABET[digit])
    return "".join(reversed(letters))  # the first byte is never 0


@lru_cache(maxsize=4096)
def decode(address: str) -> bytes:
    """The public key of an address. Raises ValueError, which says what is wrong with it."""
    if not address or len(address) > LONGEST:
        raise ValueError("an SS58 address has 47 or 48 characters")
    number = 0
    for letter in address:
        digit = _DIGITS.get(letter)
        if digit is None:
            raise ValueError(f"{letter!r} is no base58 character")
        number = number * 58 + digit
    if number.bit_length() > 35 * 8:
        raise ValueError("an SS58 address of a public key has 35 bytes, this has more")
    data = number.to_bytes(35, "big")
    if data[0] != PREFIX:
        raise ValueError(f"the prefix is {data[0]}, not {PREFIX}")
    if data[33:] != _checksum(data[:33]):
        raise ValueError("its checksum is wrong: a character was changed or left out")
    if address[0] == "1":
        raise ValueError("it begins with a superfluous 1")
    return data[1:33]


def is_address(text: str) -> bool:
    """Whether it is the address of a public key."""
    try:
        decode(text)
    except ValueError:
        return False
    return True
