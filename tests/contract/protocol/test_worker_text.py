"""protocol/worker-v1.md against the code: every field, code, key, limit and exit code that it names."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from bakemesh.protocol.worker import frames, headers, link, place
from bakemesh.worker import __main__ as worker
from bakemesh.worker import config, orphaned

PROTOCOL = Path(__file__).parents[3] / "protocol"
TEXT = (PROTOCOL / "worker-v1.md").read_text(encoding="utf-8")


def section(number: int) -> str:
    """The text of a numbered section."""
    found = re.search(rf"^## {number} .*?(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found.group()


def rows(text: str) -> list[list[str]]:
    """The cells of every table's rows."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]


def words(text: str) -> set[str]:
    """What stands between backquotes."""
    return {
        word.rstrip("?°") for found in re.findall(r"`([^`]+)`", text) for word in re.split(r"[ ,]+", found)
    }


def said_of(kind: str) -> str:
    """Where the text tells the fields of a type."""
    if kind in ("HELLO", "HELLO_ACK"):
        table = section(5).split(f"| {kind} | type | |")[1].split("\n\n")[0]
        return " ".join(row[0] for row in rows(table))
    for row in rows(section(7)):
        if row[0].rstrip("°") == kind:
            return row[1] if kind != "GENERATE_STREAM" else row[1] + said_of("GENERATE")
        for part in re.split(r"; ", row[3]) if len(row) > 3 else []:
            if re.match(rf"(then )?{kind}\b", part):
                return part if kind != "TEXT" or "`" in part else said_of_text()
    return section(8).split("\n\n")[1]


def said_of_text() -> str:
    """GENERATE's row tells TEXT."""
    return next(row[3] for row in rows(section(7)) if row[0] == "GENERATE")


@pytest.mark.parametrize("kind", sorted(headers.KNOWN))
def test_every_field_of_every_type_is_in_the_text(kind: str) -> None:
    said = words(said_of(kind)) | set(re.findall(r"[a-z_]+", said_of(kind)))
    assert {each.name for each in fields(headers.KNOWN[kind])} <= said


def test_every_code_is_in_the_text_in_order() -> None:
    codes = [row[0].strip("`°") for row in rows(section(8))][2:]
    assert sorted(codes) == sorted(headers.CODES)


def test_every_key_of_runtime_config_is_in_the_text() -> None:
    keys = {word for row in rows(section(9))[2:] for word in words(row[0])}
    assert keys == set(config.KEYS)


def test_finish_reasons_poolings_and_added_types() -> None:
    assert set(headers.FINISH_REASONS) <= words(section(11))
    assert f"`{', '.join(headers.POOLINGS)}`" in section(7)
    assert f"`{', '.join(headers.ADDED_TYPES)}`" in section(13)
    raw = {kind for kind, cls in headers.KNOWN.items() if cls.RAW}
    assert raw == words(
        section(3).split("raw frames that its type calls")[1].split(" are followed by one")[0]
    )


def test_every_state_is_in_the_text() -> None:
    assert {row[0] for row in rows(section(6))[2:]} == {state.name for state in link.State} - {"CLOSED"}


def test_limits() -> None:
    assert str(frames.MAX_FRAME) in section(3)
    assert str(frames.SMALLEST_MAX) in section(3)
    assert str(frames.FIRST_MAX) in section(3)
    assert f"1 to {headers.MAX_ITEMS} items" in section(7)
    assert f"1 to {headers.MAX_REQ_ID} characters" in section(4)
    assert f"At most {link.MOST_CANCELS} CANCELs" in section(6)
    assert all(str(limit) in section(2) for limit in place.LIMITS.values())


def test_exits() -> None:
    assert f"exit {worker.PROTOCOL}" in section(12)
    assert f"exit {worker.USAGE}; {worker.NO_HOST}; {worker.NO_ENGINE}" in section(12)
    assert f"{orphaned.GRACE_S:g} s" in section(12)
    assert f"{orphaned.ASKED}=1" in section(12)


def test_every_vector_file_that_the_text_names_exists_and_the_other_way() -> None:
    named = set(re.findall(r"`(worker-[a-z]+\.json)`", TEXT))
    assert named == {each.name for each in (PROTOCOL / "vectors").glob("worker-*.json")}


def test_the_contents_name_every_section() -> None:
    titles = re.findall(r"^## (\d+ .+)$", TEXT, re.MULTILINE)
    assert [re.sub(r"\s+", " ", each) for each in re.findall(r"\[(\d+ [^\]]+)\]", TEXT)] == titles
