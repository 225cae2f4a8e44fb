"""`bakemesh` is one namespace over three roots: no `__init__.py` in it, no name in two of them."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ROOTS = [ROOT / name / "bakemesh" for name in ("protocol", "libs", "services")]
IO = {
    "asyncio",
    "socket",
    "nats",
    "subprocess",
    "logging",
    "time",
    "os",
    "sqlite3",
    "threading",
    "random",
    "secrets",
}


def entries(folder: Path) -> list[str]:
    return [path.name.removesuffix(".py") for path in folder.iterdir() if path.name != "__pycache__"]


@pytest.mark.parametrize("folder", ROOTS, ids=lambda path: path.parent.name)
def test_no_init_in_the_namespace_itself(folder: Path) -> None:
    assert folder.is_dir()
    assert not (folder / "__init__.py").exists(), f"{folder} would hide the other roots"


def test_no_name_in_two_roots() -> None:
    counted = Counter(name for folder in ROOTS for name in entries(folder))
    assert [name for name, times in counted.items() if times > 1] == []


@pytest.mark.parametrize("folder", ROOTS, ids=lambda path: path.parent.name)
def test_every_package_says_what_it_is_for_and_is_typed(folder: Path) -> None:
    for package in (path for path in folder.iterdir() if path.is_dir() and path.name != "__pycache__"):
        if not any(package.rglob("*.py")):
            continue
        init = package / "__init__.py"
        assert init.is_file(), package
        assert ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))), init
        assert (package / "py.typed").is_file(), package


def test_the_contract_does_no_io() -> None:
    for path in (ROOT / "protocol" / "bakemesh").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found = {(node.module or "").split(".")[0]}
            else:
                continue
            assert not found & IO, f"{path}:{node.lineno}"
