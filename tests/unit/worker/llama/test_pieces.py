"""Text of tokens: told once, never taken back, whole characters only, cut exactly at stop strings."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bakemesh.worker.engines.llama.pieces import Pieces

TEXTS = st.text(alphabet="abcé東🙂 ", max_size=30)
STOPS = st.lists(st.text(alphabet="abcé🙂", min_size=1, max_size=4), max_size=3)


def tell(chunks: list[bytes], stop: list[str]) -> tuple[list[str], Pieces]:
    """What is told of the chunks, piece by piece, the end's included."""
    pieces = Pieces(stop)
    told = [pieces.push(chunk) for chunk in chunks]
    return [*told, pieces.end()], pieces


@st.composite
def cuttings(draw: st.DrawFn, texts: st.SearchStrategy[str] = TEXTS) -> tuple[str, list[bytes]]:
    """A text and its bytes in chunks cut anywhere, in the middle of characters too."""
    text = draw(texts)
    whole = text.encode()
    cuts = sorted(draw(st.sets(st.integers(0, len(whole)), max_size=10)))
    return text, [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


@given(cuttings())
def test_without_stops_the_told_pieces_joined_are_the_text(cutting: tuple[str, list[bytes]]) -> None:
    text, chunks = cutting
    told, pieces = tell(chunks, [])
    assert "".join(told) == text == pieces.text
    assert not pieces.stopped


@given(cuttings(), STOPS)
def test_the_text_ends_before_the_stop_string_that_is_whole_first(
    cutting: tuple[str, list[bytes]], stops: list[str]
) -> None:
    text, chunks = cutting
    whole = [end for end in range(len(text) + 1) if any(text[:end].endswith(each) for each in stops)]
    wanted = text
    if whole:
        longest = max((each for each in stops if text[: whole[0]].endswith(each)), key=len)
        wanted = text[: whole[0] - len(longest)]
    told, pieces = tell(chunks, stops)
    assert "".join(told) == wanted == pieces.text
    assert pieces.stopped == bool(whole)


@given(cuttings(), STOPS)
def test_only_what_may_become_a_stop_string_is_held(
    cutting: tuple[str, list[bytes]], stops: list[str]
) -> None:
    pieces, came = Pieces(stops), b""
    for chunk in cutting[1]:
        pieces.push(chunk)
        came += chunk
        if pieces.stopped:
            break
        whole = came.decode("utf-8", "ignore")
        held = whole.removeprefix(pieces.text)
        assert pieces.text + held == whole
        assert not held or any(len(held) < len(each) and each.startswith(held) for each in stops)


def test_half_a_character_is_held_and_at_the_end_left_out() -> None:
    pieces = Pieces()
    assert pieces.push("é".encode()[:1]) == ""
    assert pieces.push("é".encode()[1:]) == "é"
    assert pieces.push("🙂".encode()[:3]) == ""
    assert pieces.end() == ""
    assert pieces.text == "é"


def test_bytes_that_are_no_character_are_told_as_such() -> None:
    told, _ = tell([b"a\xff", b"b"], [])
    assert "".join(told) == "a\ufffdb"


def test_after_a_stop_nothing_is_taken() -> None:
    told, pieces = tell([b"one STOP two", b" three"], ["STOP"])
    assert told == ["one ", "", ""]
    assert pieces.stopped
