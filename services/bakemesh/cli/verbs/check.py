"""Validates recipes offline, just as a Builder does before it runs anything, and shows all problems at
once.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from bakemesh.cli.call import Call
from bakemesh.cli.exits import Exit, usage

EXAMPLE = "  bakemesh check examples/hello/recipe.xml"


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="a recipe's XML; - reads it from stdin")


def run(call: Call) -> int:
    """Prints `FILE: ok …` or the problems, a line each."""
    checked = [_check(name) for name in call.args.files]
    if call.screen.machine:
        call.screen.document({"ok": all(found["ok"] for found in checked), "files": checked})
    else:
        for found in checked:
            if found["ok"]:
                steps = found["steps"]
                count = f"{len(steps)} step{'' if len(steps) == 1 else 's'}"
                call.screen.say(f"{found['file']}: ok, recipe {found['recipe'] or '(unnamed)'}, {count}")
            for problem in found["problems"]:
                call.screen.note(f"{found['file']}:{problem['line']}: {_text(problem)}")
    return Exit.DONE if all(found["ok"] for found in checked) else Exit.USAGE


def read_spec(name: str) -> str:
    """The text of a spec's file. Raises Stopped: no such file, no UTF-8."""
    try:
        raw = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return raw.decode("utf-8")
    except OSError as error:
        raise usage(f"{name}: {error.strerror}; name the file of a recipe") from None
    except UnicodeDecodeError as error:
        raise usage(f"{name}: byte {error.start} is no UTF-8; a recipe is UTF-8 text") from None


def _check(name: str) -> dict[str, Any]:
    from bakemesh.protocol.builder.spec import RecipeRefused, load_recipe

    xml = read_spec(name)
    try:
        recipe = load_recipe(xml)
    except RecipeRefused as error:
        problems = [problem.entry() for problem in error.problems]
        return {"file": name, "ok": False, "code": str(error.code), "problems": problems}
    steps = [{"name": step.name, "kind": step.KIND} for step in recipe.steps]
    return {"file": name, "ok": True, "recipe": recipe.name, "steps": steps, "problems": []}


def _text(problem: dict[str, Any]) -> str:
    where = f"<{problem['element']}>" if problem.get("element") else ""
    if problem.get("attribute"):
        where = f"{where} {problem['attribute']}=".strip()
    return f"{where}: {problem['message']}" if where else str(problem["message"])
