"""Says what llama.cpp is here, as one line of JSON: `python -m bakemesh.worker.engines.llama.probe`.

In a process of its own, because a library that was built for another CPU dies of it (SIGILL).
"""

from __future__ import annotations

import json

from bakemesh.worker.engines.llama.library import EngineMissing, open_library


def main() -> None:
    """Prints version, variant and features, or why there are none."""
    try:
        library = open_library()
    except ImportError as error:
        kind = "missing" if isinstance(error, EngineMissing) and error.absent else "broken"
        print(json.dumps({kind: str(error)}))
    else:
        print(json.dumps({"version": library.version, **library.build_flags()}))


if __name__ == "__main__":
    main()
