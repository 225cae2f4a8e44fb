"""The go-back-N window against a model of a stream: whatever is lost, refused, injected or purged, what is
stored is what was put, in order, each row once."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bakemesh.bus.window import Foreign, Late, Phase, Purged, Refusal, Regressed, Send, Skipped, Window


@dataclass(frozen=True)
class Row:
    msg_id: str
    size: int = 1


class Stream:
    """What a stream does with a publish: checks both expectations, refuses when full, else appends."""

    def __init__(self) -> None:
        self.messages: dict[int, str] = {}  # sequence → id, "" for a message without one
        self.history: list[str] = []  # every id ever stored
        self.last = 0
        self.last_id = ""
        self.full = False

    def publish(self, sequence: int | None, behind: str | None, msg_id: str) -> int | Refusal:
        if sequence is not None and sequence != self.last + 1:
            return Refusal.STALE
        if behind is not None and behind != self.last_id:
            return Refusal.STALE
        if self.full:
            return Refusal.FULL
        self.last += 1
        self.messages[self.last] = self.last_id = msg_id
        self.history.append(msg_id)
        return self.last


class Writer:
    """A shell without time: wires in both directions, and a survey in steps."""

    def __init__(self, stream: Stream, after: int | None, limit: int = 8) -> None:
        self.stream = stream
        self.window: Window[Row] = Window(after, messages=limit)
        self.out: deque[Send[Row]] = deque()
        self.back: deque[tuple[int, int, int | Refusal]] = deque()
        self.stored: list[tuple[str, int]] = []

    def put(self, msg_id: str) -> bool:
        if not self.window.room(1):
            return False
        self.window.add(Row(msg_id))
        self.send()
        return True

    def send(self) -> None:
        while (send := self.window.take()) is not None:
            self.out.append(send)

    def deliver(self) -> None:
        if self.out:
            send = self.out.popleft()
            answer = self.stream.publish(send.sequence, send.behind, send.row.msg_id)
            self.back.append((send.epoch, send.sequence, answer))

    def hear(self) -> None:
        if not self.back:
            return
        epoch, sequence, answer = self.back.popleft()
        if isinstance(answer, Refusal):
            self.window.refused(epoch, sequence, answer)
        else:
            self.note(self.window.acked(epoch, sequence, answer))
        self.send()

    def survey(self) -> None:
        """One look at the stream, if one is wanted."""
        if self.window.phase is not Phase.UNSURE:
            return
        if not self.window.surveying:
            self.note(self.window.survey(self.stream.last))
        for sequence in self.window.wanted(3):
            self.note(self.window.seen(sequence, self.stream.messages.get(sequence)))
        self.send()

    def note(self, rows: list[tuple[Row, int]]) -> None:
        self.stored += [(row.msg_id, sequence) for row, sequence in rows]

    def settle(self) -> None:
        """Lets everything come to rest."""
        self.stream.full = False
        for _ in range(2000):
            self.deliver()
            self.hear()
            self.survey()
            if self.window.phase is Phase.FULL:
                self.window.retry()
                self.send()
            if not (self.out or self.back or len(self.window)):
                return
        raise AssertionError(f"never at rest: {self.window.phase}, {len(self.window)} rows")


STEPS = st.lists(
    st.sampled_from(
        ["put"] * 6
        + ["deliver"] * 5
        + ["hear"] * 5
        + ["survey"] * 4
        + ["break out", "break back", "lose", "lag", "foreign", "full", "room", "retry", "other", "swap"]
    ),
    max_size=150,
)


def run(steps: list[str], writer: Writer, put: list[str], prefix: str = "r") -> None:
    for step in steps:
        match step:
            case "put":
                name = f"{prefix}{len(put)}"
                if writer.put(name):
                    put.append(name)
            case "deliver":
                writer.deliver()
            case "hear":
                writer.hear()
            case "survey":
                writer.survey()
            case "break out":  # the link breaks: what was on its way is gone, in both directions
                writer.out.clear()
                writer.back.clear()
                writer.window.lost()
            case "break back":  # all arrives, no answer does
                while writer.out:
                    writer.deliver()
                writer.back.clear()
                writer.window.lost()
            case "lose":  # one message vanishes
                if writer.out:
                    writer.out.popleft()
            case "lag":  # time is up; what was sent arrives later all the same
                writer.window.lost()
            case "foreign":
                writer.stream.publish(None, None, "")
            case "full":
                writer.stream.full = True
            case "room":
                writer.stream.full = False
            case "retry":
                if writer.window.phase is Phase.FULL:
                    writer.window.retry()
                    writer.send()
            case "swap":  # answers of different servers of a cluster overtake each other
                writer.back.reverse()
            case "other":  # a refusal that tells nothing
                if writer.out:
                    send = writer.out.popleft()
                    writer.back.append((send.epoch, send.sequence, Refusal.OTHER))


def rest(writer: Writer) -> None:
    writer.window.lost()  # the silence after the last step
    writer.settle()


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_stored_is_what_was_put_in_order_each_once(steps: list[str]) -> None:
    stream = Stream()
    writer, put = Writer(stream, 0), list[str]()
    run(steps, writer, put)
    rest(writer)
    assert [one for one in stream.history if one] == put
    assert [name for name, _ in writer.stored] == put
    assert all(stream.messages[sequence] == name for name, sequence in writer.stored)
    assert writer.window.foreign == sum(isinstance(note, Foreign) for note in writer.window.notes)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    before=STEPS, after=STEPS, journaled=st.integers(0, 200), strays=st.booleans(), looks=st.integers(0, 3)
)
def test_a_restart_recognises_what_is_stored(
    before: list[str], after: list[str], journaled: int, strays: bool, looks: int
) -> None:
    """The owner knows the first few acknowledgements of its earlier life, and puts all rows behind them
    again.
    """
    stream = Stream()
    first, put = Writer(stream, 0), list[str]()
    run(before, first, put)
    if strays:
        while first.out:
            first.deliver()
    known = first.stored[:journaled]
    second = Writer(stream, known[-1][1] if known else 0)
    waiting = put[len(known) :]
    for name in waiting:
        while not second.put(name):
            second.deliver()
            second.hear()
            second.survey()
            stream.full = False
            if second.window.phase is Phase.FULL:
                second.window.retry()
                second.send()
        for _ in range(looks):  # the stream may be looked at before all rows are there
            second.survey()
    run(after, second, put)
    rest(second)
    assert [one for one in stream.history if one] == put
    assert [name for name, _ in known + second.stored] == put


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS, later=STEPS, chosen=st.sets(st.integers(0, 60)))
def test_rows_taken_back_are_not_stored_and_the_others_are(
    steps: list[str], later: list[str], chosen: set[int]
) -> None:
    stream = Stream()
    writer, put = Writer(stream, 0), list[str]()
    run(steps, writer, put)
    doomed = {f"r{number}" for number in chosen}

    def takes(row: Row) -> bool:
        return row.msg_id in doomed

    writer.window.hold()
    while writer.window.unsettled(takes) or writer.out:
        while writer.out:  # what the fence waits for: all that was sent has been decided about
            writer.deliver()
        if writer.back:
            writer.hear()
        elif writer.window.phase is Phase.UNSURE:
            writer.survey()
        else:
            writer.window.lost()
    gone = [row.msg_id for row in writer.window.drop(takes)]
    assert not writer.window.unsettled(takes)
    writer.window.release()
    writer.send()
    run(later, writer, put)
    rest(writer)
    assert not set(gone) & set(stream.history)
    assert [one for one in stream.history if one] == [name for name in put if name not in gone]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=STEPS,
    purged=st.sets(st.integers(1, 60)),
    everything=st.booleans(),
    later=STEPS,
    foreign=st.integers(0, 2),
)
def test_a_purge_neither_repeats_nor_loses_a_row(
    steps: list[str], purged: set[int], everything: bool, later: list[str], foreign: int
) -> None:
    """Messages of ours are removed while their acknowledgements are lost: they count as stored."""
    stream = Stream()
    writer, put = Writer(stream, 0), list[str]()
    run([step for step in steps if step not in ("foreign", "lag")], writer, put)
    while writer.out:
        writer.deliver()
    writer.back.clear()
    writer.window.lost()
    for sequence in list(stream.messages):
        if everything or sequence in purged:
            del stream.messages[sequence]
            stream.last_id = ""
    for _ in range(foreign):
        stream.publish(None, None, "")
    run([step for step in later if step != "foreign"], writer, put)
    rest(writer)
    assert [one for one in stream.history if one] == put
    assert [name for name, _ in writer.stored] == put


def flowing(after: int = 0, limit: int = 8) -> Writer:
    stream = Stream()
    for _ in range(after):
        stream.publish(None, None, "old")
    writer = Writer(stream, after, limit)
    writer.survey()
    assert writer.window.phase is Phase.FLOWING
    return writer


def test_a_foreign_message_in_the_place_of_a_row_does_not_let_the_next_one_in() -> None:
    writer = flowing()
    writer.put("a")
    writer.put("b")
    writer.stream.publish(None, None, "")
    writer.deliver()
    writer.deliver()
    assert writer.stream.history == [""], "b would be stored without a"
    writer.settle()
    assert writer.stream.history == ["", "a", "b"]
    assert writer.window.notes == [Foreign(1, "")]


def test_one_row_at_a_time_tries_a_full_store() -> None:
    writer = flowing()
    writer.stream.full = True
    for name in "abc":
        writer.put(name)
    for _ in range(3):
        writer.deliver()
        writer.hear()
    assert writer.window.phase is Phase.FULL
    assert writer.window.in_flight == 0
    writer.window.retry()
    writer.send()
    assert [send.row.msg_id for send in writer.out] == ["a"]
    writer.window.retry()
    writer.send()
    assert len(writer.out) == 1, "no second one while the first is on its way"


def test_room_is_by_count_and_by_bytes_and_one_row_always_has_it() -> None:
    window: Window[Row] = Window(0, messages=3, size=100)
    assert window.room(1000)
    window.add(Row("big", 90))
    assert window.room(10)
    assert not window.room(11)
    window.add(Row("b", 1))
    window.add(Row("c", 1))
    assert not window.room(1)


def test_a_stream_that_lost_its_end_is_told_and_gone_on_with() -> None:
    stream = Stream()
    stream.publish(None, None, "x")
    writer = Writer(stream, 5)
    writer.put("a")
    writer.settle()
    assert writer.window.notes == [Regressed(5, 1)]
    assert writer.stored == [("a", 2)]


def test_without_memory_it_begins_behind_what_is_there() -> None:
    stream = Stream()
    for number in range(20):
        stream.publish(None, None, f"old{number}")
    writer = Writer(stream, None)
    writer.put("a")
    writer.settle()
    assert writer.stored == [("a", 21)]
    assert writer.window.foreign == 0


def test_a_long_stretch_is_searched_at_its_end_only() -> None:
    window: Window[Row] = Window(0)
    window.add(Row("a"))
    window.survey(1_000_000)
    assert isinstance(window.notes[0], Skipped)
    assert window.wanted()[0] == window.notes[0].last + 1


def test_a_row_taken_back_that_arrives_after_all_is_told_as_such() -> None:
    writer = flowing()
    writer.put("a")
    stray = writer.out.popleft()
    writer.window.lost()
    writer.survey()
    assert [row.msg_id for row in writer.window.drop(lambda row: row.msg_id == "a")] == []
    writer.out.clear()
    writer.window.lost()
    writer.window.hold()
    writer.survey()
    assert [row.msg_id for row in writer.window.drop(lambda row: row.msg_id == "a")] == ["a"]
    writer.window.release()
    writer.out.append(stray)
    writer.deliver()
    writer.put("b")
    writer.settle()
    assert writer.window.notes == [Late(1, "a")]
    assert writer.window.foreign == 0
    assert writer.stored == [("b", 2)]


def test_rows_stored_and_purged_before_they_were_acknowledged() -> None:
    writer = flowing()
    for name in "abc":
        writer.put(name)
    while writer.out:
        writer.deliver()
    writer.back.clear()
    writer.window.lost()
    writer.stream.messages.clear()
    writer.put("d")
    writer.settle()
    assert writer.stored == [("a", 1), ("b", 2), ("c", 3), ("d", 4)]
    assert writer.window.notes == [Purged(1, 3)]


@pytest.mark.parametrize("stored_at", [3, 9])
def test_a_duplicate_that_is_elsewhere_is_looked_for(stored_at: int) -> None:
    writer = flowing(after=4)
    writer.put("a")
    send = writer.out.popleft()
    writer.note(writer.window.acked(send.epoch, send.sequence, stored_at))
    assert writer.window.phase is Phase.UNSURE
    assert writer.stored == ([("a", 3)] if stored_at == 3 else [])


def test_a_row_whose_earlier_send_was_stored_is_not_taken_back() -> None:
    writer = flowing()
    writer.put("a")
    writer.window.lost()  # time was up, and nothing of it had arrived
    writer.survey()
    while writer.out:  # now both sends arrive: the first one is stored, the second one refused
        writer.deliver()
        writer.hear()
    assert writer.stream.history == ["a"]
    assert writer.window.drop(lambda row: True) == []
    writer.survey()
    assert writer.stored == [("a", 1)]


def test_a_row_behind_purged_ones_is_found_with_a_foreign_one_behind_it() -> None:
    writer = flowing()
    for name in "abcd":
        writer.put(name)
    while writer.out:
        writer.deliver()
    writer.back.clear()
    writer.window.lost()
    del writer.stream.messages[1], writer.stream.messages[2]
    writer.stream.publish(None, None, "")
    writer.put("e")
    writer.settle()
    assert writer.stored == [("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 6)]
    assert writer.window.notes == [Purged(1, 2), Foreign(5, "")]


def test_what_was_stored_last_is_looked_at_first() -> None:
    writer = flowing()
    for name in "abcd":
        writer.put(name)
    while writer.out:
        writer.deliver()
    writer.window.lost()
    writer.window.survey(4)
    assert writer.window.wanted(32) == [4]
    assert [sequence for _, sequence in writer.window.seen(4, "d")] == [1, 2, 3, 4]
    assert writer.window.phase is Phase.FLOWING
