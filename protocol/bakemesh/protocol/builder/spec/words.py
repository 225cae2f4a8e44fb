"""A command line split into words as a POSIX shell splits them: quotes and backslashes, no expansion.

The same words as `shlex.split`, which looks at one character at a time: with that a recipe of a mebibyte
would hold up its Builder for seconds.
"""

from __future__ import annotations

import re

_BLANK = re.compile(r"[ \t\r\n]+")
_PIECE = re.compile(
    r"""(?P<plain>[^ \t\r\n'"\\]+)"""
    r"""|'(?P<single>[^']*)'"""
    r"""|"(?P<double>(?:[^"\\]|\\.)*)\""""
    r"""|\\(?P<escaped>.)""",
    re.DOTALL,
)
_IN_DOUBLE = re.compile(r'\\(["\\])')


def split(command: str) -> list[str]:
    """The words of `command`. Raises ValueError for an open quote, or a backslash at the end."""
    words: list[str] = []
    at, end = 0, len(command)
    while True:
        if blank := _BLANK.match(command, at):
            at = blank.end()
        if at == end:
            return words
        pieces: list[str] = []
        while at < end and (found := _PIECE.match(command, at)):
            at = found.end()
            kind, text = found.lastgroup, found[found.lastgroup or 0]
            pieces.append(_IN_DOUBLE.sub(r"\1", text) if kind == "double" and "\\" in text else text)
        if at < end and command[at] in "'\"\\":
            raise ValueError("No escaped character" if command[at] == "\\" else "No closing quotation")
        words.append("".join(pieces))
