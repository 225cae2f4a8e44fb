"""Who is not served at all: addresses, networks and hotkeys, one a line; `#` begins a comment.

Pure, but for reading the file. Guarantee: a list with a line that is none of these is refused as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Self

from bakemesh.protocol.axon import ss58


class DenyListRefused(ValueError):
    """Raised when a line of a deny list is none: says which, and what would be right."""


class DenyList:
    """What is looked up for every request, before its signature."""

    def __init__(
        self, networks: Iterable[IPv4Network | IPv6Network] = (), hotkeys: Iterable[str] = ()
    ) -> None:
        self._networks = tuple(networks)
        self._hotkeys = frozenset(hotkeys)
        self._look = lru_cache(maxsize=4096)(self._among)

    @classmethod
    def of(cls, text: str, where: str = "the deny list") -> Self:
        """The list of this text. Raises DenyListRefused."""
        networks, hotkeys = [], []
        for number, line in enumerate(text.splitlines(), 1):
            word = line.partition("#")[0].strip()
            if not word:
                continue
            try:
                networks.append(ip_network(word, strict=False))
            except ValueError:
                try:
                    ss58.decode(word)
                except ValueError as error:
                    told = f"{where}, line {number}: {word[:60]!r} is no address, network or hotkey ({error})"
                    raise DenyListRefused(told) from None
                hotkeys.append(word)
        return cls(networks, hotkeys)

    @classmethod
    def read(cls, path: Path | None) -> Self:
        """The list of a file; None: nobody. Raises DenyListRefused, OSError."""
        return cls() if path is None else cls.of(path.read_text(encoding="utf-8"), str(path))

    def address(self, ip: str) -> bool:
        """Whether this address is listed."""
        return bool(self._networks) and self._look(ip)

    def hotkey(self, hotkey: str) -> bool:
        """Whether this hotkey is listed."""
        return hotkey in self._hotkeys

    def _among(self, ip: str) -> bool:
        try:
            found = ip_address(ip)
        except ValueError:
            return False
        plain = getattr(found, "ipv4_mapped", None) or found
        return any(plain in network for network in self._networks)
