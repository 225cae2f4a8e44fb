"""`StreamWriter`: the single writer of a stream. Rows in, in order; each future gives the row's stream
sequence.

The shell around `window`, which holds the order: it sends what the window lets go, hears acknowledgements
in an inbox of its own (one callback a message, no task), asks the stream what is stored when that is not
known (at the start, after a refusal, silence, a lost link), and tries again with pauses for as long as it
takes. Rows never fail for what can pass: a full store and an unreachable server are waited out.
Acknowledgements are handed on in batches, once a turn of the loop. Payloads are kept as they came,
uncopied, until stored.

Left out: keeping rows beyond the process (the owner's journal), and several writers of one stream (not
allowed).
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from nats.aio.msg import Msg

from bakemesh.bus import framing
from bakemesh.bus.connection import Bus
from bakemesh.bus.errors import (
    BusClosed,
    BusError,
    MessageTooLarge,
    NoResponder,
    NotConnected,
    NotFound,
    StoreFull,
    WrongSequence,
)
from bakemesh.bus.events import Closed, Disconnected, Event, Reconnected
from bakemesh.bus.framing import HEAD_ROOM
from bakemesh.bus.jsapi import parse_answer
from bakemesh.bus.outgoing import Outgoing, Row
from bakemesh.bus.storing import MSG_ID
from bakemesh.bus.window import Foreign, Note, Phase, Refusal, Regressed, Window

__all__ = ["Outgoing", "StreamWriter"]

log = logging.getLogger(__name__)

EXPECTED_STREAM = "Nats-Expected-Stream"
SILENCE_S = 5.0  # no acknowledgement for so long, with rows in flight: they are taken for lost
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
_STORED = re.compile(rb'\{"stream":"[^"]*",\s*(?:"domain":"[^"]*",\s*)?"seq":(\d+)')
_LOOK_S = 2.0  # without a leader nobody answers: better asked again soon
_LOOKS = 32  # messages asked for at once in a survey

Stored = Callable[[Sequence[tuple[Outgoing, int]]], None]


class StreamWriter:
    """Writes one stream of the server beside it.

    `stored` hears of every batch of stored rows with their sequences (besides the futures), `noted` of what
    else was found in the stream. Both are called in the loop and must not raise.
    """

    def __init__(
        self,
        bus: Bus,
        stream: str,
        *,
        messages: int = 256,
        size: int = 16 * 2**20,
        silence_s: float = SILENCE_S,
        stored: Stored | None = None,
        noted: Callable[[Note], None] | None = None,
    ) -> None:
        self.stream = stream
        self._bus, self._link, self._api = bus, bus.link, bus.api
        self._limits = (messages, size)
        self._window: Window[Row] = Window(0, messages=messages, size=size)
        self._silence_s = silence_s
        self._on_stored, self._on_note = stored, noted
        self._inbox = f"_INBOX.{bus.settings.party}.{secrets.token_hex(12)}"
        self._waiting: deque[tuple[Row, asyncio.Future[None]]] = deque()  # rows for which there was no room
        self._batch: list[tuple[Row, int]] = []
        self._batching = False
        self._wake = asyncio.Event()
        self._changed = asyncio.Event()
        self._heard = 0.0  # when an answer came, or the first of what is in flight was sent
        self._not_before = 0.0
        self._pause = FIRST_PAUSE_S
        self._loose = False  # sends may be on their way of which no answer will tell
        self._full = False
        self._closed: str | None = None
        self._pump: asyncio.Task[None] | None = None
        self._subscription: Any = None
        self._off: Callable[[], None] = lambda: None
        self._loop = asyncio.get_running_loop()
        self._time = self._loop.time

    @property
    def full(self) -> bool:
        """Whether the store refuses for want of room."""
        return self._full

    @property
    def foreign(self) -> int:
        """How many messages of others were met in the stream."""
        return self._window.foreign

    @property
    def depth(self) -> int:
        """How many rows were put and are not stored."""
        return len(self._window) + len(self._waiting)

    def waiting(self) -> list[Outgoing]:
        """The rows that were put and are not stored, in order."""
        return [*(row.out for row in self._window.rows), *(row.out for row, _ in self._waiting)]

    async def start(self, after: int | None) -> None:
        """Begins. `after`: the last stream sequence whose row is known to be stored (0: none yet); put the
        rows behind it next, in order: those that are stored already are recognised. None: nothing is known,
        begin behind what is there. Raises AccessDenied, NotConnected, BusClosed.
        """
        messages, size = self._limits
        self._window = Window(after, messages=messages, size=size)
        self._subscription = await self._link.listen(f"{self._inbox}.*.*", self._on_answer)
        self._off = self._link.on_event(self._on_event)
        self._pump = asyncio.create_task(self._run(), name=f"writer {self.stream}")

    async def put(self, out: Outgoing) -> asyncio.Future[int]:
        """Adds a row, waiting for room in the window. The future gives its stream sequence once it is stored.

        It is cancelled when the row is taken back, or the writer closed; it fails with MessageTooLarge
        where the server would never take the row. Raises BusClosed.
        """
        if self._closed is not None:
            raise BusClosed(f"{self.stream}: {self._closed}")
        row = Row(out, self._loop.create_future())
        if len(out.payload) > self._link.max_payload - HEAD_ROOM:
            self._fail(row)
            return row.done
        if self._waiting or not self._window.room(row.size):
            admitted: asyncio.Future[None] = self._loop.create_future()
            entry = (row, admitted)
            self._waiting.append(entry)
            try:
                await admitted
            except asyncio.CancelledError:
                if entry in self._waiting:
                    self._waiting.remove(entry)
                    row.done.cancel()
                raise
        else:
            self._window.add(row)
        if self._window.phase is Phase.FLOWING:
            await self._send()
        else:
            self._wake.set()
        return row.done

    async def discard(self, predicate: Callable[[Outgoing], bool]) -> list[Outgoing]:
        """Takes back the rows that `predicate` takes and that are not stored, and gives them; their futures
        are cancelled. What is in flight is settled first, so a row that is not given back is stored, or was
        never put. While the bus is down this waits for it.
        """
        window, taken = self._window, list[Row]()

        def takes(row: Row) -> bool:
            return predicate(row.out)

        window.hold()
        self._wake.set()
        try:
            await asyncio.sleep(0)  # whoever takes back in a loop lets others put meanwhile
            while True:
                taken += self._withdraw(takes)
                if self._closed is not None or not window.unsettled(takes):
                    return [row.out for row in taken]
                self._changed.clear()
                await self._changed.wait()
        finally:
            window.release()
            self._admit()
            self._wake.set()

    def _withdraw(self, takes: Callable[[Row], bool]) -> list[Row]:
        taken = self._window.drop(takes)
        kept: deque[tuple[Row, asyncio.Future[None]]] = deque()
        for row, admitted in self._waiting:
            if takes(row):
                taken.append(row)
                if not admitted.done():
                    admitted.set_result(None)
            else:
                kept.append((row, admitted))
        self._waiting = kept
        for row in taken:
            row.done.cancel()
        return taken

    async def close(self) -> None:
        """Stops at once. Rows that are not stored are cancelled; whoever keeps them puts them again after a
        start.
        """
        self._end("the writer is closed")
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        self._off()
        if self._subscription is not None:
            await self._link.unlisten(self._subscription)
            self._subscription = None

    def _end(self, reason: str) -> None:
        if self._closed is None:
            self._closed = reason
        self._hand_on()
        for row in self._window.drop_all():
            row.done.cancel()
        for row, admitted in self._waiting:
            row.done.cancel()
            if not admitted.done():
                admitted.set_result(None)
        self._waiting.clear()
        self._changed.set()

    # -- what comes in

    def _on_answer(self, msg: Msg) -> None:
        window = self._window
        _, epoch, sequence = msg.subject.rsplit(".", 2)
        self._heard = self._time()
        # An acknowledgement is read by its form, which is much cheaper; all else as the JSON it is.
        if (found := _STORED.match(msg.data)) is not None:
            stored_at = int(found[1])
        else:
            try:
                if not msg.data:
                    raise NoResponder(msg.subject)
                stored_at = int(parse_answer(self.stream, msg.data)["seq"])
            except BusError as error:
                self._refused(int(epoch), int(sequence), error)
                return
        stored = window.acked(int(epoch), int(sequence), stored_at)
        if stored:
            self._pause = FIRST_PAUSE_S
            self._full = False
            self._batch += stored
        if not self._batching:
            self._batching = True
            self._loop.call_soon(self._hand_on)

    def _refused(self, epoch: int, sequence: int, error: BusError) -> None:
        window = self._window
        before = window.phase, window.epoch
        if isinstance(error, StoreFull):
            why = Refusal.FULL
        elif isinstance(error, WrongSequence):
            why = Refusal.STALE
        else:
            why = Refusal.OTHER
        window.refused(epoch, sequence, why)
        if before == (window.phase, window.epoch):
            return
        if window.phase is Phase.FULL:
            if not self._full:
                log.warning("%s: the store has no room: %s", self.stream, error)
            self._full = True
        if why is not Refusal.STALE:
            self._later()
        if why is Refusal.OTHER:
            log.info("%s: refused, will be tried again: %s", self.stream, error)
        self._wake.set()
        self._changed.set()

    def _hand_on(self) -> None:
        """Once a turn of the loop: futures, the owner's callback, room for those who wait; and the pump again
        where there is something to do.
        """
        self._deliver()
        if self._window.ready or self._window.phase is not Phase.FLOWING:
            self._wake.set()

    def _deliver(self) -> None:
        self._batching = False
        batch, self._batch = self._batch, []
        if batch:
            for row, sequence in batch:
                if not row.done.done():
                    row.done.set_result(sequence)
            if self._on_stored is not None:
                self._on_stored([(row.out, sequence) for row, sequence in batch])
        if notes := self._window.notes:
            self._window.notes = []
            for note in notes:
                self._tell(note)
        self._admit()
        self._changed.set()

    def _admit(self) -> None:
        while self._waiting and self._window.room(self._waiting[0][0].size):
            row, admitted = self._waiting.popleft()
            if not admitted.done():
                self._window.add(row)
                admitted.set_result(None)

    def _tell(self, note: Note) -> None:
        if isinstance(note, Foreign | Regressed):
            log.warning("%s: %s", self.stream, note)
        else:
            log.info("%s: %s", self.stream, note)
        if self._on_note is not None:
            self._on_note(note)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Disconnected):
            self._lose()
        elif isinstance(event, Reconnected):
            self._not_before, self._pause = 0.0, FIRST_PAUSE_S
        elif isinstance(event, Closed):
            self._end(event.reason)
        self._wake.set()

    # -- what goes out

    async def _send(self) -> None:
        window, link = self._window, self._link
        while (send := window.take()) is not None:
            if send.sequence == window.base + 1:
                self._heard = self._time()
            out = send.row.out
            if len(out.payload) > link.max_payload - HEAD_ROOM:  # another server may take less
                window.unsent(send)
                self._fail(send.row)
                continue
            reply = f"{self._inbox}.{send.epoch}.{send.sequence}"
            header = framing.headers(out.msg_id, send.sequence - 1, send.behind)
            try:
                await framing.send(link, out.subject, reply, header, out.payload)
            except NotConnected:
                self._lose()
                self._wake.set()
                return

    def _fail(self, row: Row) -> None:
        if not row.done.done():
            error = MessageTooLarge(row.out.subject, len(row.out.payload), self._link.max_payload - HEAD_ROOM)
            row.done.set_exception(error)
            row.done.exception()  # taken: nobody may be waiting

    def _lose(self) -> None:
        """What is in flight may be stored or not; ask the stream."""
        if self._window.in_flight:
            self._loose = True
        self._window.lost()

    def _later(self) -> None:
        self._not_before = self._time() + self._pause
        self._pause = min(LONGEST_PAUSE_S, self._pause * 2)

    async def _run(self) -> None:
        while self._closed is None:
            self._wake.clear()
            wait = await self._step()
            if wait is None:
                await self._wake.wait()
            elif wait > 0:
                await _first(self._wake.wait(), wait)

    async def _step(self) -> float | None:
        """Does what is to be done now; gives the seconds after which to come again, None for when woken."""
        window, now = self._window, self._time()
        if not self._link.connected:
            self._lose()
            return LONGEST_PAUSE_S
        if (early := self._not_before - now) > 0:
            return early
        if window.phase is Phase.UNSURE:
            try:
                await self._survey()
            except BusClosed as error:
                self._end(str(error))
                return None
            except BusError as error:
                log.info("%s: cannot see what is stored, will be tried again: %s", self.stream, error)
                window.lost()
                self._later()
                return 0
            finally:
                # Not waking itself: a survey that waits for a row to compare with would turn round for ever.
                self._deliver()
            if window.phase is Phase.UNSURE:
                # It waits for a row to compare with, or what it saw is out of date.
                return None if window.surveying and not window.wanted() else 0
        if window.phase is Phase.FULL and window.in_flight == 0:
            window.retry()
        await self._send()
        if not window.in_flight:
            return self._silence_s  # rows that go out meanwhile are looked after then
        silent = self._time() - self._heard
        if silent < self._silence_s:
            return self._silence_s - silent
        log.warning("%s: no acknowledgement for %.1f s of %d messages", self.stream, silent, window.in_flight)
        self._lose()
        self._later()
        return 0

    async def _survey(self) -> None:
        """Asks which rows are stored. Raises BusError."""
        window, api = self._window, self._api
        if not window.surveying:
            await self._fence()
            epoch = window.epoch
            info = await api.request(f"STREAM.INFO.{self.stream}", timeout=_LOOK_S)
            if window.epoch != epoch:
                return
            self._batch += window.survey(int(info["state"]["last_seq"]))
        while window.phase is Phase.UNSURE and (wanted := window.wanted(_LOOKS)):
            epoch = window.epoch
            found = await asyncio.gather(*(self._look(sequence) for sequence in wanted))
            if window.epoch != epoch:
                return
            for sequence, msg_id in zip(wanted, found, strict=True):
                self._batch += window.seen(sequence, msg_id)

    async def _look(self, sequence: int) -> str | None:
        # Not the direct way: a replica that lags would not have it, and no stream of ours allows it.
        try:
            found = await self._api.get_message(self.stream, sequence=sequence)
        except NotFound as error:
            if error.err_code != 10037:  # the stream is gone, not the message
                raise
            return None
        return found.headers.get(MSG_ID, "")

    async def _fence(self) -> None:
        """Lets nothing of ours be under way when the stream is asked: the server takes a connection's
        messages in order, so when it has refused this one, it has decided about all before.

        Only needed where rows are about to be taken back; others are recognised whenever they arrive.
        """
        head = self._window.head
        if not self._loose or head is None or not self._window.held:
            return
        out = head.out
        answer = await self._link.ask(out.subject, out.payload, self._silence_s, {EXPECTED_STREAM: "-"})
        log.debug("%s: fence answered %s", self.stream, answer.data[:200])
        self._loose = False


async def _first(waiting: Coroutine[Any, Any, Any], seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await waiting
    except TimeoutError:
        pass
