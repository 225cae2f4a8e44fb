"""`${…}` in a recipe's texts: parsed, checked at load against what came before, expanded as the step starts.

    ${entry:Words}  ${step:fetch.exitcode}  ${param:K}  ${node}  ${nodeid}  ${recipeid}  $$

`$$` is a literal `$`; a `$` that neither '{' nor '$' follows stands for itself. A text is parsed once: what a
reference stands for is put in as it is and never split, expanded or read again, whatever it holds. Left out:
conditions, defaults, nesting.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from bakemesh.protocol import names
from bakemesh.protocol.builder.spec.problems import listed, quoted, suggestion
from bakemesh.protocol.errors import ProtocolError

VALUE_BYTES = 64 << 10  # what one reference may stand for
EXPANDED_BYTES = 1 << 20  # what one text may grow to


class ReferenceFailed(ProtocolError):
    """Raised when a step starts and a reference cannot be put into its text; the step fails and says so."""

    code = "step_failed"


class ReferenceMalformed(ProtocolError):
    """Raised when a `${…}` is no reference at all."""

    code = "invalid_recipe"


class Kind(StrEnum):
    """What a reference refers to, in the word that is written."""

    ENTRY = "entry"
    STEP = "step"
    PARAM = "param"
    NODE = "node"
    NODEID = "nodeid"
    RECIPEID = "recipeid"


NAMED = frozenset({Kind.ENTRY, Kind.STEP, Kind.PARAM})
_FORMS = "${entry:NAME}, ${step:NAME.exitcode}, ${param:NAME}, ${node}, ${nodeid}, ${recipeid}"


@dataclass(frozen=True, slots=True)
class Reference:
    """One `${…}`. `name` is "" for the kinds that have none."""

    kind: Kind
    name: str = ""

    def __str__(self) -> str:
        field_ = ".exitcode" if self.kind is Kind.STEP else ""
        return f"${{{self.kind}:{self.name}{field_}}}" if self.name else f"${{{self.kind}}}"


def parse(text: str) -> tuple[str | Reference, ...]:
    """`text` as literal pieces and references. Raises ReferenceMalformed."""
    return tuple(_pieces(text))


def _pieces(text: str) -> Iterator[str | Reference]:
    begin = 0
    known: dict[str, Reference] = {}
    while True:
        found = text.find("$", begin)
        if found < 0:
            if begin < len(text):
                yield text[begin:]
            return
        following = text[found + 1 : found + 2]
        if following == "{":
            end = text.find("}", found + 2)
            if end < 0:
                raise ReferenceMalformed(
                    f"{quoted(text[found:], 30)} is never closed by '}}'; for a literal '$' write '$$'"
                )
            if found > begin:
                yield text[begin:found]
            body = text[found + 2 : end]
            if body not in known:
                known[body] = _reference(body)
            yield known[body]
            begin = end + 1
        else:
            yield text[begin : found + 1]
            begin = found + (2 if following == "$" else 1)


def _reference(body: str) -> Reference:
    word, colon, rest = body.partition(":")
    whole = quoted("${" + body + "}", 90)
    try:
        kind = Kind(word)
    except ValueError:
        near = suggestion(word, list(Kind))
        raise ReferenceMalformed(
            f"{whole} is no reference{near}; known are {_FORMS}; for the shell's own write '$${{…}}'"
        ) from None
    if (kind in NAMED) != bool(colon):
        raise ReferenceMalformed(f"{whole} is no reference; known are {_FORMS}")
    if not colon:
        return Reference(kind)
    if kind is Kind.STEP:
        rest, dot, asked = rest.rpartition(".")
        if not dot or asked != "exitcode":
            raise ReferenceMalformed(f"{whole}: what a step leaves is its exitcode, ${{step:NAME.exitcode}}")
    if not names.is_valid(kind, rest):
        raise ReferenceMalformed(f"{whole}: {quoted(rest)} cannot be a name (letters, digits, '_' and '-')")
    return Reference(kind, rest)


@dataclass(frozen=True, slots=True)
class Earlier:
    """A step or an entry of the recipe: where it comes, counted from 0, and what it is."""

    index: int
    element: str


@dataclass(frozen=True, slots=True)
class Scope:
    """What the texts of step `index` may refer to. `params` None: unknown, so every name is taken."""

    index: int
    steps: Mapping[str, Earlier]
    entries: Mapping[str, Earlier]  # by entry name: the first step that keeps it
    params: Collection[str] | None = None
    inner: bool = False  # an inner recipe: entries of the outer one do not reach it


def wrong(text: str, scope: Scope, *, shell: bool = False) -> Iterator[str]:
    """What is wrong with the references in `text`, for its author. `shell`: /bin/sh reads the text again."""
    if "$" not in text:
        return
    try:
        pieces = parse(text)
    except ReferenceMalformed as error:
        yield str(error)
        return
    for reference in dict.fromkeys(piece for piece in pieces if isinstance(piece, Reference)):
        if said := _unmet(reference, scope) or (_reread(reference) if shell else None):
            yield said


def _reread(reference: Reference) -> str | None:
    if reference.kind not in (Kind.ENTRY, Kind.PARAM):
        return None
    return (
        f"{reference} would be read again by the shell, as code; hand it over as a variable: "
        f'<env name="VALUE" value="{reference}"/>, and "$VALUE" in the command'
    )


def _unmet(reference: Reference, scope: Scope) -> str | None:
    match reference.kind:
        case Kind.ENTRY:
            return entry_unmet(reference.name, scope, str(reference))
        case Kind.STEP:
            step = scope.steps.get(reference.name)
            if step is None:
                near = suggestion(reference.name, scope.steps)
                return f"{reference}: no step is named {quoted(reference.name)}{near}"
            if step.index >= scope.index:
                return f"{reference}: step {quoted(reference.name)} does not come before this one"
            if step.element not in ("cli", "code"):
                return f"{reference}: a <{step.element}> has no exit code; only <cli> and <code> have one"
        case Kind.PARAM if scope.params is not None and reference.name not in scope.params:
            near = suggestion(reference.name, scope.params)
            have = (
                f"it came with {listed(sorted(scope.params)[:20])}" if scope.params else "it came with none"
            )
            said = f"{reference}: the recipe came without the parameter {quoted(reference.name)}"
            return said + (near or f"; {have}")
        case _:
            pass
    return None


def entry_unmet(name: str, scope: Scope, shown: str) -> str | None:
    """Why the entry `name` is not there for the step of `scope`; None where it is."""
    if scope.inner:
        return f"{shown}: entries do not reach an inner recipe; use it in a step of the outer one"
    entry = scope.entries.get(name)
    if entry is None:
        near = suggestion(name, scope.entries)
        return f"{shown}: no <requestdata entry={quoted(name)}> keeps such an entry{near}"
    if entry.index >= scope.index:
        return f"{shown}: the <requestdata> that keeps it does not come before this step"
    return None


@dataclass(frozen=True, slots=True)
class Values:
    """What references stand for when a step starts.

    `entries`: what was kept so far (a skipped `<requestdata>` keeps nothing: empty). `exitcodes`: by step, of
    those that had a process. `params`: as they came with the recipe.
    """

    node: str
    node_id: str
    recipe_id: str
    entries: Mapping[str, bytes] = field(default_factory=dict)
    exitcodes: Mapping[str, int] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)


def expand(text: str, values: Values) -> str:
    """`text` with every reference put in. Raises ReferenceFailed, which says which one and why."""
    if "$" not in text:
        return text
    try:
        pieces = parse(text)
    except ReferenceMalformed as error:  # not from a recipe that was loaded
        raise ReferenceFailed(str(error)) from None
    done: list[str] = []
    known: dict[Reference, str] = {}
    size = 0
    for piece in pieces:
        if isinstance(piece, Reference):
            if piece not in known:
                known[piece] = _value(piece, values)
            piece = known[piece]
        size += len(piece)
        if size > EXPANDED_BYTES:
            raise ReferenceFailed(
                f"{quoted(text)} grows over {EXPANDED_BYTES:,} bytes with its references put in"
            )
        done.append(piece)
    return "".join(done)


def _value(reference: Reference, values: Values) -> str:
    match reference.kind:
        case Kind.ENTRY:
            return _plain(reference, values.entries.get(reference.name, b""))
        case Kind.STEP:
            code = values.exitcodes.get(reference.name)
            if code is None:
                raise ReferenceFailed(
                    f"{reference}: that step ended without an exit code (skipped, or not started)"
                )
            return str(code)
        case Kind.PARAM:
            if reference.name not in values.params:
                near = suggestion(reference.name, values.params)
                raise ReferenceFailed(f"{reference}: the recipe came without this parameter{near}")
            return _plain(reference, values.params[reference.name])
        case Kind.NODE:
            return values.node
        case Kind.NODEID:
            return values.node_id
        case Kind.RECIPEID:
            return values.recipe_id


def _plain(reference: Reference, value: object) -> str:
    """A value as text: UTF-8 without NUL, at most VALUE_BYTES."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        try:
            value = value.encode()
        except UnicodeEncodeError:
            raise ReferenceFailed(f"{reference}: its value is not Unicode text") from None
    if not isinstance(value, bytes | bytearray | memoryview):
        raise ReferenceFailed(f"{reference}: its value is a {type(value).__name__}, which no text can hold")
    data = bytes(value)
    if len(data) > VALUE_BYTES:
        raise ReferenceFailed(
            f"{reference}: its value is {len(data):,} bytes long; at most {VALUE_BYTES:,} fit into a text"
            " (use stdin-entry or a <requestdata into=…> file)"
        )
    if 0 in data:
        raise ReferenceFailed(f"{reference}: its value holds a NUL at byte {data.index(0)}; no argument can")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ReferenceFailed(f"{reference}: its value is not UTF-8 at byte {error.start}") from None
