"""How an attempt's end is told."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.builder.steps import endings
from bakemesh.builder.steps.base import StopReason
from bakemesh.processes import Exit, Refusal, SpawnRefused, Swept
from bakemesh.processes.spec import Survivor
from bakemesh.protocol.builder.codes import Code, StepOutcome

CLEAN = Swept(0)


def left(code: int | None, signal: int | None = None, *, lost: bool = False) -> Exit:
    return Exit(code, signal, 9 * 1024, 0.1, lost)


def test_an_exit_code_among_the_success_codes_is_ok():
    result = endings.ended(left(3), CLEAN, 0.5, frozenset({0, 3}))
    assert (result.outcome, result.exitcode) == (StepOutcome.OK, 3)
    assert result.summary == "exit code 3 after 0.50 s, peak memory 9 MiB"


def test_another_one_fails():
    assert endings.ended(left(1), CLEAN, 0.5, frozenset({0})).outcome is StepOutcome.FAILED


def test_a_signal_is_named_and_is_minus_itself():
    result = endings.ended(left(None, 11), CLEAN, 0.5, frozenset({0}))
    assert (result.outcome, result.exitcode) == (StepOutcome.FAILED, -11)
    assert result.summary.startswith("killed by SIGSEGV (11) after")
    assert "signal (40)" in endings.ended(left(None, 40), CLEAN, 0.5, frozenset({0})).summary


def test_left_over_processes_are_counted_and_the_living_named_without_their_own_words():
    swept = Swept(2, (Survivor(77, "canary", "D", "nfs_wait"),))
    summary = endings.ended(left(0), swept, 0.5, frozenset({0})).summary
    assert "2 left-over processes were killed" in summary
    assert "pid 77 (state D in nfs_wait)" in summary
    assert "canary" not in summary


def test_a_lost_minder_fails_the_attempt_and_says_so():
    result = endings.ended(left(None, lost=True), CLEAN, 1, frozenset({0}))
    assert (result.outcome, result.exitcode, result.lost) == (StepOutcome.FAILED, None, True)
    assert "minds" in result.summary


@pytest.mark.parametrize("reason", StopReason)
def test_a_stop_ends_as_timeout_or_cancelled_and_says_whether_anything_is_alive(reason):
    result = endings.killed(reason, left(None, 15), CLEAN, 2.0)
    timeout = reason is StopReason.TIMEOUT
    assert result.outcome is (StepOutcome.TIMEOUT if timeout else StepOutcome.CANCELLED)
    assert result.code is (Code.TIMEOUT if timeout else None)
    assert result.exitcode == -15
    assert result.summary.endswith("after 2.00 s, no survivors")


def test_a_process_that_cannot_be_killed_is_named_and_has_no_exit_code():
    result = endings.killed(StopReason.CANCEL, None, Swept(1, (Survivor(5, "x", "D", ""),)), 7.0)
    assert result.exitcode is None
    assert "no survivors" not in result.summary
    assert "pid 5 (state D)" in result.summary


def test_many_survivors_do_not_fill_the_summary():
    alive = tuple(Survivor(pid, "x", "D", "w" * 15) for pid in range(1000, 1200))
    summary = endings.killed(StopReason.CANCEL, None, Swept(0, alive), 7.0).summary
    assert "195 more" in summary
    assert len(summary.encode()) <= 512


@pytest.mark.parametrize("what", Refusal)
def test_a_refusal_names_the_program_as_the_recipe_has_it_and_nothing_that_was_put_in(what):
    error = SpawnRefused(errno.EIO, what, "cannot start 'secret': not found in PATH (/secret)")
    result = endings.refused("${param:tool}", error)
    assert result.outcome is StepOutcome.FAILED
    assert "${param:tool}" in result.summary
    assert "secret" not in result.summary
    assert result.lost == (what is Refusal.KEEPER_LOST)


def test_a_long_program_name_is_cut():
    error = SpawnRefused(errno.ENOENT, Refusal.PROGRAM_MISSING, "")
    assert len(endings.refused("x" * 5000, error).summary) < 300


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.00 s"), (1.234, "1.23 s"), (12.34, "12.3 s"), (184.4, "3 min 4 s"), (7500, "2 h 5 min")],
)
def test_durations_read_well(seconds, text):
    assert endings.duration(seconds) == text


@given(st.floats(0, 1e9))
def test_no_duration_shows_sixty(seconds):
    assert "60 min" not in endings.duration(seconds)
    assert " 60 s" not in endings.duration(seconds)
