"""What was recorded from the real SDK (tests/fixtures/axon), and the development keys that signed it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bakemesh.protocol.axon import Hotkey

FOLDER = Path(__file__).parents[1] / "fixtures" / "axon"

# The mini secrets of //Alice, //Bob and //Charlie, which every Substrate chain knows.
ALICE = Hotkey.from_seed(bytes.fromhex("e5be9a5092b81bca64be81d212e7f2f9eba183bb7a90954f7b76361f6edb5c0a"))
BOB = Hotkey.from_seed(bytes.fromhex("398f0c28f98885e046333d4a41c19cee4c37368a9832c6502f6cfd182e2aef89"))
CHARLIE = Hotkey.from_seed(bytes.fromhex("bc1ede780f784bb6991a585e4f6e61522c14e1cae6ad0895fb57b9a205a8f938"))


def recorded(name: str) -> Any:
    """A fixture by the name of its file."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def exchanges() -> list[str]:
    """The names of those that are one request and its answer."""
    return sorted(path.stem for path in FOLDER.glob("*.json") if "request" in recorded(path.stem))


def raw_headers(side: dict[str, Any]) -> list[tuple[bytes, bytes]]:
    """The headers of a recorded request or answer as a server gives them."""
    return [(key.encode("latin-1"), value.encode("latin-1")) for key, value in side["headers"]]
