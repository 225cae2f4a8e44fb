"""Shows every setting: its value, where it comes from, and how to set it."""

from __future__ import annotations

import argparse

from bakemesh.cli.call import Call
from bakemesh.cli.exits import Exit
from bakemesh.settings import ROWS, add_flags

EXAMPLE = "  BAKEMESH_MAX_BAKES=8 bakemesh config"


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    add_flags(parser)


def run(call: Call) -> int:
    """Prints the table."""
    settings = call.settings
    unknown = _unknown_variables(call)
    if call.screen.machine:
        call.screen.document(
            {
                "file": call.toml_path,
                "settings": [
                    {
                        "key": row.key,
                        "value": settings.shown(row.key) if settings.value(row.key) is not None else None,
                        "origin": settings.origin(row.key),
                        "kind": settings.kind(row.key).value,
                        "flag": row.flag,
                        "env": row.env,
                        "doc": row.doc,
                    }
                    for row in ROWS
                ],
                "unknown": unknown,
            }
        )
        return Exit.DONE
    rows = [(row.key, settings.shown(row.key), settings.origin(row.key), row.env) for row in ROWS]
    call.screen.table(("setting", "value", "from", "variable"), rows, empty="")
    call.screen.say(f"file: {call.toml_path or 'no bakemesh.toml was found'}")
    for name in unknown:
        call.screen.note(f"bakemesh: {name} is set, and no setting has that variable")
    return Exit.DONE


def _unknown_variables(call: Call) -> list[str]:
    known = {row.env for row in ROWS} | {"BAKEMESH_CONFIG"}
    return sorted(name for name in call.environ if name.startswith("BAKEMESH_") and name not in known)
