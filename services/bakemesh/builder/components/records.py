"""Components in the journal: a row each. Functions take the connection; none commits.

What is kept is enough for a Builder that was killed anywhere: the instance is in its row before anything of
it is launched, so that the next Builder knows whom to look for, and launches nothing twice.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field
from typing import NamedTuple

from bakemesh.builder.components.life import Life, from_json, to_json
from bakemesh.builder.components.output import Mark
from bakemesh.protocol.builder.spec.component import ComponentSpec

Db = sqlite3.Connection


class Maker(NamedTuple):
    """The attempt of a step that started it; `since`: the first attempt of a chain that restarts of the
    Builder cut."""

    bake: int
    step: int
    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A component. `n`: the order of creation; `boot`: the node's start in which it was made or started."""

    n: int
    name: str
    owner: str
    boot: str
    life: Life
    maker: Maker | None = None
    mark: Mark = field(default_factory=Mark)  # where in its log the output of its instance begins


def all_rows(db: Db) -> list[Row]:
    """Every component, oldest first."""
    found = db.execute("SELECT n, name, owner, boot, spec, life, maker, mark FROM components ORDER BY n")
    return [
        Row(
            n=n,
            name=name,
            owner=owner,
            boot=boot,
            life=from_json(ComponentSpec.from_json(spec), life),
            maker=None if maker is None else Maker(*json.loads(maker)),
            mark=Mark(*json.loads(mark)),
        )
        for n, name, owner, boot, spec, life, maker, mark in found
    ]


def save_row(db: Db, row: Row) -> None:
    """Writes a component as it is now."""
    db.execute(
        "INSERT OR REPLACE INTO components (n, name, owner, boot, spec, state, instance, life, maker, mark)"
        " VALUES (?,?,?,?,?,?,?,?,?,?)",
        (
            row.n,
            row.name,
            row.owner,
            row.boot,
            row.life.spec.to_json(),
            str(row.life.state),
            row.life.instance,
            to_json(row.life),
            None if row.maker is None else json.dumps(row.maker),
            json.dumps(row.mark),
        ),
    )


def drop_row(db: Db, n: int) -> None:
    """Forgets a component."""
    db.execute("DELETE FROM components WHERE n=?", (n,))
