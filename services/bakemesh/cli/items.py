"""Texts as the verbs of inference take them: from arguments, from files, or from stdin, one a line."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bakemesh.cli.exits import usage


def add_texts(parser: argparse.ArgumentParser, name: str, what: str) -> None:
    """Arguments that give texts."""
    parser.add_argument(name, nargs="*", metavar=name.upper(), help=f"{what}; without any: lines of stdin")
    parser.add_argument(
        "--file",
        dest="files",
        action="append",
        metavar="F",
        help=f"{what} from a file, one a line; - reads stdin; may be given several times",
    )


def lines_of(given: list[str], files: list[str] | None) -> list[str]:
    """The arguments, then the lines of the files; of stdin where there is neither. Empty lines count, so that
    row n of the answer is line n. Raises Stopped for what is no UTF-8, OSError for what cannot be read.
    """
    found = list(given)
    for file in files if files is not None else ([] if given else ["-"]):
        text = read(file)
        lines = text.split("\n")
        found += [line.removesuffix("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]
    return found


def whole(given: list[str], files: list[str] | None) -> str:
    """The arguments as one text, with blanks between them; else the whole of the files, or of stdin."""
    if given:
        return " ".join(given)
    return "".join(read(file) for file in files or ["-"])


def read(file: str) -> str:
    """The text of a file, or of stdin."""
    data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise usage(f"{'stdin' if file == '-' else file}:{line}: not UTF-8: {error.reason}") from None
