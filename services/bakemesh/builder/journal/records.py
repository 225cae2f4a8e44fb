"""Rows as values, and the reads and writes of each table. Functions take the connection; none commits."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

import msgpack

from bakemesh.builder.bake.state import State, from_json, to_json
from bakemesh.protocol.builder.lifecycle import TERMINAL, Phase
from bakemesh.protocol.identity import Identity

Db = sqlite3.Connection


@dataclass(slots=True)
class BakeRow:
    """A bake as the journal has it. Times: µs since the epoch; `expires` 0 = never."""

    bake: int
    identity: Identity
    created: int
    expires: int
    received: int
    state: State
    xml: str | None
    params: dict[str, Any]
    serial: int
    seq: int
    open_streams: list[str]
    ended: int | None


@dataclass(frozen=True, slots=True)
class OutRow:
    """A message that waits for the bus. `number`: its serial or seq."""

    n: int
    bake: int
    number: int
    subject: str
    msg_id: str
    payload: bytes


_COLUMNS = (
    "bake, supervisor, recipe, recipe_id, node, node_id, created, expires, received, state, xml, params, "
    "serial, seq, open_streams, ended"
)


def _row(found: tuple[Any, ...]) -> BakeRow:
    return BakeRow(
        bake=found[0],
        identity=Identity(*found[1:6]),
        created=found[6],
        expires=found[7],
        received=found[8],
        state=from_json(json.loads(found[9])),
        xml=found[10],
        params=msgpack.unpackb(found[11], strict_map_key=False) if found[11] is not None else {},
        serial=found[12],
        seq=found[13],
        open_streams=json.loads(found[14]),
        ended=found[15],
    )


def insert_bake(
    db: Db,
    *,
    party: str,
    key: str,
    identity: Identity,
    created: int,
    expires: int,
    received: int,
    state: State,
    xml: str | None,
    params: dict[str, Any] | None,
    ended: int | None = None,
) -> int:
    """Adds a bake (or a refused recipe, with `ended`) and returns its number.

    Raises sqlite3.IntegrityError where (party, key) is used.
    """
    cursor = db.execute(
        "INSERT INTO bakes (party, key, supervisor, recipe, recipe_id, node, node_id, created, expires,"
        " received, phase, state, xml, params, ended) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
        (
            party,
            key,
            identity.supervisor,
            identity.recipe,
            identity.recipe_id,
            identity.node,
            identity.node_id,
            created,
            expires,
            received,
            str(state.phase),
            json.dumps(to_json(state)),
            xml,
            msgpack.packb(params) if params else None,
            ended,
        ),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def save_state(db: Db, bake: int, state: State, serial: int, ended: int | None = None) -> None:
    """Writes the state after an event. A bake that has ended gives its recipe's bytes back."""
    if state.phase in TERMINAL:
        db.execute(
            "UPDATE bakes SET phase=?, state=?, serial=?, ended=?, xml=NULL, params=NULL, open_streams='[]'"
            " WHERE bake=?",
            (str(state.phase), json.dumps(to_json(state)), serial, ended, bake),
        )
        db.execute("DELETE FROM pushes WHERE bake=?", (bake,))
        db.execute("DELETE FROM entries WHERE bake=?", (bake,))
    else:
        db.execute(
            "UPDATE bakes SET phase=?, state=?, serial=? WHERE bake=?",
            (str(state.phase), json.dumps(to_json(state)), serial, bake),
        )


def save_seq(db: Db, bake: int, seq: int, open_streams: list[str]) -> None:
    """Writes the bake's last Data seq and which streams of the running attempt are still open."""
    db.execute("UPDATE bakes SET seq=?, open_streams=? WHERE bake=?", (seq, json.dumps(open_streams), bake))


def live_bakes(db: Db) -> list[BakeRow]:
    """Bakes that have not ended, oldest first."""
    return [
        _row(row) for row in db.execute(f"SELECT {_COLUMNS} FROM bakes WHERE ended IS NULL ORDER BY bake")
    ]


def find_bake(db: Db, party: str, key: str) -> tuple[int, Phase] | None:
    """Number and phase of the bake that uses (party, key)."""
    found = db.execute("SELECT bake, phase FROM bakes WHERE party=? AND key=?", (party, key)).fetchone()
    return None if found is None else (found[0], Phase(found[1]))


def bake_row(db: Db, bake: int) -> BakeRow | None:
    """A bake by its number."""
    found = db.execute(f"SELECT {_COLUMNS} FROM bakes WHERE bake=?", (bake,)).fetchone()
    return None if found is None else _row(found)


def answer_of(db: Db, party: str, envelope: bytes) -> tuple[bytes | None] | None:
    """The journaled Result (or (None,) for none) of a message that came before; None: it is new."""
    found = db.execute(
        "SELECT result FROM answers WHERE party=? AND envelope=?", (party, envelope)
    ).fetchone()
    return None if found is None else (found[0],)


def save_answer(db: Db, party: str, envelope: bytes, result: bytes | None, at: int) -> None:
    """Keeps the Result of a message."""
    db.execute("INSERT OR REPLACE INTO answers VALUES (?,?,?,?)", (party, envelope, result, at))


def last_ctrlseqs(db: Db, bake: int) -> dict[str, int]:
    """Last accepted ctrlseq of each issuer."""
    return dict(db.execute("SELECT issuer, ctrlseq FROM controls WHERE bake=?", (bake,)).fetchall())


def save_ctrlseq(db: Db, bake: int, issuer: str, ctrlseq: int) -> None:
    """Notes an accepted control."""
    db.execute("INSERT OR REPLACE INTO controls VALUES (?,?,?)", (bake, issuer, ctrlseq))


def pushes_of(db: Db, bake: int) -> list[tuple[str, int, bool, bytes]]:
    """(request, part, last, data) of every push, by request and part."""
    rows = db.execute(
        "SELECT request, part, last, data FROM pushes WHERE bake=? ORDER BY request, part", (bake,)
    )
    return [(request, part, bool(last), data) for request, part, last, data in rows]


def save_push(db: Db, bake: int, request: str, part: int, last: bool, data: bytes) -> None:
    """Keeps one part of a push."""
    db.execute("INSERT INTO pushes VALUES (?,?,?,?,?)", (bake, request, part, int(last), data))


def entries_of(db: Db, bake: int) -> dict[str, bytes]:
    """Entries that `<requestdata>` steps kept."""
    return dict(db.execute("SELECT name, data FROM entries WHERE bake=?", (bake,)).fetchall())


def save_entry(db: Db, bake: int, name: str, data: bytes) -> None:
    """Keeps an entry for later steps."""
    db.execute("INSERT OR REPLACE INTO entries VALUES (?,?,?)", (bake, name, data))


def get_meta(db: Db, key: str) -> str | None:
    """A value of the journal's own."""
    found = db.execute("SELECT value FROM meta WHERE key=?", (key,)).fetchone()
    return None if found is None else str(found[0])


def set_meta(db: Db, key: str, value: str) -> None:
    """Sets one."""
    db.execute("INSERT OR REPLACE INTO meta VALUES (?,?)", (key, value))
