"""Headers as they came, made one plain map; the codec both ways."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.protocol.axon import InvalidHeaderValue, Synapse, SynapseError, TerminalInfo, keys
from bakemesh.protocol.axon.headers import normal
from bakemesh.protocol.axon.terminal import U16, U32, U64
from support.recorded import exchanges, raw_headers, recorded

LEGAL = set(range(0x20, 0x7F))

# What may stand in a header and comes back as it was: no space at its ends, `%` where all is printable.
WORDS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=80).map(str.strip)
TERMINALS = st.builds(
    TerminalInfo,
    status_code=st.none() | st.integers(0, U16),
    status_message=st.none() | WORDS,
    process_time=st.none() | st.floats(allow_nan=False),
    ip=st.none() | WORDS,
    port=st.none() | st.integers(0, U16),
    version=st.none() | st.integers(0, U32),
    nonce=st.none() | st.integers(0, U64),
    uuid=st.none() | WORDS,
    hotkey=st.none() | WORDS,
    signature=st.none() | WORDS,
)
ANY_TERMINALS = st.builds(
    TerminalInfo,
    status_message=st.text(),
    ip=st.text(),
    uuid=st.text(),
    hotkey=st.text(),
    signature=st.text(),
    process_time=st.floats(),
)
OWN_NAMES = st.sampled_from(
    [
        *keys.TOP_LEVEL,
        *(keys.DENDRITE_PREFIX + name for name in TerminalInfo.model_fields),
        *(keys.AXON_PREFIX + name for name in TerminalInfo.model_fields),
        "bt_header_input_obj_text",
        "x-bittensor-nonce",
    ]
)
SPELLINGS = st.sampled_from(
    [
        str,
        str.upper,
        str.title,
        lambda name: name.replace("_", "-"),
        lambda name: name.replace("_", "-").upper(),
    ]
)


class Echo(Synapse):
    text: str = ""
    n: int = 0
    rows: list[int] | dict[str, float] | None = None


@given(TERMINALS, st.sampled_from([keys.AXON_PREFIX, keys.DENDRITE_PREFIX, ""]))
def test_a_terminal_comes_back_from_its_headers(info: TerminalInfo, prefix: str) -> None:
    headers = info.to_headers_with_prefix(prefix)
    assert None not in headers.values()
    assert len(headers) == len(info.model_dump(exclude_none=True))
    raw = [(key.encode(), value.encode()) for key, value in headers.items()]
    assert TerminalInfo.from_headers_with_prefix(headers, prefix) == info
    assert TerminalInfo.from_headers_with_prefix(dict(normal(raw)), prefix) == info


def test_a_process_time_that_is_no_number_comes_back_as_such() -> None:
    headers = TerminalInfo(process_time=math.nan).to_headers_with_prefix("")
    assert headers == {"process_time": "nan"}
    found = TerminalInfo.from_headers_with_prefix(headers, "").process_time
    assert found is not None
    assert math.isnan(found)


@given(ANY_TERMINALS, st.text(), st.text())
def test_whatever_the_fields_hold_the_headers_are_legal(info: TerminalInfo, name: str, digest: str) -> None:
    """Line breaks and surrogates too: what came in a body never splits an answer."""
    synapse = Synapse(name="x")
    synapse.set_dendrite(info)
    synapse.set_axon(info)
    synapse.set_computed_body_hash(digest)
    synapse.set_total_size(1)
    synapse.__dict__["name"] = name
    for key, value in synapse.to_headers().items():
        assert set(key.encode()) <= LEGAL
        assert set(value.encode()) <= LEGAL


def test_a_line_break_from_a_body_is_no_header() -> None:
    body = rb'{"name":"E\r\nSet-Cookie: a","dendrite":{"hotkey":"5Bob\r\nX: y","uuid":"\ud83c\udf0d"}}'
    headers = Synapse.from_body(body).to_headers()
    assert headers["bt_header_dendrite_hotkey"] == "5Bob%0D%0AX: y"
    assert headers["name"] == "E%0D%0ASet-Cookie: a"
    assert headers["bt_header_dendrite_uuid"] == "%F0%9F%8C%8D"


@given(
    TERMINALS,
    TERMINALS,
    st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1),
    st.floats(0, allow_nan=False),
    st.integers(1, U64),
)
def test_a_synapse_comes_back_from_its_headers(
    axon: TerminalInfo, dendrite: TerminalInfo, name: str, timeout: float, total: int
) -> None:
    synapse = Echo(name=name, timeout=timeout, total_size=total, text="not sent")
    synapse.set_axon(axon)
    synapse.set_dendrite(dendrite)
    headers = synapse.to_headers()
    raw = [(key.replace("_", "-").title().encode(), value.encode()) for key, value in headers.items()]
    again = Echo.from_headers(normal(raw))
    assert again.to_headers() == headers
    assert (again.name, again.timeout, again.total_size) == (name, timeout, total)
    assert (again.axon, again.dendrite, again.text) == (axon, dendrite, "")


RAW = st.lists(
    st.tuples(
        st.one_of(
            st.binary(max_size=30),
            st.builds(lambda name, how: how(name).encode(), OWN_NAMES, SPELLINGS),
        ),
        st.one_of(
            st.binary(max_size=60),
            st.sampled_from([b"1", b"nan", b"-1", b"inf", b"99999999999999999999", b"IiI=", b"W10="]),
        ),
    ),
    max_size=12,
)


@given(RAW)
def test_arbitrary_headers_raise_nothing_but_a_synapse_error(raw: list[tuple[bytes, bytes]]) -> None:
    try:
        found = normal(raw)
        synapse = Echo.from_headers(found)
    except SynapseError as error:
        assert len(str(error)) < 1000  # noqa: PT017
        return
    assert synapse.timeout >= 0
    assert all(set(value.encode()) <= LEGAL for value in synapse.to_headers().values())


@given(RAW)
def test_the_map_is_plain(raw: list[tuple[bytes, bytes]]) -> None:
    try:
        found = normal(raw)
    except InvalidHeaderValue:
        return
    for key, value in found.items():
        assert key == key.lower()
        assert value == value.strip(" \t")
        assert not any(ord(each) < 0x20 and each != "\t" for each in value)
        if key.startswith("bt_"):
            assert "-" not in key


@given(OWN_NAMES, SPELLINGS, SPELLINGS, st.booleans())
def test_a_header_of_the_protocol_stands_there_once_in_any_spelling(
    name: str, one: object, other: object, same: bool
) -> None:
    assert callable(one)
    assert callable(other)
    second = b"5Alice" if same else b"5Bob"
    raw = [(one(name).encode(), b"5Alice"), (b"accept", b"*/*"), (other(name).encode(), second)]
    with pytest.raises(InvalidHeaderValue, match="it stands there twice"):
        normal(raw)
    assert normal(raw[:2]) == {
        name.replace("_", "-") if name.startswith("x-") else name: "5Alice",
        "accept": "*/*",
    }


@pytest.mark.parametrize(
    "name", ["Content-Length", "content-type", "Host", "Authorization", "content-encoding"]
)
def test_what_decides_how_a_body_is_read_stands_there_once(name: str) -> None:
    with pytest.raises(InvalidHeaderValue, match="twice"):
        normal([(name.encode(), b"1"), (name.lower().encode(), b"2")])


def test_of_other_headers_the_first_counts() -> None:
    assert normal([(b"Accept", b"a"), (b"accept", b"b"), (b"X-Forwarded-For", b"c")]) == {
        "accept": "a",
        "x-forwarded-for": "c",
    }


def test_hyphens_are_underscores_in_names_of_the_protocol_only() -> None:
    raw = [
        (b"BT-Header-Dendrite-Hotkey", b"h"),
        (b"computed-body-hash", b"c"),
        (b"user-agent", b"u"),
        (b"x_y", b"z"),
    ]
    assert normal(raw) == {
        "bt_header_dendrite_hotkey": "h",
        "computed_body_hash": "c",
        "user-agent": "u",
        "x_y": "z",
    }


@pytest.mark.parametrize("value", [b"a\r\nb", b"a\nb", b"a\rb", b"a\0", b"\x7f", b"a\x0b"])
def test_a_control_character_is_refused(value: bytes) -> None:
    with pytest.raises(InvalidHeaderValue, match="it holds a control character"):
        normal([(b"bt_header_dendrite_uuid", value)])


def test_a_tab_within_a_value_is_none() -> None:
    assert normal([(b"name", b"\t a\tb \t")]) == {"name": "a\tb"}


@pytest.mark.parametrize("name", exchanges())
def test_recorded_headers_are_taken(name: str) -> None:
    request = recorded(name)["request"]
    found = normal(raw_headers(request))
    assert len(found) == len(request["headers"])
    assert found["name"] == request["line"].split()[1][1:] if "name" in found else True


def test_hyphened_headers_read_as_the_others() -> None:
    """The real axon finds no hotkey in them; behind a proxy that drops underscores there is no other way."""
    found = normal(raw_headers(recorded("quirk_hyphen_headers")["request"]))
    synapse = Echo.from_headers(found)
    assert (synapse.name, synapse.total_size, synapse.axon.port) == ("Echo", 3097, 18092)
    assert synapse.dendrite.hotkey == "5FHneW46xGXgs5mUiveU4sbTyGBzmstUspZC92UhjJM694ty"


@pytest.mark.parametrize("text", ["nan", "-1", "-inf", "-0.001"])
def test_a_timeout_is_a_number_of_seconds(text: str) -> None:
    """NaN is neither less nor more than any limit: a deadline of it would never come."""
    with pytest.raises(
        InvalidHeaderValue, match=r"invalid header value for timeout: .* is no number of seconds"
    ):
        Echo.from_headers({"name": "Echo", "timeout": text})


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0.0), ("inf", math.inf), ("1e400", math.inf), ("-0", 0.0)]
)
def test_timeouts_that_are_taken(text: str, seconds: float) -> None:
    assert Echo.from_headers({"name": "Echo", "timeout": text}).timeout == seconds
