"""Lines and quanta: every item once, in order, within the limits, whatever is pushed, taken and dropped."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from bakemesh.synapse.scheduling.asks import CLASSES
from bakemesh.synapse.scheduling.cutting import cut, most_tokens, quantum
from bakemesh.synapse.scheduling.lines import LineKey, Lines, Ticket
from bakemesh.workerpool.models import ModelKey

MODEL = ModelKey("d", "fake")
EMBED = LineKey("bulk", "embed", MODEL, "mean")
COUNTS = st.lists(st.integers(1, 700), min_size=1, max_size=80)


@dataclass
class Whole:
    """A request as lines see it."""

    number: int
    counts: list[int]
    priority: int = 0
    over: bool = False
    arrived: float = 0.0
    got: list[int] = field(default_factory=list)

    def ticket(self, key: LineKey, extra: int = 0) -> Ticket:
        """All of its items."""
        tokens = sum(self.counts) + extra * len(self.counts)
        return Ticket(self, key, (-self.priority, self.number), self.counts, extra, tokens)


@given(COUNTS, st.integers(0, 300), st.integers(1, 512), st.integers(1, 256))
def test_cuts_cover_the_items_and_keep_within_the_room(counts, extra, tokens, items):
    at, covered = 0, []
    while at < len(counts):
        end, used = cut(counts, extra, at, len(counts), tokens, items, whole=True)
        assert end > at
        assert end - at <= items
        assert used == sum(counts[at:end]) + extra * (end - at)
        assert used <= tokens or end - at == 1
        if end < len(counts) and end - at < items:
            assert used + counts[end] + extra > tokens  # it took what fits
        covered += range(at, end)
        at = end
    assert covered == list(range(len(counts)))


@given(st.floats(0, 1e6), st.floats(0.01, 1))
def test_a_slow_lane_gets_quanta_that_are_over_in_time(rate, within_s):
    tokens = most_tokens(rate, most=512, least=96, within_s=within_s)
    assert 96 <= tokens <= 512
    if rate > 0:
        assert tokens / rate <= max(within_s, 96 / rate)
        assert tokens == 512 or tokens == 96 or (tokens + 1) / rate > within_s


@given(st.integers(0, 100_000), st.integers(0, 16))
def test_what_waits_is_divided_among_idle_lanes_but_not_into_crumbs(waiting, idle):
    size = quantum(waiting, idle, most=512, least=96)
    assert 96 <= size <= 512
    assert size * max(1, idle) >= min(waiting, 512 * max(1, idle))


@given(st.lists(st.tuples(COUNTS, st.integers(-2, 2)), min_size=1, max_size=20), st.data())
def test_every_item_is_taken_once_in_order_and_nothing_is_left(requests, data):
    lines = Lines(CLASSES)
    wholes = [Whole(number, counts, priority) for number, (counts, priority) in enumerate(requests)]
    waiting = list(wholes)
    tickets: dict[int, Ticket] = {}
    while waiting or lines:
        if waiting and (not lines or data.draw(st.booleans())):
            whole = waiting.pop(0)
            tickets[whole.number] = whole.ticket(EMBED)
            lines.push(tickets[whole.number])
        if tickets and data.draw(st.integers(0, 9)) == 0:
            ticket = data.draw(st.sampled_from(list(tickets.values())))
            ticket.owner.over = True
            lines.drop(ticket)
            lines.drop(ticket)
        for head, line in lines.of("bulk"):
            assert not head.owner.over
            pieces = lines.take(line, 512, 256)
            assert pieces[0].ticket is head
            assert sum(piece.tokens for piece in pieces) <= 512 or pieces[0].end - pieces[0].first == 1
            assert sum(piece.end - piece.first for piece in pieces) <= 256
            for piece in pieces:
                whole = piece.ticket.owner
                assert not whole.over
                assert piece.offset == 4 * sum(whole.counts[: piece.first])
                assert piece.until == 4 * sum(whole.counts[: piece.end])
                whole.got += range(piece.first, piece.end)
            ranks = [piece.ticket.rank for piece in pieces]
            assert ranks == sorted(ranks)
            assert line.tokens == sum(line.waiting.values()) >= 0
    for whole in wholes:
        assert whole.got == list(range(len(whole.got)))
        assert whole.over or len(whole.got) == len(whole.counts)
    assert not list(lines.all())


def test_a_line_that_does_not_merge_gives_one_request_at_a_time():
    lines = Lines(CLASSES)
    for key in (EMBED._replace(alone=7), LineKey("bulk", "rerank", MODEL)):
        for number in range(3):
            lines.push(Whole(number, [1, 1]).ticket(key, extra=2))
        (_, line), *_ = lines.of("bulk")
        for number in range(3):
            (piece,) = lines.take(line, 512, 256)
            assert (piece.ticket.owner.number, piece.tokens, piece.until) == (number, 6, 8)
    assert not lines


def test_a_thousand_that_are_taken_back_hold_nothing():
    lines = Lines(CLASSES)
    first = Whole(0, [1]).ticket(EMBED)
    lines.push(first)
    for number in range(1, 1001):
        ticket = Whole(number, [5]).ticket(EMBED)
        lines.push(ticket)
        lines.drop(ticket)
    (_, line), *_ = lines.of("bulk")
    assert len(line._heap) < 200
    assert line.tokens == 1
    assert line.before(1) == 0
    assert [owner.number for owner in line.owners()] == [0]


def test_the_lines_of_a_class_come_in_the_order_of_their_heads():
    lines = Lines(CLASSES)
    keys = [EMBED, EMBED._replace(pooling="cls"), EMBED._replace(normalize=False)]
    for number, (key, priority) in enumerate(zip(keys, [0, 5, 0], strict=True)):
        lines.push(Whole(number, [3], priority).ticket(key))
    assert [head.owner.number for head, _ in lines.of("bulk")] == [1, 0, 2]
    assert not lines.of("control")
    assert not lines.waits("interactive")
