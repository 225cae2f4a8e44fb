"""From the journal to the bus: every Status and Data waits here until JetStream has acknowledged it.

One outbox a stream. Rows leave in the order in which they were journaled; an outage of any length keeps them.
`room` is the backpressure: it holds a writer while its bake, or the node, has too much waiting. After a
restart the rows that the bus has stored already are recognised by the `StreamWriter`, which is told the last
stream sequence that was acknowledged (kept in the journal as `stored.<stream>`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable
from functools import partial

from bakemesh.builder.journal import Journal
from bakemesh.builder.journal.payloads import LARGE, Payloads, Place
from bakemesh.builder.journal.records import Db, OutRow, get_meta, set_meta
from bakemesh.bus.writer import Outgoing, StreamWriter

log = logging.getLogger(__name__)
BAKE_BYTES = 8 * 2**20


class Outbox:
    """The waiting messages of one stream. `table` is outbox_status or outbox_data; `payloads`: where large
    ones go, for one outbox alone.
    """

    def __init__(
        self,
        journal: Journal,
        writer: StreamWriter,
        table: str,
        *,
        max_bytes: int,
        bake_bytes: int = BAKE_BYTES,
        payloads: Payloads | None = None,
    ) -> None:
        self.journal, self.writer, self.table = journal, writer, table
        self.max_bytes, self.bake_bytes = max_bytes, bake_bytes
        self.payloads = payloads
        self.bytes = 0
        self._queue: deque[OutRow] = deque()
        self._count: Counter[int] = Counter()  # rows of a bake that are not acknowledged
        self._size: Counter[int] = Counter()
        self._dropped: dict[int, list[OutRow]] = {}  # bakes whose unstored rows are being taken back
        # Hears of a row that can never be stored.
        self.lost: Callable[[OutRow, BaseException], None] | None = None
        self._arrived = asyncio.Event()
        self._changed = asyncio.Event()
        self._acked: list[OutRow] = []
        self._stored = 0
        self._settle: asyncio.Handle | None = None
        self._pump: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Loads what an earlier Builder left and begins to send."""
        db = self.journal.db
        await self._load()
        stored = get_meta(db, f"stored.{self.writer.stream}")
        self._stored = int(stored or 0)
        # A new journal on a stream that is not new: what is there is none of ours.
        await self.writer.start(after=None if stored is None and not self._queue else self._stored)
        self._pump = asyncio.create_task(self._run(), name=f"outbox {self.table}")

    async def _load(self) -> None:
        """Takes the rows of the journal. A power cut may have lost payloads that were not on the disk yet:
        then the bake's output ends before the first of them.
        """
        gone: list[int] = []
        cut: dict[int, int] = {}  # bake → the first number that is lost
        columns = "n, bake, number, subject, msg_id, payload, file, offset, size"
        for n, bake, number, subject, msg_id, payload, *place in self.journal.db.execute(
            f"SELECT {columns} FROM {self.table} ORDER BY n"
        ):
            found = payload
            if payload is None and bake not in cut and self.payloads is not None:
                found = self.payloads.load(Place(*place), msg_id)
            if found is None or bake in cut:
                cut.setdefault(bake, number)
                gone.append(n)
            else:
                self._take(OutRow(n, bake, number, subject, msg_id, found))
        if gone:
            log.error("%d messages of %d bakes were lost with a power cut", len(gone), len(cut))

            def work(db: Db) -> None:
                self.delete(db, gone)
                before = [(number - 1, bake) for bake, number in cut.items()]
                db.executemany("UPDATE bakes SET seq=? WHERE bake=?", before)

            await self.journal.commit(work)
        self._tidy()

    # -- in

    def insert(self, db: Db, bake: int, number: int, subject: str, msg_id: str, payload: bytes) -> OutRow:
        """Adds a row, inside a journal transaction. Give what it returns to `journaled` after the commit."""
        place: tuple[int | None, ...] = (None, None, None)
        if self.payloads is not None and len(payload) >= LARGE:
            place = self.payloads.keep(payload, msg_id)
        cursor = db.execute(
            f"INSERT INTO {self.table} (bake, number, subject, msg_id, payload, file, offset, size)"
            " VALUES (?,?,?,?,?,?,?,?)",
            (bake, number, subject, msg_id, payload if place[0] is None else None, *place),
        )
        assert cursor.lastrowid is not None
        return OutRow(cursor.lastrowid, bake, number, subject, msg_id, payload)

    def journaled(self, row: OutRow) -> None:
        """The row is committed: send it. To be called in the order of the commits (the journal's `after`)."""
        self._take(row)
        self._arrived.set()

    def _take(self, row: OutRow) -> None:
        self._queue.append(row)
        self._count[row.bake] += 1
        self._size[row.bake] += len(row.payload)
        self.bytes += len(row.payload)

    @property
    def depth(self) -> int:
        """How many messages the bus has not acknowledged."""
        return self._count.total()

    def waiting(self, bake: int) -> int:
        """How many messages of the bake the bus has not acknowledged."""
        return self._count[bake]

    def has_room(self, bake: int) -> bool:
        """Whether the bake may add a row now; one row may always be waiting."""
        return self._count[bake] == 0 or (self.bytes < self.max_bytes and self._size[bake] < self.bake_bytes)

    async def room(self, bake: int, *, give_up: Callable[[], bool]) -> bool:
        """True when the bake may add a row; False when it may not and `give_up` says to wait no more."""
        while not self.has_room(bake):
            if give_up():
                return False
            await self._changed.wait()
        return True

    async def drained(self, bake: int, *, give_up: Callable[[], bool]) -> bool:
        """True when every row of the bake is stored by the bus; False when `give_up` says to wait no more."""
        while self._count[bake]:
            if give_up():
                return False
            await self._changed.wait()
        return True

    async def empty(self) -> None:
        """Returns when nothing waits."""
        while self._count:
            await self._changed.wait()

    # -- out

    async def _run(self) -> None:
        while True:
            while self._queue:
                row = self._queue[0]
                if row.bake in self._dropped:
                    self._queue.popleft()
                    self._forget(row)
                    continue
                self._queue.popleft()
                future = await self.writer.put(Outgoing(row.subject, row.msg_id, row.payload))
                future.add_done_callback(partial(self._settled, row))
            self._arrived.clear()
            await self._arrived.wait()

    def _settled(self, row: OutRow, done: asyncio.Future[int]) -> None:
        if done.cancelled():
            if row.bake in self._dropped:
                self._forget(row)
            return
        error = done.exception()
        if error is not None:  # the writer tries again whatever may pass: this one can never be stored
            stream = self.writer.stream
            log.error("%s: message %s of bake %s cannot be stored: %s", stream, row.number, row.bake, error)
            self.journal.post(lambda db: db.execute(f"DELETE FROM {self.table} WHERE n=?", (row.n,)))
            self._release(row)
            self.wake()
            if self.lost is not None:
                self.lost(row, error)
            return
        self._stored = max(self._stored, done.result())
        self._acked.append(row)
        if self._settle is None:
            self._settle = asyncio.get_running_loop().call_soon(self._write_acked)

    def _write_acked(self) -> None:
        self._settle = None
        acked, self._acked = self._acked, []
        stored, key = self._stored, f"stored.{self.writer.stream}"

        def work(db: Db) -> None:
            db.executemany(f"DELETE FROM {self.table} WHERE n=?", [(row.n,) for row in acked])
            set_meta(db, key, str(stored))

        self.journal.post(work, self._tidy)
        for row in acked:
            self._release(row)
        self.wake()

    def _tidy(self, _done: None = None) -> None:
        """Removes the files of payloads that no row needs any more."""
        if self.payloads is not None:
            query = f"SELECT min(file) FROM {self.table} WHERE file IS NOT NULL"
            (oldest,) = self.journal.db.execute(query).fetchone()
            self.payloads.tidy(oldest)

    def _release(self, row: OutRow) -> None:
        self._count[row.bake] -= 1
        self._size[row.bake] -= len(row.payload)
        self.bytes -= len(row.payload)
        if self._count[row.bake] <= 0:
            del self._count[row.bake], self._size[row.bake]

    def _forget(self, row: OutRow) -> None:
        """A row that was taken back. It stays in the journal until the bake's terminal is written with it."""
        self._dropped[row.bake].append(row)
        self._release(row)
        self.wake()

    def wake(self) -> None:
        """Lets everybody who waits here look again."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def discard(self, bake: int, subject: str) -> list[OutRow]:
        """Takes back the bake's messages that are not stored, and gives them in order.

        What is with the writer is settled first: what the bus has stored stays stored and counts. `delete`
        the rows in the transaction that writes what was made of them: until then a crash finds them again.
        """
        taken: list[OutRow] = []
        self._dropped[bake] = taken
        try:
            mine = [row for row in self._queue if row.bake == bake]
            self._queue = deque(row for row in self._queue if row.bake != bake)
            for row in mine:
                self._forget(row)
            while self._count[bake]:
                changed = self._changed
                await self.writer.discard(lambda out: out.subject == subject)
                if self._count[bake] and not changed.is_set():
                    await changed.wait()
        finally:
            del self._dropped[bake]
        return sorted(taken, key=lambda row: row.n)

    def delete(self, db: Db, numbers: Iterable[int]) -> None:
        """Removes rows that `discard` gave, by their `n`, inside a journal transaction."""
        db.executemany(f"DELETE FROM {self.table} WHERE n=?", [(n,) for n in numbers])

    async def close(self) -> None:
        """Stops sending; what waits stays in the journal."""
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        if self._settle is not None:
            self._settle.cancel()
            self._write_acked()
        await self.writer.close()
