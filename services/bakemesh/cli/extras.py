"""What only some verbs need of packages: looked for without importing any, and told as one line."""

from __future__ import annotations

import importlib.util
from typing import Final

from bakemesh.cli.exits import usage

EDGE: Final = ("sr25519", "starlette", "uvicorn", "httptools", "aiohttp", "prometheus_client", "numpy")


def absent(*modules: str) -> list[str]:
    """Those that are not installed."""
    return [module for module in modules if importlib.util.find_spec(module) is None]


def want(what: str, extra: str, *modules: str) -> None:
    """Raises Stopped where one of them is absent: says which, and what to install."""
    if missing := absent(*modules):
        told = f"{what} needs {', '.join(missing)}, which is missing"
        raise usage(f"{told}: pip install 'bakemesh[{extra}]'")
