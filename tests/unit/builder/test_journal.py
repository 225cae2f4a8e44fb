"""The journal: groups, order, what a failing job costs the others, and a disk without room."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from bakemesh.builder.journal import Journal, JournalClosed, JournalRefused
from bakemesh.builder.journal.records import get_meta, set_meta
from support.waiting import eventually


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


async def test_commits_come_back_in_order_and_survive(path: Path) -> None:
    journal = Journal(path)
    order: list[int] = []

    def numbered(number: int):  # type: ignore[no-untyped-def]
        def work(db: sqlite3.Connection) -> int:
            set_meta(db, f"k{number}", str(number))
            return number

        return work

    results = await asyncio.gather(*(journal.commit(numbered(n), order.append) for n in range(50)))
    assert results == list(range(50))
    assert order == list(range(50))
    journal.close()
    again = Journal(path)
    assert get_meta(again.db, "k49") == "49"
    again.close()


async def test_a_job_that_fails_takes_no_other_with_it(path: Path) -> None:
    journal = Journal(path)

    def bad(db: sqlite3.Connection) -> None:
        set_meta(db, "half", "done")
        raise ValueError("bad job")

    good = journal.commit(lambda db: set_meta(db, "good", "1"))
    results = await asyncio.gather(good, journal.commit(bad), return_exceptions=True)
    assert results[0] is None
    assert isinstance(results[1], ValueError)
    assert get_meta(journal.db, "good") == "1"
    assert get_meta(journal.db, "half") is None
    journal.close()


async def test_a_full_disk_is_waited_out_and_nothing_is_lost_or_done_twice(path: Path) -> None:
    journal = Journal(path)
    (pages,) = journal.db.execute("PRAGMA page_count").fetchone()
    journal.db.execute(f"PRAGMA max_page_count={pages + 4}")
    told: list[bool] = []
    journal.on_full = told.append
    blob = "x" * 400_000
    writes = [
        asyncio.create_task(journal.commit(lambda db, n=n: set_meta(db, f"big{n}", blob))) for n in range(3)
    ]
    await eventually(lambda: journal.full, within=10, what="a full disk")
    assert not any(task.done() for task in writes)
    journal.db.execute("PRAGMA max_page_count=100000")
    async with asyncio.timeout(10):
        await asyncio.gather(*writes)
    assert told == [True, False]
    assert [get_meta(journal.db, f"big{n}") == blob for n in range(3)] == [True] * 3
    journal.close()


async def test_a_closed_journal_refuses(path: Path) -> None:
    journal = Journal(path)
    waiting = asyncio.create_task(journal.commit(lambda db: set_meta(db, "a", "1")))
    await asyncio.sleep(0)
    journal.close()
    await waiting
    with pytest.raises(JournalClosed):
        await journal.commit(lambda db: None)


def test_another_file_is_refused_with_its_name(path: Path) -> None:
    path.write_bytes(b"this is no database at all, but long enough to be looked at" * 100)
    with pytest.raises(JournalRefused, match=r"journal\.db"):
        Journal(path)


def test_another_version_is_refused(path: Path) -> None:
    Journal(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=99")
    db.close()
    with pytest.raises(JournalRefused, match="99"):
        Journal(path)
