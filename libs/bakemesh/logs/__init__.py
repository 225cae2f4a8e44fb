"""Logging: the standard library's, as JSON lines or readable text, with node, recipe and more as fields.

`setup` is called once by a process's `__main__`; everybody else takes `get(__name__)` and logs with
`extra={"recipe": …}` or a `bound` logger. Logs go to stderr: stdout belongs to what a program prints. Left
out: files and rotation, which belong to whoever runs the process.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO

from bakemesh.logs.formats import JsonLines, Readable

ROOT = "bakemesh"
_LEVELS = ("debug", "info", "warning", "error")

__all__ = ["ROOT", "JsonLines", "Readable", "bound", "get", "setup", "setup_component"]


def get(name: str) -> logging.Logger:
    """The logger of a module (`__name__`); names outside the package go below `bakemesh`."""
    return logging.getLogger(name if name == ROOT or name.startswith(f"{ROOT}.") else f"{ROOT}.{name}")


class _Bound(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


def bound(logger: logging.Logger, **fields: object) -> logging.LoggerAdapter[logging.Logger]:
    """A logger that puts `fields` on every line; a call's own `extra` adds to them."""
    return _Bound(logger, fields)


def setup(
    log_format: str = "auto", level: str = "info", *, stream: TextIO | None = None, **fields: object
) -> logging.Handler:
    """Sets up the process's logging: `auto` is text on a terminal, else JSON lines; `fields` (node …) go on
    every line. Called again, it replaces what it set up before. Returns the handler.
    """
    out = sys.stderr if stream is None else stream
    as_json = log_format == "json" or (log_format == "auto" and not out.isatty())
    handler = logging.StreamHandler(out)
    handler.setFormatter(JsonLines(fields) if as_json else Readable(fields))
    root = logging.getLogger()
    for old in [old for old in root.handlers if getattr(old, "bakemesh", False)]:
        root.removeHandler(old)
    handler.bakemesh = True  # type: ignore[attr-defined]
    root.addHandler(handler)
    root.setLevel(logging.WARNING)  # of other libraries only what matters
    logging.getLogger(ROOT).setLevel(level.upper())
    return handler


def setup_component(environ: Mapping[str, str], *, node: str, component: str) -> None:
    """As `setup`, for what a Builder starts: no flags, only the environment that it hands on. A level that is
    none is `info`: a component does not stay down for it.
    """
    level = environ.get("BAKEMESH_LOG_LEVEL", "info").lower()
    setup(
        environ.get("BAKEMESH_LOG_FORMAT", "auto"),
        level if level in _LEVELS else "info",
        node=node,
        component=component,
    )
