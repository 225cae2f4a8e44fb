"""Each kind of step out of its element: the table's values, the rules between them, the frozen Step.

Every function says all that is wrong and then returns a Step even so, with defaults in the places of what was
wrong: the recipe is refused as a whole, after all of it was read.
"""

from __future__ import annotations

import textwrap
from typing import Any

from bakemesh.protocol.builder.spec import elements, paths, references, words
from bakemesh.protocol.builder.spec.document import Limits, Node
from bakemesh.protocol.builder.spec.grammar import ATTACH, CLI, CODE, REQUESTDATA, Element
from bakemesh.protocol.builder.spec.model import AttachStep, CliStep, CodeStep, RequestDataStep
from bakemesh.protocol.builder.spec.problems import Collector, quoted
from bakemesh.protocol.builder.spec.references import Scope

Values = elements.Values


def read(node: Node, element: Element, problems: Collector, scope: Scope) -> Values:
    """The attributes of a step and the rules that all steps share."""
    values = elements.attributes(node, element, problems, scope)
    retry_rules(node, values, problems)
    return values


def retry_rules(node: Node, values: Values, problems: Collector) -> None:
    """Retries are only for steps that may run twice."""
    if not values["retryable"]:
        for name in ("retries", "retry-delay-ms"):
            if values[name]:
                problems.add(
                    node.line, node.name, name,
                    'needs retryable="yes" beside it: only a step that may run twice is tried again',
                )  # fmt: skip


def cli(
    node: Node, values: Values, common: dict[str, Any], problems: Collector, scope: Scope, limits: Limits
) -> CliStep:
    """`<cli>`: `<arg>`s, or a command that is split here, before any reference is put in."""
    elements.text(node, CLI, problems)
    found = elements.children(node, CLI, problems, scope)
    args = [child for child, _ in found["arg"]]
    command: str | None = values["command"]
    shell: bool = values["shell"]
    argv: tuple[str, ...] = ()
    if args and "command" in node.attributes:
        problems.add(node.line, node.name, "command", "give command= or <arg> elements, not both")
    elif args and shell:
        problems.add(
            args[0].line, "arg", None, 'shell="yes" takes one command=; leave shell= out to run a program'
        )  # fmt: skip
    elif args:
        argv = tuple("".join(arg.texts()) for arg in args)
        for arg, text in zip(args, argv, strict=True):
            size = len(text.encode())
            if size > limits.attribute_bytes:
                problems.add(
                    arg.line,
                    "arg",
                    None,
                    f"is {size:,} bytes long; at most {limits.attribute_bytes:,} are allowed",
                )
        if not argv[0]:
            problems.add(args[0].line, "arg", None, "the first <arg> is the program; it must not be empty")
    elif command is not None and shell:
        argv = (command,)
    elif command is not None:
        argv = _split(node, command, problems)
    elif "command" not in node.attributes:
        problems.add(node.line, node.name, None, "needs a program: command=, or <arg> elements")
    return CliStep(**common, **_process(node, values, found, problems, scope), argv=argv, shell=shell)


def _split(node: Node, command: str, problems: Collector) -> tuple[str, ...]:
    try:
        argv = tuple(words.split(command))
    except ValueError as error:
        problems.add(
            node.line,
            node.name,
            "command",
            f"{quoted(command)} does not split into words: {str(error).lower()}",
        )
        return ()
    if not argv or not argv[0]:
        problems.add(node.line, node.name, "command", "names no program")
    return argv


def code(node: Node, values: Values, common: dict[str, Any], problems: Collector, scope: Scope) -> CodeStep:
    """`<code>`: its text is the source; an indented Python source, which could not run, is dedented."""
    found = elements.children(node, CODE, problems, scope)
    source = elements.text(node, CODE, problems)
    if not source or source.isspace():
        problems.add(node.line, node.name, None, "holds no source; write it inside, best in <![CDATA[…]]>")
    if values["language"] == "python" and source.lstrip("\r\n")[:1] in (" ", "\t"):
        source = textwrap.dedent(source)
    return CodeStep(
        **common,
        **_process(node, values, found, problems, scope),
        language=values["language"] or "",
        source=source,
    )


def _process(
    node: Node, values: Values, found: dict[str, list[tuple[Node, Values]]], problems: Collector, scope: Scope
) -> dict[str, Any]:
    env: dict[str, str] = {}
    for child, given in found["env"]:
        name, value = given["name"], given["value"]
        if name in env:
            problems.add(child.line, "env", "name", f"{quoted(name)} is set twice")
        if name is not None and value is not None:
            env[name] = value
    stdin: str | None = values["stdin"]
    elements.either(node, ("stdin", "stdin-entry"), problems, needed=False)
    if found["stdin"]:
        child = found["stdin"][0][0]
        if "stdin" in node.attributes or "stdin-entry" in node.attributes:
            problems.add(child.line, "stdin", None, "give <stdin>, stdin= or stdin-entry=, only one of them")
        stdin = "".join(child.texts())
    entry: str | None = values["stdin-entry"]
    if entry is not None and (said := references.entry_unmet(entry, scope, quoted(entry))):
        problems.add(node.line, node.name, "stdin-entry", said)
    path(node, "cwd", values["cwd"], problems)
    return {
        "cwd": values["cwd"],
        "env": tuple(env.items()),
        "stdin": stdin,
        "stdin_entry": entry,
        "success_codes": values["success-codes"],
        "merge_stderr": values["stderr"] == "merge",
        "progress": values["progress"],
    }


def path(node: Node, name: str, text: str | None, problems: Collector, *, file: bool = False) -> None:
    """The path rule, where it can be told without knowing what references stand for."""
    if text is None:
        return
    try:
        pieces = references.parse(text)
    except references.ReferenceMalformed:
        return  # said already
    if pieces and isinstance(pieces[0], references.Reference):
        return  # may become absolute; asked again when the step starts
    literal = "".join("x" if isinstance(piece, references.Reference) else piece for piece in pieces)
    if said := paths.wrong(literal, file=file):
        problems.add(node.line, node.name, name, said)


def requestdata(
    node: Node, values: Values, common: dict[str, Any], problems: Collector, scope: Scope
) -> RequestDataStep:
    """`<requestdata>`: to a file, to an entry, or both."""
    _nothing_inside(node, REQUESTDATA, problems)
    if "entry" not in node.attributes and "into" not in node.attributes:
        problems.add(
            node.line, node.name, None, "needs entry= (kept for later steps) or into= (a file), or both"
        )
    if scope.inner:
        problems.add(
            node.line, node.name, None,
            "nobody answers it in an inner recipe, whose Supervisor is a Builder; ask in the outer one",
        )  # fmt: skip
    path(node, "into", values["into"], problems, file=True)
    return RequestDataStep(**common, entry=values["entry"], into=values["into"])


def attach(node: Node, values: Values, common: dict[str, Any], problems: Collector) -> AttachStep:
    """`<attach>`."""
    _nothing_inside(node, ATTACH, problems)
    return AttachStep(**common, module=values["module"] or "", follow=values["follow"])


def _nothing_inside(node: Node, element: Element, problems: Collector) -> None:
    elements.text(node, element, problems)
    elements.children(node, element, problems)
