"""One SQLite file, one writer, transactions in groups; large payloads in files beside it (`payloads`).

`commit(work)` runs `work(connection)` in the next transaction, together with whatever else was asked for in
the same turn of the loop, and returns when that transaction is on its way to the disk: a crash of the process
loses nothing that was committed; a power cut loses what the disk had not synced, unless `synchronous` is
FULL. A full disk is waited out: the transaction is tried again until there is room, `full` says so meanwhile,
and whoever awaits is held back. Work is plain and quick, never awaits, and may run more than once, so it must
change nothing but the journal; `after` callbacks run once, in the order of the commits.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from bakemesh.builder.journal import schema
from bakemesh.builder.journal.payloads import Payloads

T = TypeVar("T")
log = logging.getLogger(__name__)
RETRY_S = 0.25


class JournalClosed(Exception):
    """Raised when something is to be committed after the journal was closed."""


class JournalBroken(Exception):
    """Raised when the file cannot be written any more, and waiting would not help: the Builder must end."""


class JournalRefused(Exception):
    """Raised when the journal's file is of another version, or is no journal."""


class _Job:
    __slots__ = ("after", "future", "work")

    def __init__(
        self,
        work: Callable[[sqlite3.Connection], Any],
        after: Callable[[Any], None] | None,
        future: asyncio.Future[Any] | None,
    ) -> None:
        self.work, self.after, self.future = work, after, future


class Journal:
    """The open journal. `full` is True while the disk has no room for it."""

    def __init__(self, path: Path, *, sync_always: bool = False) -> None:
        """Opens or makes the file. Raises JournalRefused, OSError."""
        self.path = path
        self.payloads = Payloads(path.with_suffix(".payloads"), durable=sync_always)
        self._sync_always = sync_always
        self.full = False
        self.on_full: Callable[[bool], None] | None = None
        self._broken: JournalBroken | None = None
        self._broke = asyncio.Event()
        self._jobs: list[_Job] = []
        self._flush_handle: asyncio.Handle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._closed = False
        try:
            self._db = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute(f"PRAGMA synchronous={'FULL' if sync_always else 'NORMAL'}")
            self._db.execute("PRAGMA wal_autocheckpoint=2000")
            self._db.execute("PRAGMA journal_size_limit=67108864")
            self._db.execute("PRAGMA cache_size=-16384")
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if version not in schema.READABLE:
                raise JournalRefused(
                    f"{path}: journal version {version}; this Builder reads {schema.VERSION}. "
                    "Use the bakemesh version that wrote it, or another --state folder."
                )
            self._db.executescript(schema.TABLES)
            self._db.execute(f"PRAGMA user_version={schema.VERSION}")
        except sqlite3.DatabaseError as error:
            raise JournalRefused(f"{path}: not a usable journal: {error}") from error

    @property
    def db(self) -> sqlite3.Connection:
        """For reading. Writes go through `commit`."""
        return self._db

    async def commit(
        self, work: Callable[[sqlite3.Connection], T], after: Callable[[T], None] | None = None
    ) -> T:
        """Runs `work` in the next transaction and returns its result once that is committed."""
        if self._broken is not None:
            raise self._broken
        if self._closed:
            raise JournalClosed
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._add(_Job(work, after, future))
        return await asyncio.shield(future)

    def post(self, work: Callable[[sqlite3.Connection], T], after: Callable[[T], None] | None = None) -> None:
        """Runs `work` in a coming transaction; nobody waits for it."""
        if not self._closed:
            self._add(_Job(work, after, None))

    def _add(self, job: _Job) -> None:
        self._jobs.append(job)
        if self._flush_handle is None and self._retry is None:
            self._flush_handle = asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_handle = self._retry = None
        jobs, self._jobs = self._jobs, []
        if not jobs:
            return
        try:
            done = self._transact(jobs)
        except (sqlite3.Error, OSError) as error:
            self._break(jobs, error)
            return
        if done is None:  # no room: the same jobs again, before any later ones
            self._jobs = jobs + self._jobs
            self._set_full(True)
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._flush)
            return
        self._set_full(False)
        for job, result in done:
            if job.after is not None:
                job.after(result)
            if job.future is not None and not job.future.done():
                job.future.set_result(result)

    def _transact(self, jobs: list[_Job]) -> list[tuple[_Job, Any]] | None:
        """All jobs in one transaction; a job that raises is left out and told so. None: the disk is full."""
        while True:
            done: list[tuple[_Job, Any]] = []
            job: _Job | None = None
            try:
                self._db.execute("BEGIN IMMEDIATE")
                for job in jobs:
                    done.append((job, job.work(self._db)))  # noqa: PERF401 — `job` names a failing one
                job = None
                if self._sync_always:
                    self.payloads.sync()
                self._db.execute("COMMIT")
                return done
            except Exception as error:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                if _is_full(error):
                    return None
                if job is None:
                    raise
                jobs = [each for each in jobs if each is not job]
                if job.future is not None and not job.future.done():
                    job.future.set_exception(error)
                else:
                    log.error("journal: a posted write failed", exc_info=error)

    def _break(self, jobs: list[_Job], error: Exception) -> None:
        """No transaction can begin or end: nothing that was asked for is done, and nothing will be."""
        self._broken = JournalBroken(f"journal {self.path}: {error}")
        self._broke.set()
        for job in jobs:
            if job.future is not None and not job.future.done():
                job.future.set_exception(self._broken)

    async def watch(self) -> None:
        """Waits for the journal to break, and raises JournalBroken then."""
        await self._broke.wait()
        assert self._broken is not None
        raise self._broken

    def _set_full(self, full: bool) -> None:
        if full != self.full:
            self.full = full
            (log.error if full else log.warning)(
                "journal %s: %s", self.path, "no room on the disk; waiting" if full else "there is room again"
            )
            if self.on_full:
                self.on_full(full)

    def close(self) -> None:
        """Commits what waits (once, if there is room) and closes the file. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for handle in (self._flush_handle, self._retry):
            if handle is not None:
                handle.cancel()
        jobs, self._jobs = self._jobs, []
        done: list[tuple[_Job, Any]] | None = []
        if jobs and self._broken is None:
            with contextlib.suppress(sqlite3.Error, OSError):
                done = self._transact(jobs)
        told = {id(job) for job, _ in done or ()}
        for job, result in done or ():
            if job.after is not None:
                job.after(result)
            if job.future is not None and not job.future.done():
                job.future.set_result(result)
        for job in jobs:
            if id(job) not in told and job.future is not None and not job.future.done():
                job.future.set_exception(JournalClosed())
        with contextlib.suppress(sqlite3.Error):
            self._db.close()
        self.payloads.close()


def _is_full(error: Exception) -> bool:
    """Whether waiting for room can help: no space, or the file system refused to write."""
    if isinstance(error, OSError):  # of a payload's file
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE)
    return isinstance(error, sqlite3.OperationalError) and getattr(error, "sqlite_errorcode", 0) & 0xFF in (
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
    )
