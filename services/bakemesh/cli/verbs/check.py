"""Validates recipes and PsySpecs offline, just as a Builder and a Startup Supervisor do before anything runs,
and shows all problems at once.

What a PsySpec includes and the scripts it names are read from beside it. Warnings are shown; they refuse
nothing here. (A module without a node that depends on one with a node is such: the node of the Startup
Supervisor decides.)
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakemesh.cli.call import Call
from bakemesh.cli.exits import Exit, usage
from bakemesh.cli.progress import counted

if TYPE_CHECKING:
    from bakemesh.protocol.builder.spec import Problem

EXAMPLE = "  bakemesh check examples/hello/recipe.xml examples/cluster/demo.xml"


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="XML of a recipe or PsySpec; - reads stdin")


def run(call: Call) -> int:
    """Prints `FILE: ok …` or the problems, a line each."""
    checked = [_check(name) for name in call.args.files]
    if call.screen.machine:
        call.screen.document({"ok": all(found["ok"] for found in checked), "files": checked})
    else:
        for found in checked:
            if found["ok"]:
                call.screen.say(f"{found['file']}: ok, {_told(found)}")
            for warning in found.get("warnings", ()):
                call.screen.note(f"{_where(found, warning)}: warning: {_text(warning)}")
            for problem in found["problems"]:
                call.screen.note(f"{_where(found, problem)}: {_text(problem)}")
    return Exit.DONE if all(found["ok"] for found in checked) else Exit.USAGE


def read_spec(name: str) -> str:
    """The text of a spec's file. Raises Stopped: no such file, no UTF-8."""
    try:
        raw = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return raw.decode("utf-8")
    except OSError as error:
        raise usage(f"{name}: {error.strerror}; name the file of a recipe or PsySpec") from None
    except UnicodeDecodeError as error:
        raise usage(f"{name}: byte {error.start} is no UTF-8; a recipe or PsySpec is UTF-8 text") from None


def _check(name: str) -> dict[str, Any]:
    from bakemesh.protocol.builder.spec.root import root_kind

    xml = read_spec(name)
    return _psyspec(name, xml) if root_kind(xml) == "psyspec" else _recipe(name, xml)


def _recipe(name: str, xml: str) -> dict[str, Any]:
    from bakemesh.protocol.builder.spec import RecipeRefused, load_recipe

    try:
        recipe = load_recipe(xml)
    except RecipeRefused as error:
        problems = [problem.entry() for problem in error.problems]
        return {"file": name, "ok": False, "code": str(error.code), "problems": problems}
    steps = [{"name": step.name, "kind": step.KIND} for step in recipe.steps]
    return {"file": name, "ok": True, "recipe": recipe.name, "steps": steps, "problems": []}


def _psyspec(name: str, xml: str) -> dict[str, Any]:
    from bakemesh.protocol.psyspec import PsySpecRefused, read_psyspec, unsettled

    try:
        found = read_psyspec(xml, file=name, read=lambda path: Path(path).read_text("utf-8"))
    except PsySpecRefused as error:
        problems = [_entry(problem) for problem in error.problems]
        return {"file": name, "ok": False, "code": str(error.code), "problems": problems}
    modules = [
        {"name": each.spec.name, "node": each.node, "digest": each.spec.digest} for each in found.modules
    ]
    return {
        "file": name,
        "ok": True,
        "psyspec": found.name,
        "digest": found.digest,
        "modules": modules,
        "nodes": [{"name": node.name, "id": node.node_id} for node in found.nodes],
        "cohorts": {cohort.name: list(cohort.nodes) for cohort in found.cohorts},
        "warnings": [_entry(warning) for warning in (*found.warnings, *unsettled(found))],
        "problems": [],
    }


def _entry(problem: Problem) -> dict[str, Any]:
    return {"file": problem.file, **problem.entry()}


def _told(found: dict[str, Any]) -> str:
    """What a good file holds."""
    if "psyspec" in found:
        nodes = {module["node"] for module in found["modules"]}
        modules = counted(len(found["modules"]), "module")
        return f"PsySpec {found['psyspec']}, {modules} on {counted(len(nodes), 'node')}"
    return f"recipe {found['recipe'] or '(unnamed)'}, {counted(len(found['steps']), 'step')}"


def _where(found: dict[str, Any], problem: dict[str, Any]) -> str:
    return f"{problem.get('file', found['file'])}:{problem['line']}"


def _text(problem: dict[str, Any]) -> str:
    where = f"<{problem['element']}>" if problem.get("element") else ""
    if problem.get("attribute"):
        where = f"{where} {problem['attribute']}=".strip()
    return f"{where}: {problem['message']}" if where else str(problem["message"])
