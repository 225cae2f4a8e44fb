"""Worker headers by the faster library, and without: the same is read, written and refused."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.protocol.worker import headers
from bakemesh.protocol.worker.errors import HeaderBroken

pytest.importorskip("msgspec")

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(scope="module", autouse=True)
def both() -> Iterator[None]:
    """As it was, afterwards."""
    before = headers._quick
    yield
    headers._quick = before


def decoded(payload: bytes, *, quick: bool) -> object:
    headers._quick = None
    if quick:
        assert headers.hasten()
    try:
        return repr(headers.decode(payload))
    except HeaderBroken:
        return HeaderBroken


@given(st.dictionaries(st.text(max_size=8), JSON, max_size=5), st.booleans())
def test_every_object_reads_the_same(given_: dict[str, object], escaped: bool) -> None:
    payload = json.dumps({**given_, "type": "X"}, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    assert decoded(payload, quick=True) == decoded(payload, quick=False)


@given(st.binary(max_size=60) | st.text(max_size=40).map(lambda text: text.encode("utf-8", "replace")))
def test_any_bytes_read_the_same(payload: bytes) -> None:
    for each in (payload, b'{"type":"X","a":' + payload + b"}"):
        assert decoded(each, quick=True) == decoded(each, quick=False)


@given(st.text(st.characters(), max_size=40), st.floats(0, 1e6, allow_nan=False), st.integers(0, 2**53 - 1))
def test_what_is_written_says_the_same(text: str, mb: float, count: int) -> None:
    for header in (
        headers.Pong(req_id=text, rss_mb=mb, models_loaded=count),
        headers.Err(code="oom", msg=text),
    ):
        headers._quick = None
        slowly = headers.write(header)
        assert headers.hasten()
        assert json.loads(headers.write(header)) == json.loads(slowly)
