"""A user's Python file for the gateway: it defines `axon = Axon()…`, or `def routes(axon: Axon) -> None`.

The file is run as it is, with its folder first on `sys.path`, so that it finds its neighbours. Whoever names
it trusts it.
"""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from bakemesh.edge.axon import PING, Axon
from bakemesh.edge.errors import AttachRefused, FileRefused

WANTED = "expected `axon = Axon().attach(…)` or `def routes(axon): …`"


def load(path: Path, into: Axon | None = None) -> Axon:
    """The routes of the file, added to `into`. Raises FileRefused; what the file raised is its cause."""
    axon = into or Axon()
    if not path.is_file():
        raise FileRefused(f"no file {path}")
    name = f"_bakemesh_axon_{path.stem}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise FileRefused(f"{path} is no Python file; expected one that ends in .py")
    module = module_from_spec(spec)
    sys.modules[name] = module  # so that annotations of its classes can be resolved
    folder = str(path.absolute().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
        routes, given = getattr(module, "routes", None), getattr(module, "axon", None)
        if callable(routes):
            routes(axon)
        elif isinstance(given, Axon):
            axon.adopt(given)
        else:
            raise FileRefused(f"it defines no routes; {WANTED}")
    except (FileRefused, AttachRefused) as error:
        raise FileRefused(f"{path}: {error}") from error
    except Exception as error:
        raise FileRefused(f"{path}: {type(error).__name__}: {error}") from error
    if set(axon.routes) == {PING} and axon.guarded is None:
        raise FileRefused(f"{path} attaches nothing; {WANTED}")
    return axon
