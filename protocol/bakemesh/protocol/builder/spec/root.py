"""The root's `name=`, read quickly: whose recipe a message carries is asked before the recipe is read whole.

Guarantees: reads no further than the root's start and at most 1 MiB; the same bounds against DTDs and
entities as `document`. Left out: whether the name is a good one, and everything below the root.
"""

from __future__ import annotations

from typing import Any, Final

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser, ParseError

from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.builder.spec.document import malformed
from bakemesh.protocol.builder.spec.problems import Problem, RecipeRefused, clip, quoted

ROOT_BYTES: Final = 1 << 20  # where in the text the root must begin and end its start tag
_FIRST = 4096


class _Found(Exception):
    """Raised when the root's start is read, to leave the parser."""


class _RootOnly:
    def __init__(self) -> None:
        self.tag = ""
        self.name: str | None = None

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.tag = tag
        for key, value in attributes.items():
            if key.lower() == "name":
                self.name = value
        raise _Found


def root_name(xml: str, *, file: str = "recipe") -> str | None:
    """The `name=` of the root `<recipe>`, as it is written; None where it has none.

    Raises RecipeRefused where no such root can be read within 1 MiB; it has one problem, the first.
    """
    root = _RootOnly()
    parser = DefusedXMLParser(target=root, encoding="utf-8", forbid_dtd=True)
    expat: Any = parser.parser
    begin, length = 0, _FIRST
    code, line, message = Code.INVALID_RECIPE, 1, ""
    try:
        while begin < min(len(xml), ROOT_BYTES):
            parser.feed(xml[begin : min(begin + length, ROOT_BYTES)].encode())
            begin, length = begin + length, length * 2  # doubling: a long token is scanned a few times only
        if len(xml) > ROOT_BYTES:
            code, message = Code.TOO_LARGE, f"no root element within {ROOT_BYTES:,} characters"
        else:
            parser.close()
    except _Found:
        if root.tag.lower() == "recipe":
            return root.name
        line, message = expat.CurrentLineNumber, f"the root is <{clip(root.tag, 64)}>; a recipe's is <recipe>"
    except UnicodeEncodeError as error:
        line = xml.count("\n", 0, begin + error.start) + 1
        message = f"character {quoted(error.object[error.start])} cannot stand in XML; remove it"
    except (ParseError, DefusedXmlException) as error:
        line, _, _, message = malformed(error, expat.CurrentLineNumber)
    raise RecipeRefused([Problem(file, line, None, None, message)], code)
