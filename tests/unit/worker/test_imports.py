"""What a worker's start may cost: it is started again after every crash."""

from __future__ import annotations

import json
import subprocess
import sys

FORBIDDEN = {
    "asyncio", "pydantic", "msgpack", "nats", "argparse", "logging", "hashlib", "hmac", "subprocess",
    "threading", "numpy", "llama_cpp", "traceback", "ctypes", "msgspec",
}  # fmt: skip


def imported(code: str) -> set[str]:
    """The modules that this code imports beyond those of a bare interpreter."""
    after = "import json; print(json.dumps(sorted(set(sys.modules) - before)))"
    script = f"import sys; before = set(sys.modules)\n{code}\n{after}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_the_protocol_needs_the_standard_library_alone() -> None:
    names = imported(
        "import bakemesh.protocol.worker\n"
        "from bakemesh.protocol.worker import ends, errors, frames, headers, link, packets, place"
    )
    foreign = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) - {"bakemesh"}
    assert foreign == set()
    ours = {name for name in names if name.startswith("bakemesh")}
    assert {name for name in ours if not name.startswith("bakemesh.protocol.worker")} == {
        "bakemesh", "bakemesh.protocol",
    }  # fmt: skip


def test_a_worker_up_to_its_hello_imports_little() -> None:
    names = imported(
        "import bakemesh.worker.__main__ as worker\n"
        "assert worker.main(['--socket', '/nonexistent', '--nonce', 'a', '--engine', 'fake']) == 4"
    )
    assert not names & FORBIDDEN
    assert {name.partition(".")[0] for name in names} <= set(sys.stdlib_module_names) | {"bakemesh"}
