"""How large the streams are made. Pure: numbers in, numbers out.

A server reserves a stream's `max_bytes` when the stream is made, whether or not anything is in it. So the
Data streams of a server's nodes share one quarter of its free store, their Status streams another (where 256
MiB for each would be more), and the hub's Data stream has a third; the rest is left for everything else. What
a stream has already is never changed by a default.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 2**20
GIB = 2**30
STATUS_BYTES = 256 * MIB
INBOX_BYTES = 256 * MIB
LARGEST_DEFAULT = 10 * GIB
SMALLEST_DEFAULT = 64 * MIB  # some chunks of the largest kind must fit
FREE_UNKNOWN = 16 * GIB  # what a server that does not tell is taken to have
_SHARE = 4


@dataclass(frozen=True, slots=True)
class Sizes:
    """What somebody wishes: bytes of a node's and of the hub's Data stream (None: the default; a size that
    is set goes to an existing stream too), how many nodes will share the server, and its free store where
    that is known.
    """

    data_bytes: int | None = None
    nodes_expected: int = 1
    hub_data_bytes: int | None = None
    free: int | None = None

    def __post_init__(self) -> None:
        if self.nodes_expected < 1:
            raise ValueError(f"nodes expected: {self.nodes_expected}; at least 1")
        for name, value in (("data", self.data_bytes), ("hub data", self.hub_data_bytes)):
            if value is not None and value < 1:
                raise ValueError(f"size of the {name} stream: {value} bytes; at least 1")

    def data(self, free: int | None) -> int:
        """A node's Data stream on a server with `free` bytes of store; `self.free` goes first."""
        if self.data_bytes is not None:
            return self.data_bytes
        return _bounded(self._quarter(free) // self.nodes_expected)

    def status(self, free: int | None) -> int:
        """A node's Status stream, as `data`."""
        return min(STATUS_BYTES, _bounded(self._quarter(free) // self.nodes_expected))

    def hub_data(self, free: int | None) -> int:
        """The hub's Data stream, as `data`."""
        return _bounded(self._quarter(free)) if self.hub_data_bytes is None else self.hub_data_bytes

    @property
    def hub_status(self) -> int:
        """The hub's Status stream: room for a few nodes' streams at their fullest."""
        return STATUS_BYTES * min(4, self.nodes_expected)

    def _quarter(self, free: int | None) -> int:
        known = free if self.free is None else self.free
        return (FREE_UNKNOWN if known is None else known) // _SHARE


def _bounded(size: int) -> int:
    return max(SMALLEST_DEFAULT, min(LARGEST_DEFAULT, size))


def readable(size: int) -> str:
    """For people: 10.0 GiB."""
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
