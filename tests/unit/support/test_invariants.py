"""The invariants hold for a sound story, and each fails when what it guards is broken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bakemesh.protocol.builder.messages import BakeData, BakeStatus
from support.bakes import IDENTITY, chunk, failed, status, success
from support.invariants import (
    PlannedStep,
    Story,
    broken_in,
    components_single,
    delivered,
    line_of,
    never_doubled,
    output_of,
    ready_once,
)

STEPS = (PlannedStep(False, output_of("r 0", 3)), PlannedStep(True, output_of("r 1", 2)))


def begins(serial: int, index: int, attempt: int = 1) -> BakeStatus:
    return status(serial, kind="step", stepindex=index, step=f"s{index}", attempt=attempt)


def ends(serial: int, index: int, outcome: str = "ok", attempt: int = 1) -> BakeStatus:
    return status(serial, kind="step", stepindex=index, step=f"s{index}", attempt=attempt, outcome=outcome)


def part(seq: int, index: int, data: bytes, *, attempt: int = 1, final: bool = True) -> BakeData:
    return chunk(seq, data, stepindex=index, attempt=attempt, finalchunk=final)


# Step 0 in two chunks; step 1 is cut by a crash after its first line and run again.
SOUND = Story(
    IDENTITY.recipe_id,
    STEPS,
    (
        status(1, kind="start"),
        begins(2, 0),
        ends(3, 0),
        begins(4, 1),
        begins(5, 1, attempt=2),
        ends(6, 1, attempt=2),
        success(7, lastseq=5),
    ),
    (
        part(1, 0, line_of("r 0", 0), final=False),
        part(2, 0, line_of("r 0", 1) + line_of("r 0", 2)),
        part(3, 1, line_of("r 1", 0), final=False),
        part(4, 1, b""),
        part(5, 1, output_of("r 1", 2), attempt=2),
    ),
    {0: 1, 1: 2},
)


def statuses(*, drop: int | None = None, after: tuple[BakeStatus, ...] = ()) -> Story:
    kept = tuple(each for each in SOUND.statuses if each.serial != drop)
    return replace(SOUND, statuses=(*kept, *after))


def chunks(*, without: int | None = None, **changed: BakeData) -> Story:
    by_seq = {f"seq{each.seq}": each for each in SOUND.chunks} | changed
    return replace(SOUND, chunks=tuple(each for each in by_seq.values() if each.seq != without))


def test_a_sound_story_holds():
    assert broken_in(SOUND) == []


@pytest.mark.parametrize(
    ("story", "says"),
    [
        (statuses(drop=7), "0 terminal outcomes"),
        (statuses(after=(success(8, lastseq=5),)), "2 terminal outcomes"),
        (statuses(after=(failed(8, "builder_restarted", lastseq=5),)), "2 terminal outcomes"),
        (statuses(after=(status(8),)), "Status after the terminal"),
        (statuses(drop=3), "missing [3]"),
        (replace(SOUND, statuses=(SOUND.statuses[0], *SOUND.statuses)), "twice [1]"),
        (replace(SOUND, statuses=(SOUND.statuses[1], SOUND.statuses[0], *SOUND.statuses[2:])), "order [2, 1"),
        (replace(SOUND, runs={0: 2, 1: 2}), "step 0 is not retryable and ran 2 times"),
        (replace(SOUND, runs={0: 1, 1: 3}), "step 1 ran 3 times, said 2 times"),
        (replace(SOUND, runs={1: 2}), "step 0 ended well 1 times, ran 0 times"),
        (replace(SOUND, runs={0: 1, 1: 2, 7: 1}), "step 7 was never ordered"),
        (chunks(without=2), "seq 3 at place 2"),
        (chunks(without=5), "lastseq 5, the stream holds 4"),
        (replace(SOUND, chunks=(SOUND.chunks[0], *SOUND.chunks)), "seq 1 at place 2"),
        (chunks(seq2=part(2, 0, line_of("r 0", 1))), "ended well with"),
        (chunks(seq2=part(2, 0, line_of("r 0", 2) + line_of("r 0", 1))), "differ from what was written"),
        (chunks(seq5=part(5, 1, output_of("r 1", 2) + b"x", attempt=2)), "differ from what was written"),
        (chunks(seq4=part(4, 1, b"", final=False)), "finalchunk [] of 2"),
        (chunks(seq1=part(1, 0, line_of("r 0", 0))), "finalchunk [0, 1] of 2"),
        (
            chunks(seq4=chunk(4, b"oops", stepindex=1, stream="stderr", finalchunk=True)),
            "nobody writes there",
        ),
    ],
)
def test_what_is_broken_is_said(story, says):
    assert any(says in each for each in broken_in(story)), broken_in(story)


def test_ready_comes_once_a_node_however_often_it_is_heard():
    one, other = b"1" * 16, b"2" * 16
    assert ready_once([("a", "b1", one), ("a", "b1", one)], {"a"}) == []
    assert ready_once([], {"a"}) == ["no Ready of node a"]
    assert ready_once([("a", "b1", one), ("b", "b1", one)], {"a"}) == ["a Ready of node b"]
    assert "2 Readys of node a" in ready_once([("a", "b1", one), ("a", "b1", other)], {"a"})[0]
    assert "2 Readys of node a" in ready_once([("a", "b1", one), ("a", "b2", one)], {"a"})[0]


def test_a_component_lives_once():
    assert components_single([("one", 7), ("two", 8)], {"one", "two"}) == []
    assert "lives 2 times" in components_single([("one", 7), ("one", 9)], {"one"})[0]
    assert "does not live" in components_single([], {"one"})[0]
    assert "never ordered" in components_single([("one", 7)], set())[0]


def test_a_component_that_met_another_of_itself_says_so():
    assert never_doubled(["one alone", "one alone"]) == []
    assert never_doubled(["one alone", "one beside another"]) == ["component start: one beside another"]


def test_durable_posts_arrive():
    assert delivered([1, 2], [2, 1, 1, 3]) == []
    assert delivered([1, 2], [2])[0].endswith("[1]")
