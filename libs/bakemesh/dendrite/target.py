"""An axon as it is called. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self
from urllib.parse import urlsplit

from yarl import URL

from bakemesh.dendrite.errors import TargetRefused
from bakemesh.protocol.axon import ss58

_HOST = re.compile(r"[A-Za-z0-9._:%-]{1,253}", re.ASCII)
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Target:
    """Where an axon is and whose it is. `hotkey` may be empty for `btauth/1` only, which can name none.

    Raises TargetRefused, so that a typing error is told before anything is sent.
    """

    host: str
    port: int
    hotkey: str = ""
    tls: bool = False
    _urls: dict[str, URL] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if _HOST.fullmatch(self.host) is None:
            raise TargetRefused(f"{self.host[:60]!r} is no host; expected an address or a name")
        if not 0 < self.port < 65536:
            raise TargetRefused(f"port {self.port}; expected 1 to 65535")
        if self.hotkey:
            try:
                ss58.decode(self.hotkey)
            except ValueError as error:
                raise TargetRefused(f"axon hotkey {self.hotkey[:60]!r}: {error}") from None

    @classmethod
    def of_url(cls, url: str, hotkey: str = "") -> Self:
        """The target of `http://host:port` or `https://host:port`. Raises TargetRefused."""
        expected = "expected http://HOST:PORT or https://HOST:PORT"
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise TargetRefused(f"{url[:100]!r}: {error}; {expected}") from None
        if parts.scheme not in _PORTS or not parts.hostname:
            raise TargetRefused(f"{url[:100]!r}: {expected}")
        if parts.username is not None or parts.path not in ("", "/") or parts.query or parts.fragment:
            raise TargetRefused(f"{url[:100]!r} says more than where the axon is; {expected}")
        return cls(parts.hostname, port or _PORTS[parts.scheme], hotkey, tls=parts.scheme == "https")

    @cached_property
    def place(self) -> str:
        """`host:port` for people."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def url(self, name: str) -> URL:
        """The URL of a synapse's route."""
        url = self._urls.get(name)
        if url is None:
            scheme = "https" if self.tls else "http"
            url = URL.build(scheme=scheme, host=self.host, port=self.port, path=f"/{name}")
            self._urls[name] = url
        return url
