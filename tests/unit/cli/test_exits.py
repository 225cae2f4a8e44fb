"""Exit codes: one meaning each, in the command line, in the Builder that it becomes, and in the docs."""

from __future__ import annotations

import re
from pathlib import Path

from bakemesh.builder import __main__ as builder
from bakemesh.cli.exits import Exit
from bakemesh.restart import BUILDER

DOCS = Path(__file__).parents[3] / "docs" / "operate.md"


def test_the_builders_codes_are_those_of_the_command_line():
    assert (builder.DONE, builder.FAILED, builder.USAGE) == (Exit.DONE, Exit.FAILED, Exit.USAGE)
    assert (builder.UNREACHABLE, builder.TAKEN, builder.DOWN) == (Exit.UNREACHABLE, Exit.TAKEN, Exit.DOWN)
    assert Exit.DOWN in BUILDER.final_codes


def test_the_docs_list_every_code():
    table = DOCS.read_text().partition("## Exit codes")[2].partition("## ")[0]
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)] == sorted(Exit)
