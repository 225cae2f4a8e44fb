"""Percents out of output lines: what counts, what does not, and that nothing runs away."""

from __future__ import annotations

import asyncio
import re

import pytest

from bakemesh.builder.steps.progress import LINE, WINDOW, ProgressLines, ProgressReporter


def lines(expression: str = r"(\d+(?:\.\d+)?)%") -> ProgressLines:
    return ProgressLines(re.compile(expression))


@pytest.mark.parametrize(
    ("output", "percent"),
    [
        (b"at 5%\n", 5),
        (b"at 5%\nat 17.9%\nnothing\n", 17),
        (b"at 5%\rat 6%\rat 7%", 6),  # a line that is not ended is not looked at
        (b"at 5%\r\n", 5),
        (b"at 101%\n", None),
        (b"at 100%\n", 100),
        (b"\xff\xfe at 40%\xff\n", 40),
        (b"nothing\n", None),
        (b"", None),
        (b"9" * LINE + b"%\n", None),
    ],
)
def test_the_latest_percent_on_a_whole_line_counts(output, percent):
    watch = lines()
    watch.feed(output)
    assert watch.look() == percent


def test_a_line_may_come_in_pieces():
    watch = lines()
    for piece in (b"at ", b"4", b"2%"):
        watch.feed(piece)
        assert watch.look() is None
    watch.feed(b"\n")
    assert watch.look() == 42


def test_what_was_looked_at_does_not_count_again():
    watch = lines()
    watch.feed(b"at 5%\n")
    assert watch.look() == 5
    watch.feed(b"quiet\n")
    assert watch.look() is None


def test_of_a_flood_the_latest_lines_are_looked_at_and_memory_is_bounded():
    watch = lines()
    watch.feed(b"at 1%\n")
    for _ in range(10):
        watch.feed(b"x" * 79 + b"\n" * 1 + b"y" * WINDOW)
    assert len(watch._unseen) <= WINDOW
    watch.feed(b"\nat 9%\n")
    assert watch.look() == 9


def test_a_line_that_lost_its_begin_does_not_count():
    watch = lines(r"^(\d+)%")
    watch.feed(b"x" * 10 + b"5%\n" + b"z" * (WINDOW - 3))
    assert watch.look() is None


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "1e9", "five", ""])
def test_what_is_no_percent_is_none(text):
    watch = lines(r"at (.*)$")
    watch.feed(f"at {text}\n".encode())
    assert watch.look() is None


def test_a_group_that_took_no_part_is_none():
    watch = lines(r"a|(\d+)%")
    watch.feed(b"a\n")
    assert watch.look() is None


def test_an_expression_that_runs_away_is_switched_off():
    watch = lines(r"(a+)+b")
    watch.feed(b"a" * 500 + b"\n")
    assert watch.look() is None
    assert watch.ran_away
    watch.feed(b"aab\n")
    assert watch.look() is None
    assert not watch._unseen


async def test_reports_come_first_at_once_and_never_twice_the_same():
    reported: list[int | None] = []
    news = asyncio.Event()

    async def report(percent: int | None, summary: str | None) -> None:
        assert summary is None
        reported.append(percent)
        news.set()

    reporter = ProgressReporter(r"(\d+)%", report)
    running = asyncio.create_task(reporter.run())
    reporter.feed("stdout", b"1%\n2%\n")
    async with asyncio.timeout(10):
        await news.wait()
        news.clear()
        reporter.feed("stdout", b"2%\n")
        reporter.feed("stdout", b"3%\n")
        reporter.feed("stdout", b"50%\n")  # comes in the pause: reported after it, though nothing follows
        await news.wait()
    assert reported == [2, 50]
    assert not reporter.ran_away
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
