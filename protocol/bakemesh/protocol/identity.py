"""The five identity entries of a bake, and the RecipeID that ties them together.

RecipeID is `<supervisor>-<recipe>-N`. It does not parse back into its parts (names may hold '-'), so a bake
is identified by the pair (Supervisor, RecipeID). Source: protocol/builder-v1.md, "Identity".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from bakemesh.protocol import names
from bakemesh.protocol.errors import NameRefused
from bakemesh.protocol.message import Message

ENTRIES = ("Supervisor", "Recipe", "RecipeID", "Node", "NodeID")
_COUNTER = re.compile(r"[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True)
class Identity:
    """The five entries of one bake."""

    supervisor: str
    recipe: str
    recipe_id: str
    node: str
    node_id: str

    @property
    def key(self) -> tuple[str, str]:
        """What identifies the bake: (Supervisor, RecipeID)."""
        return self.supervisor, self.recipe_id

    def fields(self) -> dict[str, Any]:
        """As keyword arguments of an IdentityMessage."""
        return {
            "supervisor": self.supervisor,
            "recipe": self.recipe,
            "recipe_id": self.recipe_id,
            "node": self.node,
            "node_id": self.node_id,
        }


class IdentityMessage(Message):
    """A message of a bake: the five entries, always present."""

    supervisor: str = Field(alias="Supervisor")
    recipe: str = Field(alias="Recipe")
    recipe_id: str = Field(alias="RecipeID")
    node: str = Field(alias="Node")
    node_id: str = Field(alias="NodeID")

    @property
    def identity(self) -> Identity:
        """The five entries as one value."""
        return Identity(self.supervisor, self.recipe, self.recipe_id, self.node, self.node_id)


def recipe_id(supervisor: str, recipe: str, number: int) -> str:
    """`<supervisor>-<recipe>-N`. Raises NameRefused where a part is no token or N is not 1 or more."""
    names.check("Supervisor", supervisor)
    names.check("Recipe", recipe)
    if number < 1:
        raise NameRefused("RecipeID", number, "N counts from 1")
    return names.check("RecipeID", f"{supervisor}-{recipe}-{number}")


def check(identity: Identity) -> None:
    """Raises NameRefused where an entry is no token of its kind or RecipeID does not follow its pattern."""
    names.check("Supervisor", identity.supervisor)
    names.check("Recipe", identity.recipe)
    names.check("RecipeID", identity.recipe_id)
    names.check("Node", identity.node)
    names.check("NodeID", identity.node_id)
    prefix = f"{identity.supervisor}-{identity.recipe}-"
    rest = identity.recipe_id.removeprefix(prefix)
    if rest == identity.recipe_id or not _COUNTER.fullmatch(rest):
        raise NameRefused("RecipeID", identity.recipe_id, f"must be {prefix}N with N from 1")
