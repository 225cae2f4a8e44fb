"""`python -m bakemesh.crankhost START.JSON`: runs the component that the file describes.

Exit codes: 0 the crank returned, or was stopped · 2 no usable start file · 69 the Builder does not know this
start of it · 70 it failed (said on stderr, and to the Builder).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bakemesh.crankhost.main import USAGE, main


def entry(argv: list[str]) -> int:
    """Reads the file and runs it."""
    if len(argv) != 1:
        print("usage: python -m bakemesh.crankhost START.JSON", file=sys.stderr)
        return USAGE
    path = Path(argv[0]).absolute()
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        print(f"bakemesh crankhost: {path}: {error}", file=sys.stderr)
        return USAGE
    return main(given, path.parent)


if __name__ == "__main__":
    sys.exit(entry(sys.argv[1:]))
