"""Whole numbers in text that somebody else wrote."""

DIGITS = 18  # as many fit into 64 bits, and into what int() takes


def whole(text: str, digits: int = DIGITS) -> int | None:
    """The number that text of ASCII digits, at most so many, spells; None for any other text.

    `str.isdigit` is no test of what `int` takes: it holds for "²", and for more digits than int() converts.
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else None
