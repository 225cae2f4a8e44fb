"""A synapse of one's own: the class says what travels, the function what is done with it.

bakemesh hotkey new axon.json
bakemesh axon examples/axon/reverse.py --hotkey axon.json
"""

from typing import ClassVar

from bakemesh.edge import Axon, Call
from bakemesh.protocol.axon import Synapse

STRANGERS: set[str] = set()


class Reverse(Synapse):
    required_hash_fields: ClassVar = ("text",)  # what the Python SDK signs of the body

    text: str
    reversed: str | None = None  # the handler fills it in


async def reverse(synapse: Reverse, call: Call) -> Reverse:
    synapse.reversed = synapse.text[::-1]
    return synapse


async def refuse(synapse: Reverse, call: Call) -> tuple[bool, str]:
    return call.hotkey in STRANGERS, "not registered"


axon = Axon().attach(reverse, refuse)
