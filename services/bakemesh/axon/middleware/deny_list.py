"""Addresses that are not served; asked before anything is read or computed.

The answer says that the address is listed, to whoever has that address. Hotkeys are looked up in
`verification`, where the answer can be that of a wrong signature.
"""

from __future__ import annotations

from bakemesh.axon.denied import DenyList
from bakemesh.axon.exchange import Exchange
from bakemesh.axon.refused import Refused
from bakemesh.protocol.axon.verdicts import Verdict


class DenyAddresses:
    """The step."""

    def __init__(self, denied: DenyList) -> None:
        self._denied = denied

    def __call__(self, exchange: Exchange) -> None:
        """Raises Refused."""
        if self._denied.address(exchange.ip):
            raise Refused(Verdict.BLACKLISTED, "Forbidden.", unsigned=True)
