"""The root's `name=`, read quickly: whose recipe a message carries is asked before the recipe is read whole.

Guarantees: reads no further than the root's start and at most 1 MiB; the same bounds against DTDs and
entities as `document`. Left out: whether the name is a good one, and everything below the root.
"""

from __future__ import annotations

from typing import Final

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser, ParseError

ROOT_BYTES: Final = 1 << 20  # where in the text the root must begin and end its start tag
_FIRST = 4096


class _Found(Exception):
    """Raised when the root's start is read, to leave the parser."""


class _RootOnly:
    def __init__(self) -> None:
        self.tag = ""
        self.name = ""

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.tag = tag
        for key, value in attributes.items():
            if key.lower() == "name":
                self.name = value
        raise _Found


def root_name(xml: str) -> str | None:
    """The `name=` of the root `<recipe>`, as it is written; "" where it has none.

    None where no such root can be read within 1 MiB: `load_recipe` says why. It raises nothing.
    """
    root = _root(xml)
    return root.name if root is not None and root.tag.lower() == "recipe" else None


def root_kind(xml: str) -> str | None:
    """The name of the root, lowered: `recipe`, `psyspec`; None where none can be read. It raises nothing."""
    root = _root(xml)
    return None if root is None else root.tag.lower()


def _root(xml: str) -> _RootOnly | None:
    root = _RootOnly()
    parser = DefusedXMLParser(target=root, encoding="utf-8", forbid_dtd=True)
    begin, length = 0, _FIRST
    try:
        while begin < min(len(xml), ROOT_BYTES):
            parser.feed(xml[begin : min(begin + length, ROOT_BYTES)].encode())
            begin, length = begin + length, length * 2  # doubling: a long token is scanned few times
    except _Found:
        return root
    except (ParseError, DefusedXmlException, UnicodeEncodeError):
        return None
    return None
