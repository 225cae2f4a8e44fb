"""A recipe made ready to send: its identity, its subject and its sealed bytes, as a value.

Because the bytes are fixed before anything is sent, sending them again is harmless: after a lost
acknowledgement, or after a restart by someone who kept them (a Builder journals its child recipes this
way). Pure, but for sealing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bakemesh.protocol import subjects
from bakemesh.protocol.builder.messages import RecipeMessage
from bakemesh.protocol.builder.spec.root import root_name
from bakemesh.protocol.identity import Identity, recipe_id
from bakemesh.supervisor import deliver
from bakemesh.supervisor.errors import MessageTooLarge

if TYPE_CHECKING:
    from bakemesh.bus import Bus, Sealed

SPEC_BYTES = 1024**2


@dataclass(frozen=True, slots=True)
class Prepared:
    """A recipe that may be sent, any number of times."""

    identity: Identity
    subject: str
    sealed: Sealed


@dataclass(frozen=True, slots=True)
class Order:
    """What was asked for, before an id and a node are found. `expires_s` counts from the sending."""

    xml: str
    params: Mapping[str, Any] | None = None
    expires_s: float | None = None
    parent: str | None = None
    parent_supervisor: str | None = None

    def recipe(self, supervisor: str) -> str:
        """The recipe's name: the root's, else the Supervisor's."""
        return root_name(self.xml) or supervisor

    def check(self) -> None:
        """Raises MessageTooLarge for XML that no Builder takes, before an id is spent on it."""
        size = len(self.xml.encode())
        if size > SPEC_BYTES:
            raise MessageTooLarge("the recipe's XML", size, SPEC_BYTES, "a Builder")


def prepare(bus: Bus, order: Order, supervisor: str, number: int, node: str, node_id: str) -> Prepared:
    """The order under RecipeID `<supervisor>-<recipe>-<number>`. Raises NameRefused, MessageTooLarge,
    MessageError.
    """
    recipe = order.recipe(supervisor)
    identity = Identity(supervisor, recipe, recipe_id(supervisor, recipe, number), node, node_id)
    expires = None if order.expires_s is None else time.time_ns() // 1000 + round(order.expires_s * 1_000_000)
    message = RecipeMessage(
        **identity.fields(),
        recipe_spec=order.xml,
        params=dict(order.params) if order.params else None,
        expires=expires,
        parent=order.parent,
        parent_supervisor=order.parent_supervisor,
    )
    sealed = bus.seal(message)
    deliver.check_size(f"recipe {identity.recipe_id}", sealed, bus.max_payload)
    subject = subjects.build(bus.mesh, node_id, supervisor, identity.recipe_id, subjects.RECIPE)
    return Prepared(identity, subject, sealed)
