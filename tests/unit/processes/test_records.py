"""What a shim wrote, read back; what is broken, cut off or another's is as if it were not there."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.processes import ShimExit, cgroup, marks, records

EXIT = b"""instance the-one
boot b
pid 5
start 6
status %d
at 1700000000.250000
reason %s
killed 3
rss 7000
cpu 1500000
"""
IDENTITY = b"""instance the-one
boot b
shim 7
shim_start 8
pid 9
start 10
began 1.5
mark 11
held memory
"""
SHOWN = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=128)


@pytest.mark.parametrize(
    ("status", "code", "number"),
    [(0, 0, None), (7 << 8, 7, None), (signal.SIGKILL, None, 9), (signal.SIGSEGV | 0x80, None, 11)],
)
def test_an_exit_is_read_as_it_was_written(status: int, code: int | None, number: int | None) -> None:
    padded = (EXIT % (status, b"")).ljust(2048, b"\n")
    assert records.parse_exit(padded, "the-one") == ShimExit(
        code, number, lost=False, at=1_700_000_000.25, killed=3, max_rss_kib=7000, cpu_s=1.5
    )


def test_the_reason_is_told() -> None:
    end = records.parse_exit(EXIT % (9, b"memory limit"), "the-one")
    assert end is not None
    assert end.reason == "memory limit"


def test_an_identity_is_read_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / records.IDENTITY).write_bytes(IDENTITY)
    assert records.read_identity(tmp_path, "the-one") == records.Identity("the-one", "b", 7, 8, 9, 10, True)
    (tmp_path / records.IDENTITY).write_bytes(IDENTITY.replace(b"mark 11", b"mark 0"))
    known = records.read_identity(tmp_path, "the-one")
    assert known is not None
    assert not known.marked


def test_another_instances_files_are_nobodys(tmp_path: Path) -> None:
    (tmp_path / records.IDENTITY).write_bytes(IDENTITY)
    (tmp_path / records.EXIT).write_bytes(EXIT % (0, b""))
    for other in ("the-on", "the-one2", "other"):
        assert records.read_identity(tmp_path, other) is None
        assert records.read_exit(tmp_path, other) is None
    assert records.read_identity(tmp_path / "nowhere", "the-one") is None
    assert records.read_exit(tmp_path / "nowhere", "the-one") is None


@given(st.integers(0, len(EXIT)))
def test_what_was_cut_off_says_nothing_or_the_same(length: int) -> None:
    whole = EXIT % (256, b"memory limit")
    read = records.parse_exit(whole[:length], "the-one")
    assert read is None or length > whole.index(b"cpu ")


@given(st.binary(max_size=300))
def test_nonsense_says_nothing(data: bytes) -> None:
    assert records.parse_exit(data, "the-one") is None
    assert records.parse_exit(b"instance the-one\n" + data, "the-one") is None


def test_a_process_that_is_no_shim_is_never_pinned() -> None:
    import os

    from bakemesh.processes import proc

    started = int(proc.fields(os.getpid())[19])
    assert records.pin(os.getpid(), started) is None
    assert records.pin(-1, 0) is None
    assert records.pin(1 << 40, 0) is None


@given(SHOWN, SHOWN)
def test_marks_of_instances_are_their_own_and_fit_a_limit(one: str, other: str) -> None:
    assert 0 < marks.component_mark(one) < 1 << 63
    assert (marks.component_mark(one) == marks.component_mark(other)) == (one == other)


def test_controllers_are_asked_for_where_they_can_be_had(tmp_path: Path) -> None:
    """A cgroup's files stand for themselves here: this machine's kernel has no controller to give."""
    own = tmp_path / "unit" / "builder"
    own.mkdir(parents=True)
    assert cgroup.with_controllers({"memory"}, None) is None
    assert cgroup.with_controllers({"memory"}, own) is None
    for folder in (own, own.parent):
        (folder / "cgroup.controllers").write_text("cpu pids\n")
        (folder / "cgroup.subtree_control").write_text("")
    assert cgroup.with_controllers({"memory"}, own) is None
    assert (own / "cgroup.subtree_control").read_text() == ""
    assert cgroup.with_controllers({"cpu", "memory"}, own) is None  # asked for, and the kernel did not agree
    assert (own / "cgroup.subtree_control").read_text() == "+cpu"
    (own / "cgroup.subtree_control").write_text("cpu\n")
    (own / "cgroup.subtree_control").chmod(0o400)
    assert cgroup.with_controllers(set(), own) is None
