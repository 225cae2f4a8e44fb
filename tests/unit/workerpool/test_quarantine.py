"""Quarantines over a restart: kept, and closed where they cannot be read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.workerpool import budget, deadlines
from bakemesh.workerpool.ledger import Ledger
from bakemesh.workerpool.models import ModelKey
from bakemesh.workerpool.quarantine import Book, Kept, load, save

BAD, GOOD = ModelKey("bad", "gguf"), ModelKey("good", "gguf")


def ledger(book: Book, now: float = 0.0) -> Ledger:
    """A ledger of the usual rules."""
    return Ledger(budget.Rules(), deadlines.Rules(), 900.0, book, now)


def test_a_quarantine_outlives_the_host_with_what_was_left_of_its_pause(tmp_path):
    file, first = tmp_path / "state" / "quarantine.json", ledger(Book({}))
    for now in (1.0, 2.0, 3.0):
        first.charge(BAD, now, "embed")
    save(file, first.book(13.0), wall=1000.0)
    second = ledger(load(file, wall=1020.0, longest_s=900.0), now=5.0)
    assert second.refused_for(BAD, 5.0) == pytest.approx(30.0)
    assert second.standing(BAD, 5.0).crashed_in == "embed"
    assert second.refused_for(GOOD, 5.0) is None
    second.probed(BAD, 40.0, passed=False)
    assert second.refused_for(BAD, 40.0) == pytest.approx(120.0)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"version": 2}', '{"version":1,"quarantined":{"a":{}},"closed":0}', "\0"]
)
def test_a_file_that_cannot_be_read_quarantines_every_model_until_its_probe(tmp_path, text):
    file = tmp_path / "quarantine.json"
    file.write_text(text)
    book = load(file, wall=0.0, longest_s=900.0)
    assert book.problem is not None
    first = ledger(book)
    assert first.refused_for(GOOD, 0.0) == 60.0
    first.probed(GOOD, 1.0, passed=True)
    assert first.refused_for(GOOD, 1.0) is None
    # … and after the next restart too, though the file can be read now.
    save(file, first.book(1.0), wall=0.0)
    second = ledger(load(file, wall=0.0, longest_s=900.0))
    assert second.refused_for(GOOD, 0.0) is None
    assert second.refused_for(BAD, 0.0) is not None


def test_no_file_is_an_empty_book(tmp_path):
    assert load(tmp_path / "none.json", wall=0.0, longest_s=900.0) == Book({})


@given(st.floats(-1e9, 1e10))
def test_whatever_the_clock_did_a_probe_comes_within_the_longest_pause(tmp_path_factory, wall):
    file = tmp_path_factory.mktemp("q") / "quarantine.json"
    save(file, Book({"a": Kept(100.0, 2, "load")}), wall=1e9)
    assert 0 <= load(file, wall=wall, longest_s=900.0).kept["a"].due_s <= 900


def test_what_is_written_is_whole_or_not_there(tmp_path):
    file = tmp_path / "quarantine.json"
    save(file, Book({"a": Kept(1.0, 1, "load")}), wall=0.0)
    file.with_name("quarantine.json.new").write_text("half a wr")  # a host that died in the middle
    assert json.loads(file.read_text())["quarantined"]["a"]["in_a_row"] == 1
    save(file, Book({}), wall=0.0)
    assert load(file, wall=0.0, longest_s=900.0) == Book({})
