"""The protocol on the base install alone: the same bytes without the library of the short way."""

from __future__ import annotations

import subprocess
import sys

import msgpack

ID = bytes(range(16))
STATUS = {
    "Supervisor": "s",
    "Recipe": "r",
    "RecipeID": "s-r-1",
    "Node": "n",
    "NodeID": "n1",
    "kind": "step",
    "serial": 3,
    "pct": -1,
    "summary": "ä",
    "final": 0,
    "stepindex": 0,
}


def test_all_works_without_msgspec() -> None:
    program = (
        "import sys; sys.modules['msgspec'] = None\n"
        "from bakemesh.protocol import message, quick\n"
        "from bakemesh.protocol.builder.messages import BakeStatus\n"
        "assert not quick.installed\n"
        f"made = BakeStatus.from_entries({STATUS!r})\n"
        f"payload = message.encode(made, id={ID!r}, created=7, sender='b@n')\n"
        "assert message.quickly(payload, BakeStatus.TYPE) is None\n"
        "assert message.decode(payload).message == made\n"
        "print(payload.hex())\n"
    )
    fields = {
        "v": 1,
        "type": "Psyclone.Builder.Bake.Status",
        "id": ID,
        "created": 7,
        "from": "b@n",
        "entries": STATUS,
    }
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert bytes.fromhex(found.stdout) == msgpack.packb(fields)
