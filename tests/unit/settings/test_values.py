"""What each reader takes and how it says no."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.settings import values


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("16777216", 16 * 1024**2),
        ("16MiB", 16 * 1024**2),
        ("1g", 1024**3),
        ("2 TiB", 2 * 1024**4),
        (2**30, 2**30),
    ],
)
def test_sizes(text, wanted):
    assert values.size(1)(text) == wanted


@pytest.mark.parametrize("text", ["", "lots", "-1", "1.5GiB", "3qb", True, None, []])
def test_no_sizes(text):
    with pytest.raises(ValueError, match="no size"):
        values.size(1)(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("localhost", "nats://localhost:4222"),
        ("localhost:1", "nats://localhost:1"),
        ("tls://h", "tls://h:4222"),
        ("wss://h/p", "wss://h/p"),
        ("nats://[::1]:4222", "nats://[::1]:4222"),
    ],
)
def test_urls(text, wanted):
    assert values.url(text) == wanted


@pytest.mark.parametrize("text", ["nats://h:port", "nats://:4222", "http://h", "", "nats://h:99999", 3])
def test_no_urls(text):
    with pytest.raises(ValueError, match="expected"):
        values.url(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("127.0.0.1", ("127.0.0.1", None)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
        ("::1", ("::1", None)),
        ("[::1]:9", ("::1", 9)),
    ],
)
def test_where_to_listen(text, wanted):
    assert values.listen(text) == wanted


@pytest.mark.parametrize("text", ["h:port", ":1", "h:70000"])
def test_nowhere_to_listen(text):
    with pytest.raises(ValueError, match=r"expected|number"):
        values.listen(text)


@pytest.mark.parametrize(("text", "wanted"), [("alpha", "alpha"), ("alpha=a1", "alpha=a1")])
def test_nodes(text, wanted):
    assert str(values.node(text)) == wanted


@pytest.mark.parametrize("text", ["alpha=", "=a", "a b", "a=b=c", "", "x" * 33])
def test_no_nodes(text):
    with pytest.raises(ValueError, match=r"\w"):
        values.node(text)


def test_three_answers():
    assert [values.yes_no_auto(text) for text in ("yes", "OFF", "auto", True)] == [True, False, None, True]
    with pytest.raises(ValueError, match="yes, no, auto"):
        values.yes_no_auto("maybe")


READERS = [
    values.urls,
    values.url,
    values.listen,
    values.node,
    values.path,
    values.rate,
    values.yes_no_auto,
    values.size(1),
    values.integer(0, 9),
    values.token("mesh"),
    values.token_list("Supervisor"),
    values.one_of("a", "b"),
]
anything = st.one_of(
    st.text(),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.lists(st.one_of(st.text(), st.integers())),
    st.none(),
    st.text(alphabet="nats:/[]@.=,0129aKMi%~", max_size=20),
)


@given(st.sampled_from(READERS), anything)
def test_a_reader_raises_value_error_and_nothing_else(reader, value):
    reason = "taken"
    try:
        reader(value)
    except ValueError as error:
        reason = str(error)
    assert reason
