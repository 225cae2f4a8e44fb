"""The small pure parts: entries, delays, counts of a post, notes of Ready, live values, wrong names."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.bus.sealing import seal
from bakemesh.crank import CrankError, Entries, EntriesRefused, WatchRefused
from bakemesh.crank.attempts import Attempts
from bakemesh.crank.durable import consumer_name
from bakemesh.crank.messages import delay_s
from bakemesh.crank.posting import sealed_entries
from bakemesh.crank.ready import notes_of
from bakemesh.crank.start import crank_time_s
from bakemesh.crank.watching import KEYS, check
from bakemesh.crankhost.failing import failure_of
from bakemesh.protocol.builder.node import TRACEBACK_BYTES, WATCH_BYTES
from bakemesh.protocol.message import decode
from bakemesh.protocol.startup import Ready


@given(st.dictionaries(st.text("aBc", min_size=1, max_size=3), st.integers(), max_size=4))
def test_entries_are_found_whatever_the_case_and_listed_as_written(values):
    folded = {key.lower(): key for key in values}
    values = {key: values[key] for key in folded.values()}
    entries = Entries(values)
    assert dict(entries) == values
    for key, value in values.items():
        for way in (key, key.upper(), key.lower()):
            assert entries[way] == value
            assert way in entries
            assert entries.get(way) == value
    assert "nothing" not in entries
    assert 5 not in entries
    assert entries.get("nothing") is None


def test_an_entry_that_is_not_there_says_which_are():
    with pytest.raises(KeyError, match=r"no entry 'Cuont'; there is 'Count'"):
        Entries({"Count": 1})["Cuont"]


@given(st.integers(0, 10**15), st.integers(0, 10**15), st.integers(0, 10**7))
def test_a_delay_is_never_longer_than_it_says_whatever_the_clocks(created, now, after_ms):
    seconds = delay_s(created, now, after_ms)
    assert 0 <= seconds <= after_ms / 1000
    if created == now:
        assert seconds == pytest.approx(after_ms / 1000)
    if created + after_ms * 1000 <= now:
        assert seconds == 0


def test_a_consumer_is_found_again_by_its_trigger_and_type_alone():
    name = consumer_name("b1", "pump", "In", "Robot.Count")
    assert name == consumer_name("b1", "pump", "In", "Robot.Count")
    assert name.startswith("b1-pump-")
    others = [("b2", "pump", "In", "Robot.Count"), ("b1", "pump", "I", "nRobot.Count")]
    assert len({name, *(consumer_name(*each) for each in others)}) == 3


def test_counts_outlive_the_process_and_only_what_is_the_same_post_counts(tmp_path: Path):
    path = tmp_path / "attempts"
    counts = Attempts(path, ["a", "b"])
    assert counts.of("a", 7) == 0
    counts.note("a", 7)
    counts.note("a", 7)
    counts.note("b", 9)
    # not closed: as a killed process leaves it
    again = Attempts(path, ["b", "c", "a"])
    assert (again.of("a", 7), again.of("a", 8), again.of("b", 9), again.of("c", 7)) == (2, 0, 1, 0)
    again.note("a", 8)
    assert Attempts(path, ["a"]).of("a", 7) == 0
    counts.close()
    again.close()
    again.close()


@pytest.mark.parametrize("junk", ["", "x", "a b c\n", "a 1\n", "\0" * 300, "a 1 99999999999999999999 2\n"])
def test_a_count_file_that_is_none_begins_anew(tmp_path: Path, junk: str):
    (tmp_path / "attempts").write_text(junk)
    counts = Attempts(tmp_path / "attempts", ["a"])
    assert counts.of("a", 1) == 0
    counts.close()


def test_counts_without_a_disk_are_kept_in_memory(tmp_path: Path):
    counts = Attempts(tmp_path / "nowhere" / "attempts", ["a"])
    counts.note("a", 1)
    assert counts.of("a", 1) == 1


def ready(node_id: str) -> bytes:
    message = Ready(node=node_id, node_id=node_id, boot="b", psyspec="p", digest="d", components=[])
    return seal(message, f"startup-{node_id}@{node_id}").payload


def test_notes_count_by_their_own_node_alone():
    values = {"a.ready": ready("a"), "b.ready": ready("a"), "c.ready": b"", "a.claim": b"{}", "lock.x": b"{}"}
    assert [note.message.node_id for note in notes_of(values)] == ["a"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ({"n": 2**70}, "entry 'n' (int)"),
        ({"ok": 1, "deep": {"x": [object()]}}, "entry 'deep' (dict)"),
        ({"t": "\ud800"}, "entry 't' (str)"),
        ({5: 1}, "must be text"),
        ({"A": 1, "a": 2}, "differ only in case"),
        ("text", "must be a map"),
        (None, "must be a map"),
    ],
)
def test_entries_that_cannot_be_sent_are_named(entries, told: str):
    with pytest.raises(EntriesRefused) as refused:
        sealed_entries("Count", "Robot.Count", entries, "pump@b1")
    assert told in str(refused.value)
    assert str(refused.value).startswith("post 'Count': ")
    assert isinstance(refused.value, CrankError)


def test_what_can_be_sent_arrives_as_it_was():
    given = {
        "n": 2**63 - 1,
        "f": 0.5,
        "b": b"\0",
        "t": "é",
        "none": None,
        "deep": {"x": [1, "2"]},
        "yes": True,
    }
    found = decode(sealed_entries("Count", "Robot.Count", given, "pump@b1").payload)
    assert (found.type, found.sender, found.message.entries()) == ("Robot.Count", "pump@b1", given)


def test_live_values_are_bounded():
    assert check("k", 0.5, {}) == "0.5"
    assert len(check("k", "é" * 1000, {}).encode()) <= WATCH_BYTES
    for key in ("", None, "k" * 65):
        with pytest.raises(WatchRefused, match="1 to 64 characters"):
            check(key, 1, {})
    full = {str(n): "" for n in range(KEYS)}
    with pytest.raises(WatchRefused, match="at most 64"):
        check("one more", 1, full)
    assert check("5", "again", full) == "again"


def test_a_failure_tells_its_own_lines_and_keeps_the_end_of_a_long_traceback():
    code = compile(
        "def crank(n):\n    if n: crank(n - 1)\n    raise ValueError('x' * 20000)\n", "a.py", "exec"
    )
    space: dict = {}
    exec(code, space)
    with pytest.raises(ValueError, match="x") as raised:
        space["crank"](2)
    failure = failure_of(raised.value, "a.py")
    assert failure.summary.startswith("line 3: ValueError: xxx")
    assert len(failure.summary.encode()) <= 512
    assert len(failure.trace.encode()) <= TRACEBACK_BYTES
    assert failure.trace.endswith("xxx\n")
    assert "test_pieces" not in failure.trace


@given(st.integers(0, 10**7))
def test_the_crank_has_most_of_its_shutdown_time_and_the_host_the_rest(shutdown_ms):
    whole = shutdown_ms / 1000
    assert whole * 0.75 - 1e-9 <= crank_time_s(shutdown_ms) <= whole
    assert whole - crank_time_s(shutdown_ms) <= 1
