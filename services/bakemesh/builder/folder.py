"""The state folder: one Builder at a time, nobody else's to read, and whose it is.

Guarantees: while a `StateFolder` is open no other Builder is on the folder; what the journal and the steps
write is readable for their user alone; a folder is one mesh's for good; a copy of a folder is told from the
folder it was copied from, so that the two are never one Builder to anybody. Left out: what is in it.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import stat
import uuid
from dataclasses import dataclass
from pathlib import Path

from bakemesh.builder.journal import Journal
from bakemesh.builder.journal.records import Db, get_meta, set_meta
from bakemesh.settings.load import UP_FILE
from bakemesh.settings.node import NODE_FILE

log = logging.getLogger(__name__)
JOURNAL, LOCK, BAKES, COMPONENTS = "journal.db", "builder.lock", "bakes", "components"
# What may lie in a folder that is a Builder's own: its rights may be taken from everybody else.
_OURS = {LOCK, BAKES, COMPONENTS, NODE_FILE, UP_FILE, "up.lock", "bus", "startup"}
_LIVES = 16  # of earlier Builders on this folder whose claims are known again


class NodeTaken(Exception):
    """Raised when the node has a Builder already; the process exits with code 6."""


class StateRefused(Exception):
    """Raised when the state folder is another mesh's."""


class StateFolder:
    """The state folder and the lock on it. Raises NodeTaken, OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    @property
    def journal(self) -> Path:
        """The journal's file."""
        return self.path / JOURNAL

    @property
    def bakes(self) -> Path:
        """Where each bake has a folder."""
        return self.path / BAKES

    @property
    def components(self) -> Path:
        """Where each component has a folder."""
        return self.path / COMPONENTS

    def __enter__(self) -> StateFolder:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            held = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(lock)
            raise NodeTaken(
                f"state folder {self.path}: a Builder (pid {held}) runs on it already; "
                "stop it, or give another --state"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        self._lock = lock
        self._tighten()
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _tighten(self) -> None:
        """Takes reading and writing from others: recipes, output and parameters lie here in the clear."""
        # SQLite gives its log and its index the rights of the file.
        os.close(os.open(self.journal, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        for folder in (self.bakes, self.components):
            folder.mkdir(mode=0o700, exist_ok=True)
        names = [entry for entry in self.path.iterdir() if not entry.is_symlink()]
        for each in names:
            if each.name.startswith(f"{Path(JOURNAL).stem}.") or each.name in (BAKES, COMPONENTS):
                _close_to_others(each)
        loose = stat.S_IMODE(self.path.stat().st_mode) & 0o077
        if loose and all(each.name in _OURS or each.name.startswith(("journal.", "node.")) for each in names):
            loose = 0 if _close_to_others(self.path) else loose
        if loose:
            log.warning(
                "state folder %s: others may look into it, and it is not a Builder's alone, so its rights "
                "were let be; give the Builder a folder of its own with --state",
                self.path,
            )


def _close_to_others(path: Path) -> bool:
    """Whether nobody else has rights now. A file of another user is let be."""
    found = path.stat()
    if found.st_uid != os.geteuid() or found.st_mode & stat.S_ISVTX:
        return False
    if found.st_mode & 0o077:
        path.chmod(stat.S_IMODE(found.st_mode) & 0o700)
    return True


@dataclass(frozen=True, slots=True)
class Holder:
    """Whose a folder is. `owner`: the folder's own name for itself, the token of its steps. `life`: this
    Builder's, the owner of its claim; `former`: those of Builders on this folder that are dead. `copied`: the
    folder was copied, or moved, since a Builder was on it last.
    """

    owner: str
    life: str
    former: frozenset[str]
    copied: bool


async def settle(folder: StateFolder, journal: Journal, mesh: str) -> Holder:
    """Who this Builder is; kept in the journal. Raises StateRefused."""
    db = journal.db
    kept = get_meta(db, "mesh")
    if kept is not None and kept != mesh:
        raise StateRefused(
            f"state folder {folder.path} belongs to the mesh {kept!r}, not {mesh!r}: what waits in it goes "
            f"there. Start it with --mesh {kept}, or give this mesh another --state"
        )
    # A copied file is another one. (Its device is not looked at: that may change from boot to boot.)
    place = str(folder.journal.stat().st_ino)
    owner, lives = get_meta(db, "owner"), json.loads(get_meta(db, "lives") or "[]")
    copied = owner is not None and get_meta(db, "place") not in (None, place)
    if copied:
        log.warning("state folder %s was copied or moved since a Builder was on it", folder.path)
    if owner is None or copied:
        owner, lives = uuid.uuid4().hex, []
    life = f"{owner} {uuid.uuid4().hex[:8]}"
    told = {
        "mesh": mesh,
        "place": place,
        "owner": owner,
        "lives": json.dumps([*lives[-_LIVES:], life]),
    }

    def work(db: Db) -> None:
        for key, value in told.items():
            set_meta(db, key, value)

    await journal.commit(work)
    return Holder(owner, life, frozenset(lives), copied)
