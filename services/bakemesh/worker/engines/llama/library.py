"""Opens llama.cpp once a process: its shared library, the CPU variant that fits this machine, its log.

Guarantees: an assert of llama.cpp prints its line and aborts at once (no debugger is started); nothing of it
reaches stdout; what it logged last can be told with an error. Left out: building it (docs/engine.md).

Only the package's low-level module is imported: the package itself would bring templates, caches and an HTTP
client into every worker, for a third of a second.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import importlib.util
import os
import re
import sys
from collections import deque
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from bakemesh.worker.engines.base import EngineError

PACKAGE = "llama-cpp-python"
LEVELS = {"debug": 1, "info": 2, "warn": 3, "error": 4, "none": 9}  # ggml.h's, not the binding's comment
LOG_LEVEL = "BAKEMESH_LLAMA_LOG"
_CONTINUED = 5
_KEPT = 200
# How llama.cpp, ggml and the C++ library say that memory ran out.
_OUT_OF_MEMORY = re.compile(
    r"failed to allocate|unable to allocate|bad_alloc|out of memory|cannot allocate memory"
    r"|insufficient memory|not enough memory"
    r"|resource temporarily unavailable",  # a thread found no room for its stack
    re.IGNORECASE,
)


class EngineMissing(ImportError):
    """Raised when llama-cpp-python is not installed (`absent`), or what is installed cannot be loaded."""

    def __init__(self, msg: str, *, absent: bool = False) -> None:
        super().__init__(msg)
        self.absent = absent


class Log:
    """What llama.cpp says: the last lines kept, those of the wanted level and worse told on stderr."""

    def __init__(self, level: str) -> None:
        self._least = LEVELS.get(level, LEVELS["error"])
        self._kept: deque[tuple[int, str]] = deque(maxlen=_KEPT)
        self._level = 0

    def take(self, level: int, text: str) -> None:
        """One piece from llama.cpp; level 5 continues the line before."""
        if level != _CONTINUED:
            self._level = level
        self._kept.append((self._level, text))
        if self._level >= self._least:
            sys.stderr.write(text)
            sys.stderr.flush()

    def clear(self) -> None:
        """What comes now belongs to the next call."""
        self._kept.clear()

    def complaints(self) -> str:
        """Warnings and errors since `clear`, the last 600 characters, on one line."""
        said = " ".join(text.strip() for level, text in self._kept if level >= LEVELS["warn"])
        return said[-600:]

    def error(self, code: str, what: str) -> EngineError:
        """An error of that code, or `oom` where the log says so; the complaints are in its message."""
        said = self.complaints()
        if _OUT_OF_MEMORY.search(said):
            code = "oom"
        return EngineError(code, f"{what}: {said}" if said else what)


@dataclass(frozen=True, slots=True)
class Library:
    """llama.cpp: `api` the functions and structures, `raw` the shared library itself."""

    api: Any
    raw: Any
    log: Log
    version: str
    variant: str
    system: str

    def build_flags(self) -> dict[str, Any]:
        """For HELLO: the variant and what of the CPU it uses."""
        llama = self.api.llama_version().decode() if hasattr(self.api, "llama_version") else ""
        return {"variant": self.variant, "features": features(self.system), "llama_cpp": llama}


def features(system: str) -> list[str]:
    """The names that llama_print_system_info says are on ("AVX2 = 1")."""
    return re.findall(r"(\w+) = 1\b", system)


@cache
def open_library() -> Library:
    """Loads it, at the first call. Raises EngineMissing."""
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # else an assert starts gdb and prints to stdout
    api = _low_level()
    log = Log(os.environ.get(LOG_LEVEL, "error"))

    @api.llama_log_callback  # type: ignore[untyped-decorator]
    def take(level: int, text: bytes, data: Any) -> None:
        del data
        log.take(level, text.decode("utf-8", "replace"))

    _KEEP.append(take)
    api.llama_log_set(take, ctypes.c_void_p(0))
    raw, folder = api._lib, Path(api.__file__).parent / "lib"
    if any(folder.glob("*ggml-cpu-*")):
        # A build with every CPU variant registers none by itself. Asked of libllama, so that it is the
        # registry that libllama looks at: a wheel holds libggml twice.
        raw.ggml_backend_load_all_from_path.argtypes = [ctypes.c_char_p]
        raw.ggml_backend_load_all_from_path.restype = None
        raw.ggml_backend_load_all_from_path(os.fsencode(folder))
    api.llama_backend_init()
    system = api.llama_print_system_info().decode()
    if "CPU :" not in system:
        raise EngineMissing(f"{PACKAGE} has no CPU backend for this machine: {log.complaints() or folder}")
    return Library(api, raw, log, importlib.metadata.version(PACKAGE), _variant(folder), system)


_KEEP: list[Any] = []  # callbacks live as long as the library


def _low_level() -> Any:
    """`llama_cpp.llama_cpp`, without running the package's own `__init__`."""
    if "llama_cpp" not in sys.modules:
        try:
            spec = importlib.util.find_spec("llama_cpp")
        except (ImportError, ValueError):
            spec = None
        if spec is None or not spec.submodule_search_locations:
            raise EngineMissing(
                f"{PACKAGE} is not installed: make engine, or pip install 'bakemesh[engine]'", absent=True
            )
        package = ModuleType("llama_cpp")
        package.__path__ = list(spec.submodule_search_locations)
        package.__spec__ = spec
        sys.modules["llama_cpp"] = package
    try:
        return importlib.import_module("llama_cpp.llama_cpp")
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise EngineMissing(f"{PACKAGE} is installed but cannot be loaded: {error}") from error


def _variant(folder: Path) -> str:
    """The CPU variant that was loaded, or `built-in` where the library has one only."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return "built-in" if not any(folder.glob("*ggml-cpu-*")) else "unknown"
    found = re.search(r"ggml-cpu-(\w+)\.so", maps)
    return found[1] if found else "built-in"
