"""What is a whole number in a stranger's text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.protocol.numerals import DIGITS, whole


@given(st.integers(0, 10**DIGITS - 1))
def test_a_number_is_itself(number: int) -> None:
    assert whole(str(number)) == number


@given(st.text(max_size=40))
def test_any_text_is_a_number_or_none(text: str) -> None:
    found = whole(text)
    assert found is None or int(text) == found


@pytest.mark.parametrize("text", ["", "²", "٣", "-1", "+1", " 1", "1_0", "1.0", "9" * 5000])
def test_what_is_none(text: str) -> None:
    assert whole(text) is None


def test_as_many_digits_as_asked() -> None:
    assert whole("123", digits=3) == 123
    assert whole("1234", digits=3) is None
