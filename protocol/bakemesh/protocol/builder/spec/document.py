"""XML text → a tree of nodes that know their lines; the one place where a stranger's XML meets a parser.

Guarantees: no DTD, no entities but the five of XML, nothing external (defusedxml); size, depth, number of
elements and length of attributes are bounded and reading stops at the first bound that is passed, so that a
bomb costs what its first bytes cost. Element and attribute names are lowered, for they are case-insensitive.
Left out: comments and processing instructions are dropped (but `<?bakemesh-from …?>` where it is asked for,
which says from which file and line what follows comes), namespaces have no meaning here, and what a name
means is `grammar`'s business.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, unquote
from xml.sax.saxutils import escape, quoteattr

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser, ParseError

from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.builder.spec.problems import Collector, Line, RecipeRefused, quoted
from bakemesh.protocol.numerals import whole


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a spec may be. `steps` counts those of inner recipes too; depth 1 is the root. `what`: the
    document's word in problems."""

    xml_bytes: int = 1 << 20
    steps: int = 1_000
    depth: int = 16
    attribute_bytes: int = 64 << 10
    elements: int = 20_000
    what: str = "recipe"


LIMITS: Final = Limits()
ORIGIN: Final = "bakemesh-from"


@dataclass(slots=True)
class Node:
    """An element. `name` and the keys of `attributes` are lowered; `text` and `tail` as in ElementTree."""

    name: str
    line: int
    attributes: dict[str, str]
    children: list[Node] = field(default_factory=list)
    text: str = ""
    tail: str = ""
    twice: tuple[str, ...] = ()  # attributes given twice, in different case

    def texts(self) -> list[str]:
        """The pieces of text directly inside, in order."""
        return [self.text, *(child.tail for child in self.children)]


class _BoundPassed(Exception):
    """Raised when a bound is passed inside the parser."""

    def __init__(self, line: int, element: str, attribute: str | None, message: str) -> None:
        super().__init__(message)
        self.line, self.element, self.attribute, self.message = line, element, attribute, message


class _Tree:
    """The parser's target: builds the nodes, watches the bounds."""

    def __init__(self, limits: Limits, *, origins: bool) -> None:
        self.limits = limits
        self._origins = origins
        self._file: str | None = None
        self._shift = 0
        self.expat: Any = None
        self.root: Node | None = None
        self._open: list[Node] = []
        self._texts: list[str] = []
        self._last: Node | None = None  # the element closed last: text goes to its tail
        self._elements = 0

    @property
    def line(self) -> int:
        """Where the parser stands, as the author knows it."""
        here: int = self.expat.CurrentLineNumber
        return here if self._file is None else Line(here + self._shift, self._file)

    def pi(self, target: str, text: str) -> None:
        if self._origins and target == ORIGIN:
            number, _, file = text.partition(" ")
            line = whole(number)
            if line is not None:
                self._file, self._shift = unquote(file), line - self.expat.CurrentLineNumber

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        line = self.line
        limits = self.limits
        self._elements += 1
        if self._elements > limits.elements:
            raise _BoundPassed(
                line, tag, None, f"more than {limits.elements:,} elements; split the {limits.what}"
            )
        if len(self._open) >= limits.depth:
            raise _BoundPassed(line, tag, None, f"elements are nested deeper than {limits.depth}")
        self._flush()
        lowered: dict[str, str] = {}
        twice: tuple[str, ...] = ()
        for key, value in attributes.items():
            name = key.lower()
            if len(value) * 4 > limits.attribute_bytes:
                size = len(value.encode())
                if size > limits.attribute_bytes:
                    raise _BoundPassed(
                        line,
                        tag,
                        key,
                        f"is {size:,} bytes long; at most {limits.attribute_bytes:,} are allowed",
                    )
            if name in lowered:
                twice = (*twice, name)
            lowered[name] = value
        node = Node(tag.lower(), line, lowered, twice=twice)
        if self._open:
            self._open[-1].children.append(node)
        else:
            self.root = node
        self._open.append(node)
        self._last = None

    def end(self, _tag: str) -> None:
        self._flush()
        self._last = self._open.pop()

    def data(self, text: str) -> None:
        self._texts.append(text)

    def close(self) -> Node:
        assert self.root is not None, "a well-formed document has a root"
        return self.root

    def _flush(self) -> None:
        if self._texts and self._open:
            text = "".join(self._texts)
            if self._last is None:
                self._open[-1].text += text
            else:
                self._last.tail += text
        self._texts.clear()


def origin(number: int, file: str) -> str:
    """The mark that says: the next line's number is `number`, in `file`; it ends its own line."""
    return f"<?{ORIGIN} {number - 1} {quote(file)}?>\n"


def read(xml: str, limits: Limits, problems: Collector, *, origins: bool = False) -> Node:
    """The root of `xml`. Raises RecipeRefused where it is too large, not well-formed or passes a bound.

    `origins`: marks made by `origin` count, so that lines are those of the files that a text came from.
    """
    size = len(xml)
    encoded = b""
    if size <= limits.xml_bytes:
        try:
            encoded = xml.encode()
        except UnicodeEncodeError as error:
            line = xml.count("\n", 0, error.start) + 1
            problems.add(
                line, None, None, f"character U+{ord(xml[error.start]):04X} cannot stand in XML; remove it"
            )
            raise RecipeRefused(problems.problems, Code.INVALID_RECIPE) from None
        size = len(encoded)
    if size > limits.xml_bytes:
        problems.add(
            1, None, None,
            f"the XML is {size:,} bytes long; at most {limits.xml_bytes:,} are allowed"
            f" (split the {limits.what}{'' if origins else ', or push large data with BakeData'})",
        )  # fmt: skip
        raise RecipeRefused(problems.problems, Code.TOO_LARGE)
    tree = _Tree(limits, origins=origins)
    parser = DefusedXMLParser(target=tree, encoding="utf-8", forbid_dtd=True)
    expat: Any = parser.parser  # defusedxml's parser is the pure one
    tree.expat = expat
    try:
        parser.feed(encoded)
        root: Any = parser.close()
    except _BoundPassed as error:
        problems.add(error.line, error.element, error.attribute, error.message)
    except (ParseError, DefusedXmlException) as error:
        problems.add(*malformed(error, tree.line))
    else:
        assert isinstance(root, Node)
        return root
    raise RecipeRefused(problems.problems, Code.INVALID_RECIPE)


def malformed(error: ParseError | DefusedXmlException, line: int) -> tuple[int, None, None, str]:
    """What to say of the parser's error, as a Collector takes it; `line` is where the parser stood."""
    if isinstance(error, DefusedXmlException):
        return line, None, None, "a document type (<!DOCTYPE …>, entities) is not allowed; remove it"
    column = error.position[1]
    reason = str(error).partition(": line ")[0]
    return line, None, None, f"not well-formed XML: {reason}, at column {column + 1}{_hint(reason)}"


_HINTS = {
    "not well-formed (invalid token)": "; is a '<' or '&' meant as text (write &lt;, &amp; or use CDATA),"
    " or a '--' inside a comment?",
    "undefined entity": "; only &lt; &gt; &amp; &quot; &apos; and &#…; are known",
    "no element found": "; the text ends before its elements are closed",
    "mismatched tag": "; every <element> is closed by </element> with the same letters",
    "duplicate attribute": "; give it once",
    "junk after document element": "; there is one root element",
}


def _hint(reason: str) -> str:
    return next((hint for known, hint in _HINTS.items() if reason.startswith(known)), "")


def write(node: Node, attributes: dict[str, str] | None = None) -> str:
    """`node` as XML that reads back to the same tree; `attributes` in place of its own."""
    parts: list[str] = []
    _write(node, node.attributes if attributes is None else attributes, parts)
    return "".join(parts)


def opening(name: str, attributes: dict[str, str]) -> str:
    """An element's start tag, but for its end: `>` or `/>`."""
    return f"<{name}" + "".join(f" {key}={quoteattr(value, _KEPT)}" for key, value in attributes.items())


def _write(node: Node, attributes: dict[str, str], parts: list[str]) -> None:
    tag = opening(node.name, attributes)
    if not node.children and not node.text:
        parts.append(f"{tag}/>")
        return
    parts.append(f"{tag}>")
    parts.append(written(node.text))
    for child in node.children:
        _write(child, child.attributes, parts)
        parts.append(written(child.tail))
    parts.append(f"</{node.name}>")


_KEPT = {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}


def written(text: str) -> str:
    """A text as it stands in XML."""
    escaped = escape(text, {"\r": "&#13;"})
    if len(escaped) - len(text) <= 12 or "\r" in text:
        return escaped
    return "<![CDATA[" + text.replace("]]>", "]]]]><![CDATA[>") + "]]>"


def shown(text: str) -> str:
    """The beginning of a stray text, for a message."""
    return quoted(text.strip(), 40)
