"""Loads a component's script and finds its function.

A script that was shipped with the spec is written into the component's folder, so that tracebacks show its
lines; an absolute path is read as it stands, and modules beside it can be imported. The module is called
as its file. Everything that can be wrong is a ScriptRefused, or what the script itself raises.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from bakemesh.crank.nearest import suggestion
from bakemesh.protocol.builder.spec.component import ScriptCrank


class ScriptRefused(Exception):
    """Raised when a script cannot be read, or has no such function."""


def place(crank: ScriptCrank, folder: Path) -> Path:
    """The script's file; written now where the spec carries its text. Raises ScriptRefused."""
    if crank.source is None:
        path = Path(crank.script)
        if not path.is_absolute():
            raise ScriptRefused(
                f"script {crank.script!r} is no absolute path and its text did not come with the spec"
            )
        return path
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", PurePosixPath(crank.script).name) or "crank.py"
    path = folder / "script" / name
    new = path.with_name(f".{name}.new")
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        new.write_text(crank.source, encoding="utf-8")
        os.replace(new, path)
    except OSError as error:
        raise ScriptRefused(f"script {crank.script!r} cannot be written to {path}: {error}") from error
    return path


def load(path: Path, crank: ScriptCrank) -> Callable[..., Any]:
    """The crank's function. Runs the script. Raises ScriptRefused, and whatever the script raises."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ScriptRefused(f"script {crank.script!r} cannot be read: {error}") from error
    code = compile(text, str(path), "exec", dont_inherit=True)
    module = types.ModuleType(path.stem)
    module.__file__ = str(path)
    if path.stem not in sys.modules:  # so that its classes are found by name; nobody's module is replaced
        sys.modules[path.stem] = module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    exec(code, vars(module))
    return find(module, crank)


def find(module: types.ModuleType, crank: ScriptCrank) -> Callable[..., Any]:
    """The function by its name, if it takes the one argument that it is given. Raises ScriptRefused."""
    found = getattr(module, crank.function, None)
    if found is None:
        there = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        own = [name for name in there if getattr(vars(module)[name], "__module__", None) == module.__name__]
        known = own or there
        listed = f"it has {', '.join(known[:20])}" if known else "it has none"
        raise ScriptRefused(
            f"script {crank.script!r} has no function {crank.function!r}; {listed}"
            f"{suggestion(crank.function, known)}"
        )
    if not callable(found):
        raise ScriptRefused(
            f"{crank.function!r} in script {crank.script!r} is no function but {type(found).__name__}"
        )
    try:
        inspect.signature(found).bind(object())
    except TypeError as error:
        raise ScriptRefused(
            f"{crank.function!r} in script {crank.script!r} must take one argument, the api: {error}"
        ) from error
    except ValueError:
        pass  # a builtin that does not tell
    function: Callable[..., Any] = found
    return function
