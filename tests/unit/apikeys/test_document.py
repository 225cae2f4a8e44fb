"""The text of a key file: what goes in comes out, what is none is refused, no secret is in it."""

from __future__ import annotations

import string
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.apikeys.document import KeyFileRefused, digest_of, made, new_secret, read, written

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)


@given(st.lists(NAMES, unique=True, max_size=8))
def test_what_is_written_is_read(names: list[str]) -> None:
    keys = tuple(made(name, new_secret(), NOW) for name in names)
    assert read(written(keys), "f") == keys


def test_a_secret_is_long_is_another_each_time_and_is_not_written() -> None:
    one, two = new_secret(), new_secret()
    assert one != two
    assert one.startswith("bm-")
    assert len(one) == 46
    text = written([made("app", one, NOW)])
    assert one not in text
    assert one[3:] not in text
    assert "2026-01-02T03:04:05Z" in text


@given(st.text(string.ascii_letters + string.digits + "-_ \n=", max_size=50))
def test_what_has_not_the_form_of_a_key_has_no_digest(text: str) -> None:
    assert digest_of(text) is None


@pytest.mark.parametrize("name", ["", "a b", "-a", "a" * 65, "a\nb", "ä", "a/b"])
def test_a_name_that_cannot_be_one_is_refused(name: str) -> None:
    with pytest.raises(KeyFileRefused, match="expected 1 to 64"):
        made(name, new_secret(), NOW)


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[]",
        '{"name": "a"}',
        '{"name": "a", "sha256": "00", "created": "x"}',
        '{"name": "a b", "sha256": "' + "0" * 64 + '", "created": "x"}',
        '{"name": 1, "sha256": "' + "0" * 64 + '", "created": "x"}',
        "[" * 100_000,
    ],
)
def test_a_line_that_is_none_is_named(line: str) -> None:
    good = written([made("first", new_secret(), NOW)])
    with pytest.raises(KeyFileRefused, match="file f, line 2"):
        read(good + line + "\n", "file f")


def test_a_name_stands_there_once() -> None:
    line = written([made("app", new_secret(), NOW)])
    with pytest.raises(KeyFileRefused, match="twice"):
        read(line + line, "f")
