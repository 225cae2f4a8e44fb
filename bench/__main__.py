"""`python -m bench`: every bench, one after the other, each bounded in time.

Exit code 1 where one did not end well; a claim that is missed is told and is no failure of the run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
# Bench → seconds after which it is ended: several times what it takes on a quiet machine with two cores.
BENCHES = {
    "typed_status": 300,
    "data_throughput": 300,
    "latency": 240,
    "step_overhead": 240,
    "crank_latency": 240,
    "bringup": 900,
    "idle_node": 180,
    "many_nodes": 1500,
    "tiny_bakes": 900,
    "worker_link": 120,
    "worker_engine": 300,
    "engine_builds": 600,
    "synapse_embeddings": 600,
    "synapse_latency": 300,
    "synapse_generation": 600,
    "synapse_core": 240,
    "two_nodes": 240,
    "axon_requests": 300,
    "axon_micro": 180,
    "axon_streaming": 240,
}


def run(name: str, seconds: int) -> bool:
    """Runs one; whatever it started ends with it."""
    began = time.monotonic()
    print(f"\n== {name}", flush=True)
    bench = subprocess.Popen([sys.executable, str(HERE / f"{name}.py")], start_new_session=True)
    try:
        code = bench.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        print(f"{name}: not done after {seconds} s", flush=True)
        code = 1
    finally:
        try:
            os.killpg(bench.pid, signal.SIGTERM if bench.poll() is None else signal.SIGKILL)
            bench.wait(timeout=10)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass
        if bench.poll() is None:
            os.killpg(bench.pid, signal.SIGKILL)
            bench.wait()
    print(f"== {name}: {time.monotonic() - began:.0f} s", flush=True)
    return code == 0


def main() -> int:
    """All of them, or those that are named."""
    wanted = sys.argv[1:] or list(BENCHES)
    unknown = [name for name in wanted if name not in BENCHES]
    if unknown:
        print(f"no bench {', '.join(unknown)}; there are {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    ended_well = [run(name, BENCHES[name]) for name in wanted]
    return 0 if all(ended_well) else 1


if __name__ == "__main__":
    sys.exit(main())
