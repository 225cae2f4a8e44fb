"""A synapse as a verb is given it: a built-in name or `FILE.py:CLASS`, and its fields as JSON."""

from __future__ import annotations

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from bakemesh.cli.exits import usage
from bakemesh.protocol.axon import DeserializationFailed, StreamingSynapse, Synapse
from bakemesh.protocol.axon.builtin import BUILTIN
from bakemesh.protocol.axon.synapse import ENVELOPE

__all__ = ["ENVELOPE", "class_of", "filled"]


def class_of(given: str) -> type[Synapse]:
    """The class of that name, or of a user's file, which is run. Raises Stopped."""
    kinds: list[type[Synapse]] = [*BUILTIN, Synapse]
    known = {cls.__name__: cls for cls in kinds}
    if given in known:
        return known[given]
    file, _, name = given.rpartition(":")
    if not file.endswith(".py"):
        raise usage(f"no synapse {given!r}; expected {', '.join(known)} or FILE.py:CLASS")
    path = Path(file)
    if not path.is_file():
        raise usage(f"no file {file}; expected {', '.join(known)} or FILE.py:CLASS")
    found = _run(path).get(name)
    if not (isinstance(found, type) and issubclass(found, Synapse)):
        raise usage(f"{file} has no class {name!r} that derives from Synapse")
    return found


def _run(path: Path) -> dict[str, object]:
    name = f"_bakemesh_call_{path.stem}"
    spec = spec_from_file_location(name, path)
    assert spec is not None  # it ends in .py
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # so that annotations of its classes can be resolved
    sys.path.insert(0, str(path.absolute().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise usage(f"{path}: {type(error).__name__}: {error}") from error
    return vars(module)


def filled(cls: type[Synapse], text: str, *, stream: bool) -> Synapse:
    """A synapse with the fields that `text` gives as a JSON object. `stream`: it is asked for in parts, which
    a field of that name says, where there is one. Raises Stopped.
    """
    own = [name for name in cls.model_fields if name not in ENVELOPE]
    expected = f"expected an object with fields of {cls.__name__}: {', '.join(own) or 'none'}"
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise usage(f"JSON: {error}; {expected}") from None
    if not isinstance(given, dict):
        raise usage(f"JSON: {expected}")
    if unknown := sorted(set(given) - set(own)):
        raise usage(f"JSON: {cls.__name__} has no field {unknown[0]!r}; {expected}")
    if stream:
        if not issubclass(cls, StreamingSynapse):
            raise usage(f"--stream: {cls.__name__} does not answer in parts")
        field = cls.model_fields.get("stream")
        if field is not None and field.annotation is bool:
            given.setdefault("stream", True)
    try:
        return cls.from_body(json.dumps(given).encode())
    except DeserializationFailed as error:
        raise usage(f"JSON: {cls.__name__}: {error.reason}") from None
