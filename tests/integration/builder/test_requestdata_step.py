"""`requestdata`: the question, the answer, where it is kept."""

from __future__ import annotations

import asyncio
import os

import pytest

from bakemesh.builder.steps.base import StopReason
from bakemesh.protocol.builder.codes import Code, StepOutcome
from bakemesh.protocol.builder.spec.model import RequestDataStep
from support.attempts import Attempt
from support.waiting import eventually


def asks(folder, **more) -> Attempt:
    params = more.pop("params", None)
    step = RequestDataStep(**{"name": "words", "index": 2, "line": 1, **more})
    return Attempt(None, folder, step, params=params)  # type: ignore[arg-type]  # it starts no process


async def test_it_asks_waits_and_keeps_what_was_pushed(tmp_path):
    attempt = asks(tmp_path, entry="Words", into="lists/words.bin")
    running = asyncio.create_task(attempt.run())
    await eventually(lambda: attempt.asked == ["words"])
    data = attempt.canary.encode() + os.urandom(1 << 20)
    attempt.pushed.push("another", b"not this")
    attempt.pushed.push("words", data)
    result = await running
    assert result.outcome is StepOutcome.OK
    assert attempt.entries == {"Words": data}
    assert (tmp_path / "lists" / "words.bin").read_bytes() == data
    assert os.listdir(tmp_path / "lists") == ["words.bin"]
    assert result.summary == f"received {len(data):,} bytes, kept as entry Words, written to lists/words.bin"
    assert attempt.chunks == []


async def test_a_push_that_came_before_the_question_answers_it(tmp_path):
    attempt = asks(tmp_path, entry="Words")
    attempt.pushed.push("words", b"")
    result = await attempt.run()
    assert result.outcome is StepOutcome.OK
    assert attempt.entries == {"Words": b""}


@pytest.mark.parametrize("reason", StopReason)
async def test_a_stop_ends_the_waiting_and_keeps_nothing(tmp_path, reason):
    attempt = asks(tmp_path, entry="Words", into="words")
    running = asyncio.create_task(attempt.run())
    await eventually(lambda: attempt.asked)
    attempt.stop.request(reason)
    result = await running
    timeout = reason is StopReason.TIMEOUT
    assert result.outcome is (StepOutcome.TIMEOUT if timeout else StepOutcome.CANCELLED)
    assert result.code is (Code.TIMEOUT if timeout else None)
    assert attempt.entries == {}
    assert os.listdir(tmp_path) == []


async def test_a_path_that_leaves_the_folder_fails_the_step_and_is_shown_as_written(tmp_path):
    attempt = asks(tmp_path / "bake", into="${param:where}", params={"where": "../secret-place"})
    (tmp_path / "bake").mkdir()
    attempt.pushed.push("words", b"x")
    result = await attempt.run()
    assert result.outcome is StepOutcome.FAILED
    assert "${param:where}" in result.summary
    assert "secret" not in result.summary
    assert os.listdir(tmp_path) == ["bake"]


async def test_an_absolute_path_may_leave_it(tmp_path):
    (tmp_path / "bake").mkdir()
    attempt = asks(tmp_path / "bake", into=str(tmp_path / "out"))
    attempt.pushed.push("words", b"x")
    assert (await attempt.run()).outcome is StepOutcome.OK
    assert (tmp_path / "out").read_bytes() == b"x"


async def test_a_reference_that_cannot_be_put_in_is_said_before_anybody_is_asked(tmp_path):
    attempt = asks(tmp_path, into="${param:absent}")
    result = await attempt.run()
    assert result.outcome is StepOutcome.FAILED
    assert attempt.asked == []
