"""What a person reads when a program cannot be started."""

from __future__ import annotations

import errno

import pytest

from bakemesh.processes import ProcessSpec, Refusal, Survivor
from bakemesh.processes.errors import refused

SPEC = ProcessSpec(["frobnicate", "-x"], {"PATH": "/opt/bin:/bin"}, "/srv/data")


@pytest.mark.parametrize(
    ("stage", "number", "what", "words"),
    [
        ("exec", errno.ENOENT, Refusal.PROGRAM_MISSING, "not found in PATH (/opt/bin:/bin)"),
        ("exec", errno.EACCES, Refusal.NOT_EXECUTABLE, "not an executable file"),
        ("exec", errno.ENOEXEC, Refusal.BAD_FORMAT, "begins with '#!'"),
        ("exec", errno.ENOMEM, Refusal.NO_RESOURCES, "Cannot allocate memory"),
        ("exec", errno.ETXTBSY, Refusal.OTHER, "Text file busy"),
        ("interpreter", errno.ENOENT, Refusal.INTERPRETER_MISSING, "the interpreter it names does not"),
        ("cwd", errno.ENOENT, Refusal.BAD_CWD, "in '/srv/data': No such file"),
        ("cwd", errno.ENOTDIR, Refusal.BAD_CWD, "in '/srv/data': Not a directory"),
        ("fork", errno.EAGAIN, Refusal.NO_RESOURCES, "no further process"),
        ("stdio", errno.EMFILE, Refusal.NO_RESOURCES, "no further process or file"),
    ],
)
def test_the_cause_is_named(stage: str, number: int, what: Refusal, words: str) -> None:
    wrong = refused(SPEC, stage, number)
    assert (wrong.what, wrong.errno) == (what, number)
    assert words in str(wrong)
    assert "'frobnicate'" in str(wrong)


def test_a_path_is_not_said_to_be_missing_from_path() -> None:
    wrong = refused(ProcessSpec(["/opt/x"], {}), "exec", errno.ENOENT)
    assert "there is no such file" in str(wrong)
    assert "PATH" not in str(wrong)


def test_the_argument_that_is_too_large_is_named() -> None:
    wrong = refused(ProcessSpec(["x", "a", "b" * 140_000], {}), "exec", errno.E2BIG)
    assert wrong.what is Refusal.TOO_LARGE
    assert "argument 2 has 140,000 bytes, at most 131,071" in str(wrong)


def test_the_variable_that_is_too_large_is_named() -> None:
    wrong = refused(ProcessSpec(["x"], {"HUGE": "b" * 140_000}), "exec", errno.E2BIG)
    assert "variable HUGE" in str(wrong)


def test_many_arguments_are_too_large_together() -> None:
    wrong = refused(ProcessSpec(["x"] + ["y" * 999] * 3000, {}), "exec", errno.E2BIG)
    assert "3,000,002 bytes" in str(wrong)


def test_a_survivor_says_what_it_waits_for() -> None:
    assert str(Survivor(7, "cat", "D", "nfs_wait")) == "cat (pid 7, state D in nfs_wait)"
    assert str(Survivor(7, "cat", "R", "")) == "cat (pid 7, state R)"
