"""Names that become subject tokens, checked where they are written.

A token matches `[A-Za-z0-9_-]`, 1 to 64 characters; the limits of each kind are in `LIMITS` (RecipeID: the
sum of its parts). A refused name says which character, or how long it may be.
"""

from __future__ import annotations

import re

from bakemesh.protocol.errors import NameRefused

TOKEN_LENGTH = 64
LIMITS = {
    "NodeID": 24,
    "Node": 32,
    "Supervisor": 32,
    "Recipe": 32,
    "RecipeID": 128,
    "module": 32,
    "step": 64,
    "mesh": 32,
}

# No node may be called so: `any` is whichever node has room, `hub` the JetStream domain of the hub.
RESERVED_NODE_IDS = frozenset({"any", "hub"})

_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]")


def check(what: str, value: object) -> str:
    """Returns `value` if it may be a token of the kind `what` (a key of LIMITS, else 64 characters).

    Raises NameRefused, which names the offending character.
    """
    if not isinstance(value, str):
        raise NameRefused(what, value, f"must be text, not {type(value).__name__}")
    if not value:
        raise NameRefused(what, value, "must not be empty")
    limit = LIMITS.get(what, TOKEN_LENGTH)
    if found := _FORBIDDEN.search(value):
        raise NameRefused(
            what, value[:80], f"holds {found.group()!r}; only letters, digits, '_' and '-' are allowed"
        )
    if len(value) > limit:
        raise NameRefused(what, value[:80], f"is {len(value)} characters long; at most {limit} are allowed")
    return value


def is_valid(what: str, value: object) -> bool:
    """Whether `check` would take it."""
    try:
        check(what, value)
    except NameRefused:
        return False
    return True


def check_own_node_id(value: object) -> str:
    """Returns `value` if a node may have it as its own id. Raises NameRefused."""
    node_id = check("NodeID", value)
    if node_id in RESERVED_NODE_IDS:
        raise NameRefused("NodeID", node_id, "is reserved; choose another id for this node")
    return node_id
