"""What a Startup Supervisor must not forget: one SQLite file in its folder.

    state       boot, announced, changed, offered, the PsySpec's text, names of cohorts written
    sites       one row a node
    recipes     the sealed bytes of bring-ups that have not ended: sending them again is harmless
    letters     Ready and Reconciled, sealed, until they are out

Guarantees: `commit` is one transaction, synced when it returns, so that a crash at any moment leaves the
state before or after a step, never half of one; a letter is sealed in the transaction that decided on it, so
that it has one envelope id for good. Left out: what the values mean.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bakemesh.bus.sealing import Sealed
from bakemesh.protocol.identity import Identity
from bakemesh.startup.state import Sent, Site
from bakemesh.supervisor import Prepared

VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS state (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sites (node_id TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS recipes (
    recipe_id TEXT PRIMARY KEY, identity TEXT NOT NULL, subject TEXT NOT NULL,
    msg_id TEXT NOT NULL, payload BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS letters (
    number INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, target TEXT NOT NULL, payload BLOB NOT NULL
);
"""


class JournalRefused(Exception):
    """Raised when the file is no journal, or one of another version."""


@dataclass(frozen=True, slots=True)
class Letter:
    """Something sealed that is to get out. `kind`: publish (`target` is a subject), note (a key of the nodes
    bucket)."""

    number: int
    kind: str
    target: str
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """One transaction. `sites`: None where a node's row goes. `done`: letters that are out."""

    state: Mapping[str, str]
    sites: Mapping[str, Site | None]
    recipes: Sequence[Prepared] = ()
    dropped: Sequence[str] = ()  # RecipeIDs
    letters: Sequence[tuple[str, str, bytes]] = ()  # kind, target, payload

    def __bool__(self) -> bool:
        return bool(self.state or self.sites or self.recipes or self.dropped or self.letters)


class Journal:
    """The open file. Raises JournalRefused, OSError, sqlite3.Error. Its calls block, and sync; any thread may
    make them.
    """

    def __init__(self, path: Path) -> None:
        self._alone = threading.Lock()
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if version not in (0, VERSION):
                raise JournalRefused(f"{path} is of version {version}; this program reads {VERSION}")
            self._db.executescript(_SCHEMA)
            self._db.execute(f"PRAGMA user_version={VERSION}")
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise JournalRefused(f"{path} is no journal of a Startup Supervisor: {error}") from error
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """Lets it go."""
        self._db.close()

    # -- reading, at the start

    def state(self) -> dict[str, str]:
        """The words of the state."""
        return dict(self._rows("SELECT key, value FROM state"))

    def sites(self) -> dict[str, Site]:
        """Every node's row."""
        return {key: _site(value) for key, value in self._rows("SELECT node_id, value FROM sites")}

    def recipe(self, recipe_id: str) -> Prepared | None:
        """A bring-up as it was sealed."""
        found = self._rows(
            "SELECT identity, subject, msg_id, payload FROM recipes WHERE recipe_id = ?", recipe_id
        )
        if not found:
            return None
        identity, subject, msg_id, payload = found[0]
        return Prepared(Identity(*json.loads(identity)), subject, Sealed(payload, msg_id))

    def letters(self) -> list[Letter]:
        """Those that are not out, in order."""
        return [
            Letter(*row)
            for row in self._rows("SELECT number, kind, target, payload FROM letters ORDER BY number")
        ]

    def _rows(self, query: str, *values: str) -> list[Any]:
        with self._alone:
            return self._db.execute(query, values).fetchall()

    # -- writing

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._alone:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def commit(self, changes: Changes) -> None:
        """All of it or nothing."""
        with self._transaction() as db:
            db.executemany("REPLACE INTO state VALUES (?, ?)", changes.state.items())
            for node_id, site in changes.sites.items():
                if site is None:
                    db.execute("DELETE FROM sites WHERE node_id = ?", (node_id,))
                else:
                    db.execute("REPLACE INTO sites VALUES (?, ?)", (node_id, json.dumps(asdict(site))))
            for each in changes.recipes:
                identity = json.dumps(
                    [
                        each.identity.supervisor,
                        each.identity.recipe,
                        each.identity.recipe_id,
                        each.identity.node,
                        each.identity.node_id,
                    ]
                )
                db.execute(
                    "REPLACE INTO recipes VALUES (?, ?, ?, ?, ?)",
                    (
                        each.identity.recipe_id,
                        identity,
                        each.subject,
                        each.sealed.msg_id,
                        each.sealed.payload,
                    ),
                )
            db.executemany("DELETE FROM recipes WHERE recipe_id = ?", [(each,) for each in changes.dropped])
            db.executemany("INSERT INTO letters (kind, target, payload) VALUES (?, ?, ?)", changes.letters)

    def note(self, key: str, value: str) -> None:
        """One word of the state by itself."""
        with self._transaction() as db:
            db.execute("REPLACE INTO state VALUES (?, ?)", (key, value))

    def out(self, number: int) -> None:
        """A letter is out."""
        with self._transaction() as db:
            db.execute("DELETE FROM letters WHERE number = ?", (number,))


def _site(text: str) -> Site:
    found = json.loads(text)
    sent = found.pop("sent")
    done = found.pop("done")
    return Site(**found, done=tuple(done) if done else None, sent=Sent(**sent) if sent else None)
