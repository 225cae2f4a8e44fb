"""Quarantines over a restart of the host: one JSON file, replaced by rename.

Guarantees: fails closed: while the file cannot be read, every model counts as quarantined until a probe of it
passed, and that is kept in the file too, until a person removes it. Left out: clean models' charges: a window
is a minute.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VERSION = 1


@dataclass(frozen=True, slots=True)
class Kept:
    """One quarantine. `due_s`: seconds from now to its next probe."""

    due_s: float
    in_a_row: int
    crashed_in: str


@dataclass(frozen=True, slots=True)
class Book:
    """What a file says, by the models' ids. `closed`: what is not in `passed` is quarantined."""

    kept: Mapping[str, Kept]
    closed: bool = False
    passed: frozenset[str] = frozenset()
    problem: str | None = None  # why it could not be read


def load(file: Path, wall: float, longest_s: float) -> Book:
    """Reads the file; no file is an empty book. `wall`: seconds since 1970. Whatever clocks did, no probe is
    further away than `longest_s`."""
    try:
        text = file.read_text()
    except FileNotFoundError:
        return Book({})
    except (OSError, ValueError) as error:
        return Book({}, closed=True, problem=f"{file}: {error}")
    try:
        return _parse(json.loads(text), wall, longest_s)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return Book({}, closed=True, problem=f"{file} is not as it was written: {error!r}")


def _parse(given: Any, wall: float, longest_s: float) -> Book:
    if given["version"] != VERSION:
        raise ValueError(f"version {given['version']!r}; this host writes {VERSION}")
    kept = {}
    for name, each in given["quarantined"].items():
        due = min(max(float(each["probe_at"]) - wall, 0.0), longest_s)
        kept[name] = Kept(due, max(1, int(each["in_a_row"])), str(each["crashed_in"]))
    return Book(kept, bool(given["closed"]), frozenset(map(str, given["passed"])))


def save(file: Path, book: Book, wall: float) -> None:
    """Replaces the file. Raises OSError."""
    said = {
        "version": VERSION,
        "closed": book.closed,
        "passed": sorted(book.passed),
        "quarantined": {
            name: {"probe_at": wall + each.due_s, "in_a_row": each.in_a_row, "crashed_in": each.crashed_in}
            for name, each in sorted(book.kept.items())
        },
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f"{file.name}.new")
    with open(fresh, "w") as out:
        json.dump(said, out, indent=1)
        out.flush()
        os.fsync(out.fileno())
    os.replace(fresh, file)
