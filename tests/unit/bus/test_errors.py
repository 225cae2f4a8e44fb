"""JetStream's error numbers become typed errors, whatever the server leaves out."""

from __future__ import annotations

import pytest

from bakemesh.bus.errors import (
    NameTaken,
    NoRoom,
    NoStore,
    NotFound,
    StoreError,
    StoreFull,
    StoreUnavailable,
    WrongSequence,
    store_error,
)
from bakemesh.bus.jsapi import parse_answer, parse_headers


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (10077, StoreFull),
        (10070, WrongSequence),
        (10071, WrongSequence),
        (10164, WrongSequence),
        (10047, NoRoom),
        (10059, NotFound),
        (10014, NotFound),
        (10037, NotFound),
        (10058, NameTaken),
        (10065, NameTaken),
        (10076, NoStore),
        (10008, StoreUnavailable),
        (10052, StoreError),
    ],
)
def test_a_number_is_a_cause(number: int, kind: type[StoreError]) -> None:
    made = store_error("STREAM.CREATE.s", {"code": 400, "err_code": number, "description": "because"})
    assert type(made) is kind
    assert made.err_code == number
    assert str(made) == f"STREAM.CREATE.s: because ({number})"


@pytest.mark.parametrize(
    ("description", "last"),
    [("wrong last sequence: 5", 5), ("wrong last sequence: 0", 0), ("wrong last sequence", None), ("", None)],
)
def test_a_wrong_sequence_tells_the_last(description: str, last: int | None) -> None:
    error = store_error("s", {"err_code": 10071, "description": description})
    assert isinstance(error, WrongSequence)
    assert error.last == last


def test_without_a_number_the_status_decides() -> None:
    assert type(store_error("s", {"code": 404})) is NotFound
    assert type(store_error("s", {"code": 503})) is StoreUnavailable
    assert type(store_error("s", {"code": 400})) is StoreError
    assert type(store_error("s", {})) is StoreError


@pytest.mark.parametrize("payload", [b"", b"\xff", b"[]", b"null", b'"x"', b"+OK"])
def test_an_answer_that_is_none_is_no_crash(payload: bytes) -> None:
    with pytest.raises(StoreUnavailable):
        parse_answer("INFO", payload)


def test_headers_of_a_stored_message() -> None:
    raw = b"NATS/1.0\r\nNats-Msg-Id: abc\r\nBakemesh-Reply:_INBOX.a.b:c\r\nno colon\r\n\r\n"
    assert parse_headers(raw) == {"Nats-Msg-Id": "abc", "Bakemesh-Reply": "_INBOX.a.b:c"}
    assert parse_headers(b"") == {}
