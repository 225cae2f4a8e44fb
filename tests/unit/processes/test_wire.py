"""Both ends of the keeper's wire, joined: what one writes the other reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.keeper import wire
from bakemesh.processes import ProcessSpec, ShimSpec, Survivor, frames

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60)
NAMES = st.text(st.characters(exclude_characters="\0=", exclude_categories=["Cs"]), min_size=1, max_size=20)
SPECS = st.builds(
    ProcessSpec,
    argv=st.lists(TEXT, min_size=1, max_size=8),
    env=st.dictionaries(NAMES, TEXT, max_size=8),
    cwd=st.one_of(st.none(), TEXT.filter(bool)),
)
STDIO = st.sampled_from(["", "i", "o", "e", "io", "oe", "ie", "ioe"])


class Collector:
    """The sending half of a connection."""

    def __init__(self) -> None:
        self.frame = b""

    def send(self, frame: bytes) -> None:
        """Keeps what was sent."""
        self.frame = frame


def answer(*fields: bytes | int) -> frames.Frame:
    """What the Builder reads where the keeper's side sends `fields`."""
    collector: Any = Collector()
    wire.send(collector, *fields)
    return frames.parse(collector.frame)


@given(st.integers(0, 2**40), SPECS, STDIO)
def test_a_start_arrives_as_it_was_asked_for(ident: int, spec: ProcessSpec, stdio: str) -> None:
    frame = frames.start(ident, spec, stdio)
    read = wire.parse_start(frame)
    assert wire.head(frame) == (b"start", ident)
    assert read.ident == ident
    assert read.stdio.decode() == stdio
    assert [os.fsdecode(argument) for argument in read.argv] == list(spec.argv)
    assert {os.fsdecode(k): os.fsdecode(v) for k, v in read.env.items()} == dict(spec.env)
    assert os.fsdecode(read.cwd) == (spec.cwd or "")


@given(
    st.integers(0, 2**40),
    SPECS,
    TEXT.filter(bool),
    st.integers(1, 2**62),
    st.one_of(st.none(), st.integers(1, 2**40)),
    st.one_of(st.none(), st.floats(0.01, 64)),
    TEXT,
    TEXT,
)
def test_an_order_arrives_as_it_was_given(
    ident: int,
    process: ProcessSpec,
    folder: str,
    mark: int,
    memory: int | None,
    cpu: float | None,
    leave: str,
    made: str,
) -> None:
    spec = ShimSpec(
        process=process,
        folder=Path(folder),
        instance="the-one",
        log_bytes=5,
        log_files=0,
        memory_max_bytes=memory,
        cpu_share=cpu,
    )
    frame = frames.shim(ident, spec, process, mark, leave, made)
    order = wire.parse_order(frame)
    assert wire.head(frame) == (b"shim", ident)
    assert wire.is_shim(frame)
    assert (order.folder, order.instance) == (os.fsencode(Path(folder)), b"the-one")
    assert (order.log_bytes, order.log_files, order.mark) == (5, 0, mark)
    assert order.memory == (memory or 0)
    assert abs(order.cpu / 1000 - (cpu or 0)) < 0.001
    assert (order.leave, order.cgroup) == (os.fsencode(leave), os.fsencode(made))
    assert [os.fsdecode(argument) for argument in order.start.argv] == list(process.argv)
    assert {os.fsdecode(k): os.fsdecode(v) for k, v in order.start.env.items()} == dict(process.env)
    assert wire.split_fds(wire.stdio_letters(frame), []) == ([-1, -1, -1], -1)


def test_a_folder_with_a_nul_is_refused() -> None:
    process = ProcessSpec(["a"], {})
    spec = ShimSpec(process=process, folder=Path("/tmp/\0"), instance="x")
    with pytest.raises(ValueError, match="NUL"):
        frames.shim(1, spec, process, 1, "", "")


@pytest.mark.parametrize(("kind", "shim"), [("start", False), ("shim", True)])
def test_what_travels_in_a_memfd_is_known_before_it_is_read(kind: str, shim: bool) -> None:
    frame = frames.large(7, "oe", kind)
    assert wire.head(frame) == (b"large", 7)
    assert wire.is_shim(frame) is shim
    assert wire.stdio_letters(frame) == b"oe"


def test_a_step_whose_words_look_like_a_shims_is_a_step() -> None:
    assert not wire.is_shim(frames.start(1, ProcessSpec(["echo", "shim"], {}), ""))


def test_bytes_that_are_no_text_arrive_unchanged() -> None:
    raw = bytes(range(1, 256))
    read = wire.parse_start(
        frames.start(1, ProcessSpec(["x", os.fsdecode(raw)], {"K": os.fsdecode(raw)}), "")
    )
    assert read.argv[1] == raw
    assert read.env[b"K"] == raw


@pytest.mark.parametrize(
    "spec",
    [
        ProcessSpec(["a\0b"], {}),
        ProcessSpec(["a"], {"K": "v\0"}),
        ProcessSpec(["a"], {}, "/tmp\0"),
        ProcessSpec(["a"], {"K=": "v"}),
        ProcessSpec(["a"], {"": "v"}),
    ],
    ids=["argument", "value", "folder", "equals in a name", "empty name"],
)
def test_what_no_process_can_be_given_is_refused(spec: ProcessSpec) -> None:
    with pytest.raises(ValueError, match=r"NUL|name of an environment variable"):
        frames.start(1, spec, "")


@pytest.mark.parametrize(
    ("fields", "frame"),
    [
        ((b"ready", 1), frames.Ready(1)),
        ((b"started", 12, 3456, 7), frames.Started(12, 3456, 7)),
        ((b"refused", b"cwd", 2), frames.Refused("cwd", 2)),
        ((b"exited", 256, 7000, 1500, 0), frames.Exited(256, 7000, 1500, False)),
        ((b"exited", 9, 7000, 1500, 1), frames.Exited(9, 7000, 1500, True)),
        ((b"none", 3, 7000, 2000), frames.Nothing(3, 7000, 2000)),
        (
            (b"alive", 2, b"5", b"cat", b"D", b"nfs_wait"),
            frames.Alive(2, (Survivor(5, "cat", "D", "nfs_wait"),)),
        ),
        ((b"gone", 8, 4), frames.Gone(8, 4, ())),
        (
            (b"running", 12, 3456, 7, 3400, 1_700_000_000_250_000, b"the-one", b"memory cpu-share"),
            frames.Running(12, 3456, 7, 3400, 1_700_000_000.25, "the-one", ("memory", "cpu-share")),
        ),
        (
            (b"running", 12, 3456, 7, 3400, 0, b"the-one", b""),
            frames.Running(12, 3456, 7, 3400, 0, "the-one", ()),
        ),
        ((b"over", b"instance the-one\nstatus 0\n"), frames.Over(b"instance the-one\nstatus 0\n")),
        (
            (b"gone", 8, 4, b"5", b"c\xff", b"D", b"", b"6", b"d", b"R", b"x"),
            frames.Gone(8, 4, (Survivor(5, "c\ufffd", "D", ""), Survivor(6, "d", "R", "x"))),
        ),
    ],
)
def test_every_answer_is_read_as_it_was_meant(fields: tuple[bytes | int, ...], frame: frames.Frame) -> None:
    assert answer(*fields) == frame


@given(st.binary(max_size=200))
def test_a_broken_answer_is_said_to_be_broken(data: bytes) -> None:
    try:
        frames.parse(data)
    except frames.FrameBroken as wrong:
        assert "frame" in str(wrong)  # noqa: PT017 - any other exception fails the test


@given(
    st.one_of(st.binary(max_size=200), st.binary(max_size=100).map(lambda tail: b"start\0" + b"1\0" + tail))
)
def test_a_broken_request_is_said_to_be_broken(data: bytes) -> None:
    for read in (wire.head, wire.parse_start, wire.parse_order, wire.stdio_letters):
        try:
            read(data)
        except wire.Broken as wrong:
            assert str(wrong).startswith(("no start frame", "no shim frame"))  # noqa: PT017 - any other exception fails the test


def test_descriptors_go_where_the_letters_say() -> None:
    assert wire.split_fds(b"ioe", [10, 11, 12]) == ([10, 11, 12], -1)
    assert wire.split_fds(b"oe", [10, 10, 13]) == ([-1, 10, 10], 13)
    assert wire.split_fds(b"e", [10]) == ([-1, -1, 10], -1)
    assert wire.split_fds(b"", []) == ([-1, -1, -1], -1)


@pytest.mark.parametrize(
    ("stdio", "fds"), [(b"io", [1]), (b"o", [1, 2, 3]), (b"x", [1]), (b"oo\xff", [1, 2, 3])]
)
def test_descriptors_that_do_not_fit_are_refused(stdio: bytes, fds: list[int]) -> None:
    with pytest.raises(wire.Broken):
        wire.split_fds(stdio, fds)


def test_commands_are_as_the_minder_reads_them() -> None:
    assert frames.kill(2.5).split(b"\0") == [b"kill", b"2500"]
    assert frames.kill(-1).split(b"\0") == [b"kill", b"0"]
    assert frames.sweep() == b"sweep"
    assert frames.status() == b"status"
