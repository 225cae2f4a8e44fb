"""What the parameters' models were made of is remembered, and only that."""

from __future__ import annotations

import os
from pathlib import Path

from bakemesh.synapse.remembered import FILE, Remembered, mark


def model(folder: Path, text: str = "{}") -> Path:
    path = folder / "m.fake"
    path.write_text(text)
    return path


def test_the_same_file_is_the_same_over_a_start(tmp_path: Path) -> None:
    path = model(tmp_path)
    now = mark(path, "asis", {"ctx_size": "8"})
    Remembered(tmp_path).put("a", now)
    again = Remembered(tmp_path)
    assert again.same("a", mark(path, "asis", {"ctx_size": "8"}))
    assert not again.same("b", now)
    assert not again.same("a", mark(path, "fastest", {"ctx_size": "8"}))
    assert not again.same("a", mark(path, "asis", {}))


def test_a_file_that_was_changed_is_another_one(tmp_path: Path) -> None:
    path = model(tmp_path)
    remembered = Remembered(tmp_path)
    remembered.put("a", mark(path, "asis", {}))
    times = path.stat()
    path.write_text("[]")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # of the same size, and time of change
    assert not remembered.same("a", mark(path, "asis", {}))


def test_a_tokenizer_that_comes_beside_makes_it_another_one(tmp_path: Path) -> None:
    path = model(tmp_path)
    before = mark(path, "asis", {})
    (tmp_path / "tokenizer.json").write_text("{}")
    assert mark(path, "asis", {}) != before


def test_what_cannot_be_looked_at_is_never_the_same(tmp_path: Path) -> None:
    remembered = Remembered(tmp_path)
    assert mark(tmp_path / "absent.gguf", "asis", {}) is None
    remembered.put("a", None)
    assert not remembered.same("a", None)


def test_a_damaged_file_remembers_nothing(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("[1, 2")
    remembered = Remembered(tmp_path)
    now = mark(model(tmp_path), "asis", {})
    assert not remembered.same("a", now)
    remembered.put("a", now)
    assert Remembered(tmp_path).same("a", now)
