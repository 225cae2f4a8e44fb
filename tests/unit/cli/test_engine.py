"""What doctor says of the engine, for every way it can be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bakemesh.cli.engine import Facts, judge

SAID = {"version": "1.2.3", "variant": "zen4", "features": ["AVX2", "FMA", "AVX512"]}
FINE = Facts(said=SAID, compiler=True, x86=True, cpu_avx2=True, pinned="1.2.3")
CASES = {
    "fine": (FINE, "ok", "variant zen4: AVX2 FMA AVX512", ""),
    "not installed": (replace(FINE, said={"missing": "…"}), "warning", "not installed", "make engine"),
    "no compiler either": (
        replace(FINE, said={"missing": "…"}, compiler=False),
        "warning",
        "not installed",
        "a C++ compiler first",
    ),
    "cannot be loaded": (replace(FINE, said={"broken": "no libgomp"}), "missing", "no libgomp", "anew"),
    "for another CPU": (replace(FINE, said=None, ended=-4), "missing", "SIGILL", "anew"),
    "says nothing": (replace(FINE, said=None, ended=1), "missing", "cannot be asked", "anew"),
    "built without AVX2": (
        replace(FINE, said={**SAID, "features": ["SSE3"]}),
        "warning",
        "which this CPU has",
        "anew",
    ),
    "a CPU without AVX2": (
        replace(FINE, said={**SAID, "features": ["SSE3"]}, cpu_avx2=False),
        "warning",
        "this CPU has no AVX2",
        "slowly",
    ),
    "ARM": (replace(FINE, said={**SAID, "features": ["NEON"]}, x86=False), "ok", "NEON", ""),
    "another version": (replace(FINE, pinned="1.2.4"), "warning", "tested is 1.2.4", "anew"),
}


@pytest.mark.parametrize("name", CASES)
def test_doctor_says_what_is_there_and_how_to_mend_it(name: str) -> None:
    facts, state, found, mend = CASES[name]
    said = judge(facts)
    assert said[0] == state
    assert found in said[1]
    assert mend in said[2]
    assert bool(mend) == bool(said[2])
