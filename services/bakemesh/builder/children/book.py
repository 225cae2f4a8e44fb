"""Which children this Builder has out, journaled: a child is written down before it is sent, and struck out
only when it is known to have ended, so that no crash leaves one running unseen. The N of their RecipeIDs
too.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from bakemesh.builder.journal import Journal
from bakemesh.builder.journal.records import get_meta, set_meta
from bakemesh.protocol.identity import Identity

_LAST = "children.last"


class ChildBook:
    """The open children, and a `supervisor.Mint` whose numbers never repeat."""

    def __init__(self, journal: Journal, wall: Callable[[], int]) -> None:
        """`wall`: µs since the epoch."""
        self._journal, self._wall = journal, wall

    async def next(self) -> int:
        """The next N."""
        return await self._journal.commit(lambda db: _advance(db, 0))

    async def leap(self) -> None:
        """Lets N go on from the wall clock's seconds: a journal that was lost had used lower numbers."""
        floor = self._wall() // 1_000_000
        await self._journal.commit(lambda db: _advance(db, floor))

    async def opened(self, bake: int, child: Identity) -> None:
        """Written before the child's recipe is sent. `bake`: the parent's number in the journal."""
        await self._journal.commit(
            lambda db: db.execute(
                "INSERT OR REPLACE INTO children (bake, supervisor, recipe, recipe_id, node, node_id)"
                " VALUES (?,?,?,?,?,?)",
                (bake, child.supervisor, child.recipe, child.recipe_id, child.node, child.node_id),
            )
        )

    async def closed(self, child: Identity) -> None:
        """The child has ended, or never was."""
        await self._journal.commit(
            lambda db: db.execute(
                "DELETE FROM children WHERE supervisor=? AND recipe_id=?", (child.supervisor, child.recipe_id)
            )
        )

    def open_children(self) -> list[Identity]:
        """Every child that is not known to have ended."""
        rows = self._journal.db.execute("SELECT supervisor, recipe, recipe_id, node, node_id FROM children")
        return [Identity(*row) for row in rows.fetchall()]


def _advance(db: sqlite3.Connection, floor: int) -> int:
    number = max(int(get_meta(db, _LAST) or 0), floor) + 1
    set_meta(db, _LAST, str(number))
    return number
