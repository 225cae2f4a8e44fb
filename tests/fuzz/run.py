"""Fuzzes a target with atheris (`pip install atheris`; nothing else here needs it).

    python tests/fuzz/run.py headers -max_total_time=300   # what it finds lies in run/fuzz/headers
    python tests/fuzz/run.py headers -set_cover_merge=1    # of that, what reaches new code becomes corpus

More arguments are libFuzzer's. `test_corpus.py` replays every file of the corpus without atheris.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["bakemesh.protocol.axon", "targets"]):
    import targets

HERE = Path(__file__).resolve().parent


def main(argv: list[str]) -> None:
    """Runs until libFuzzer ends."""
    if len(argv) < 2 or argv[1] not in targets.TARGETS:
        sys.exit(f"usage: {argv[0]} {'|'.join(targets.TARGETS)} [libFuzzer's arguments]")
    found, corpus = HERE.parents[1] / "run" / "fuzz" / argv[1], HERE / "corpus" / argv[1]
    found.mkdir(parents=True, exist_ok=True)
    folders = [corpus, found] if "-set_cover_merge=1" in argv else [found, corpus]  # it writes into the first
    # To merge it runs itself once more, by a shell and its own name, which therefore is a whole command.
    command = f"{sys.executable} {Path(__file__).resolve()} {argv[1]}"
    arguments = [command, f"-artifact_prefix={found.parent}/{argv[1]}-", *argv[2:], *map(str, folders)]
    atheris.Setup(arguments, targets.TARGETS[argv[1]])
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
