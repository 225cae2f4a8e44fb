"""What `doctor` says of the engine of workers: whether there is one, which variant of it, how to get one."""

from __future__ import annotations

import json
import platform
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

MATTER = "engine"
_PROBE_S = 60.0
_TOLD = ("AVX2", "FMA", "AVX512", "AVX512_BF16", "AMX_INT8", "NEON", "SVE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was found. `said`: the probe's JSON; `ended`: its exit code where it said nothing."""

    said: dict[str, Any] | None
    ended: int = 0
    compiler: bool
    x86: bool
    cpu_avx2: bool
    pinned: str | None


def look() -> Facts:
    """Asks a process of its own: a library for another CPU dies when it is loaded."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "bakemesh.worker.engines.llama.probe"],
            capture_output=True,
            text=True,
            timeout=_PROBE_S,
            check=False,
        )
        said = json.loads(done.stdout) if done.returncode == 0 else None
        ended = done.returncode
    except (OSError, subprocess.TimeoutExpired, ValueError):
        said, ended = None, 1
    try:
        cpu = Path("/proc/cpuinfo").read_text()
    except OSError:
        cpu = ""
    return Facts(
        said=said,
        ended=ended,
        compiler=shutil.which("c++") is not None,
        x86=platform.machine().lower() in ("x86_64", "amd64"),
        cpu_avx2="avx2" in cpu.split(),
        pinned=_pinned(),
    )


def judge(facts: Facts) -> tuple[str, str, str]:
    """State (`ok`, `warning`, `missing`), what was found, how to mend it."""
    build = (
        "make engine in a checkout, or pip install 'bakemesh[engine]': it is built here, in 3 to 8 minutes"
    )
    if not facts.compiler:
        build = f"a C++ compiler first (on Debian: apt-get install g++), then {build}"
    said = facts.said
    if said is None:
        died = f"died of {signal.Signals(-facts.ended).name}" if facts.ended < 0 else "cannot be asked"
        return "missing", f"llama.cpp {died}: built for another CPU?", f"build it anew: {build}"
    if "missing" in said:
        return "warning", "llama.cpp is not installed: this node runs no models itself", build
    if "broken" in said:
        return "missing", str(said["broken"]), f"build it anew: {build}"
    features = set(said["features"])
    named = " ".join(name for name in _TOLD if name in features)
    found = f"llama.cpp, binding {said['version']}, variant {said['variant']}: {named}"
    if facts.x86 and "AVX2" not in features:
        if facts.cpu_avx2:
            return "warning", f"{found}; built without AVX2, which this CPU has", f"build it anew: {build}"
        return (
            "warning",
            f"{found}; this CPU has no AVX2",
            "models run slowly here; another machine is better",
        )
    if facts.pinned is not None and said["version"] != facts.pinned:
        return "warning", f"{found}; tested is {facts.pinned}", f"build it anew: {build}"
    return "ok", found, ""


def _pinned() -> str | None:
    """The version that this bakemesh wants."""
    try:
        wanted = metadata.requires("bakemesh") or []
    except metadata.PackageNotFoundError:
        return None
    named = "llama-cpp-python=="
    found = [each for each in wanted if each.startswith(named)]
    return found[0].removeprefix(named).partition(";")[0].strip() if found else None
