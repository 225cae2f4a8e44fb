"""Reading a PsySpec's file with all it names, every problem at once; warnings are said and refuse nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bakemesh.cli.exits import Exit, Stopped, usage
from bakemesh.cli.progress import counted
from bakemesh.cli.screen import Screen
from bakemesh.settings.node import Node

if TYPE_CHECKING:
    from bakemesh.protocol.psyspec import Group, PsySpec, PsySpecRefused


def read_psyspec_file(name: str, screen: Screen) -> tuple[str, PsySpec]:
    """One text that can be sent anywhere, and what it says. Raises Stopped with every problem."""
    from bakemesh.protocol.psyspec import PsySpecRefused, bundle, load_psyspec, read_psyspec

    def read(path: str) -> str:
        return Path(path).read_text("utf-8")

    try:
        text = read(name)
    except OSError as error:
        raise usage(f"{name}: {error.strerror}; name the file of a PsySpec") from None
    except UnicodeDecodeError as error:
        raise usage(f"{name}: byte {error.start} is no UTF-8; a PsySpec is UTF-8 text") from None
    try:
        read_psyspec(text, file=name, read=read)
        whole = bundle(text, file=name, read=read)
        found = load_psyspec(whole, file=name)
    except PsySpecRefused as error:
        raise _refused(name, error) from None
    for warning in found.warnings:
        screen.note(f"bakemesh: warning: {warning}")
    return whole, found


def groups_of(name: str, psyspec: PsySpec, node: Node) -> tuple[Group, ...]:
    """The modules of a PsySpec in the file `name` by node, where its Startup Supervisor is `node`'s. Raises
    Stopped.
    """
    from bakemesh.protocol.psyspec import PsySpecRefused, groups

    try:
        return groups(psyspec, node.name, node.id)
    except PsySpecRefused as error:
        raise _refused(name, error) from None


def _refused(name: str, error: PsySpecRefused) -> Stopped:
    head = f"{name}: {counted(len(error.problems), 'problem')}"
    return Stopped(Exit.USAGE, head, *map(str, error.problems))
