"""Writes or checks what is generated from the contract: JSON Schemas and golden messages.

    python protocol/generate.py --check     # exit 1 and the names of the files that differ
    python protocol/generate.py --write
    python protocol/generate.py --write --vectors      # also the golden messages

The golden messages are written once for a version of the protocol: where they differ, it is the code that has
changed the wire, and the question is whether it may.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import golden
from bakemesh.protocol import schemas
from bakemesh.protocol.axon import schemas as axon_schemas

HERE = Path(__file__).resolve().parent


def text_of(value: object) -> str:
    """The text of a generated file."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def generated() -> dict[Path, str]:
    """Every generated file with the text it should have."""
    wanted = schemas.files() | axon_schemas.files()
    out = {HERE / "schemas" / name: text_of(value) for name, value in wanted.items()}
    out |= {HERE / "vectors" / name: text_of(value) for name, value in golden.files().items()}
    return out


def differing() -> list[Path]:
    """Files whose text is not what would be generated, and schemas of types that no longer exist."""
    wanted = generated()
    wrong = [
        path
        for path, text in wanted.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    return sorted(wrong + [path for path in (HERE / "schemas").glob("*.json") if path not in wanted])


def main(argv: list[str]) -> int:
    """Returns 0, or 1 where `--check` found a difference."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true")
    what.add_argument("--write", action="store_true")
    parser.add_argument("--vectors", action="store_true", help="with --write: the golden messages too")
    options = parser.parse_args(argv)
    wrong = differing()
    if options.check:
        for path in wrong:
            print(f"{path.relative_to(HERE.parent)} is not what the models say; see protocol/generate.py")
        return 1 if wrong else 0
    wanted = generated()
    for path in wrong:
        if path.parent.name == "vectors" and not options.vectors:
            print(f"left as it is (--vectors would write it): {path.relative_to(HERE.parent)}")
        elif path in wanted:
            path.parent.mkdir(exist_ok=True)
            path.write_text(wanted[path], encoding="utf-8")
        else:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
