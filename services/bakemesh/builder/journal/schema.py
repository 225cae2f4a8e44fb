"""The tables. SQLite in WAL mode, one file in the state folder; `VERSION` is checked when it is opened.

From one version of READABLE to the next tables were only added, which opening does: nothing is converted.
"""

from __future__ import annotations

VERSION = 3
READABLE = frozenset({0, 2, VERSION})  # 0: a new file

TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- One row a (party, key) that was ever used on this node, so that a RecipeID is refused for ever. party and
-- key are those of the reverse subjects: (Supervisor, RecipeID) where it was baked. At the end xml and params
-- go. open_streams: those that the running attempt wrote to and has not ended. purged, as bits: 1 Data,
-- 2 all, 4 all Status but the terminal.
CREATE TABLE IF NOT EXISTS bakes (
  bake INTEGER PRIMARY KEY, party TEXT NOT NULL, key TEXT NOT NULL,
  supervisor TEXT NOT NULL, recipe TEXT NOT NULL, recipe_id TEXT NOT NULL,
  node TEXT NOT NULL, node_id TEXT NOT NULL,
  created INTEGER NOT NULL, expires INTEGER NOT NULL, received INTEGER NOT NULL,
  phase TEXT NOT NULL, state TEXT NOT NULL, xml TEXT, params BLOB,
  serial INTEGER NOT NULL DEFAULT 0, seq INTEGER NOT NULL DEFAULT 0,
  open_streams TEXT NOT NULL DEFAULT '[]',
  ended INTEGER, purged INTEGER NOT NULL DEFAULT 0,
  UNIQUE (party, key)
);
CREATE INDEX IF NOT EXISTS bakes_live ON bakes (phase) WHERE ended IS NULL;
CREATE INDEX IF NOT EXISTS bakes_kept ON bakes (ended, bake) WHERE ended IS NOT NULL AND (purged & 2) = 0;

-- The journaled Result of each message that the inbox delivered: said again when it comes again.
CREATE TABLE IF NOT EXISTS answers (
  party TEXT NOT NULL, envelope BLOB NOT NULL, result BLOB, at INTEGER NOT NULL, PRIMARY KEY (party, envelope)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS answers_at ON answers (at);

CREATE TABLE IF NOT EXISTS controls (
  bake INTEGER NOT NULL, issuer TEXT NOT NULL, ctrlseq INTEGER NOT NULL, PRIMARY KEY (bake, issuer)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS pushes (
  bake INTEGER NOT NULL, request TEXT NOT NULL, part INTEGER NOT NULL, last INTEGER NOT NULL,
  data BLOB NOT NULL, PRIMARY KEY (bake, request, part)
);
CREATE TABLE IF NOT EXISTS entries (
  bake INTEGER NOT NULL, name TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (bake, name)
);

-- What the bus has not acknowledged yet, in the order in which it goes out. payload NULL: it lies in a file.
CREATE TABLE IF NOT EXISTS outbox_status (
  n INTEGER PRIMARY KEY AUTOINCREMENT, bake INTEGER NOT NULL, number INTEGER NOT NULL,
  subject TEXT NOT NULL, msg_id TEXT NOT NULL, payload BLOB, file INTEGER, offset INTEGER, size INTEGER
);
CREATE TABLE IF NOT EXISTS outbox_data (
  n INTEGER PRIMARY KEY AUTOINCREMENT, bake INTEGER NOT NULL, number INTEGER NOT NULL,
  subject TEXT NOT NULL, msg_id TEXT NOT NULL, payload BLOB, file INTEGER, offset INTEGER, size INTEGER
);
CREATE INDEX IF NOT EXISTS outbox_data_files ON outbox_data (file) WHERE file IS NOT NULL;

-- Recipes that went to another node: as forwarded bytes, and as children of a recipe step.
CREATE TABLE IF NOT EXISTS forwards (
  id INTEGER PRIMARY KEY, subject TEXT NOT NULL, msg_id TEXT NOT NULL,
  headers BLOB NOT NULL, payload BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS children (
  bake INTEGER NOT NULL, supervisor TEXT NOT NULL, recipe TEXT NOT NULL, recipe_id TEXT NOT NULL,
  node TEXT NOT NULL, node_id TEXT NOT NULL, PRIMARY KEY (supervisor, recipe_id)
) WITHOUT ROWID;

-- Components, whatever their state. `instance`: the start that is under way or runs, there before it is
-- launched. `boot`: the node's start it belongs to. `life`: all that its core keeps (`components.life`).
CREATE TABLE IF NOT EXISTS components (
  n INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, boot TEXT NOT NULL,
  spec TEXT NOT NULL, state TEXT NOT NULL, instance TEXT, life TEXT NOT NULL, maker TEXT, mark TEXT NOT NULL
);
"""
