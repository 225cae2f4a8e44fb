"""The demo of inference: a node with a synapse module, two real models taken in, and questions to them.

Each part is a command that a user types; this script only puts them after one another. Exit code 0 where all
of them did what they should. Ctrl-C stops all of it at any time, and where this script is killed the kernel
stops `up` for it.
"""

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "hello"))

from demo import MOST_S, end_with_us, ready, stop, wait_for  # noqa: E402

TEXTS = ("The cat sits outside.", "A feline is in the garden.", "The stock market fell today.")
ALIKE = """
import sys, numpy
vectors = numpy.load(sys.argv[1])
for row, text in zip(vectors @ vectors[0], sys.argv[2:], strict=True):
    print(f"{row:6.3f}  {text}")
"""


def commands(state: Path, models: Path) -> list[list[str]]:
    """What is typed, in order."""
    vectors = str(state / "vectors.npy")
    return [
        [sys.executable, str(HERE / "models.py"), str(models)],
        ["bakemesh", "ingest", str(models / "minilm.gguf"), "--alias", "mini"],
        ["bakemesh", "ingest", str(models / "smollm2.gguf"), "--alias", "chat"],
        ["bakemesh", "models"],
        ["bakemesh", "embed", "--model", "mini", "--out", vectors, *TEXTS],
        [sys.executable, "-c", ALIKE, vectors, *TEXTS],
        ["bakemesh", "generate", "--model", "chat", "--max-tokens", "24", "The capital of France is"],
        ["bakemesh", "chat", "--model", "chat", "--max-tokens", "48", "Write one sentence about the sea."],
    ]


def shown(command: list[str], state: Path) -> str:
    """As one would type it; what is too long to read is left out."""
    words = ["…" if "\n" in word else word.replace(f"{state}/", "") for word in command]
    words = ["python" if word == sys.executable else word for word in words]
    return shlex.join(os.path.relpath(word) if os.path.isabs(word) else word for word in words)


def main() -> int:
    """Runs it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state", type=Path, required=True, help="the demo's own state folder; made anew")
    parser.add_argument("--models", type=Path, required=True, help="where the models are, or are put")
    args = parser.parse_args()
    state, models = args.state.absolute(), args.models.absolute()
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir(parents=True)
    program = [sys.executable, "-m", "bakemesh.cli"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BAKEMESH_")}
    up = [*program, "up", str(HERE / "mesh.xml"), "--json", "--state", str(state), "--node", "alpha"]
    up += ["--listen", "127.0.0.1:0", "--for", str(MOST_S)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    running: subprocess.Popen[bytes] | None = None
    code = 1
    try:
        print(f"$ bakemesh up {os.path.relpath(HERE / 'mesh.xml')}", flush=True)
        with (state / "up.log").open("wb") as errors:
            # Ctrl-C may not hit a half made process: it is held back, in the new one until it can hear it.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            running = subprocess.Popen(
                up,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environ,
                start_new_session=True,  # Ctrl-C is for the command first
                preexec_fn=lambda: end_with_us(signal.SIGTERM),
            )
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        if not ready(running):
            log = (state / "up.log").read_text(errors="replace")
            print(f"bakemesh up ended; its log:\n{log}", file=sys.stderr)
            return running.wait() or 1
        for command in commands(state, models):
            print(f"\n$ {shown(command, state)}", flush=True)
            whole = [*program, *command[1:], "--state", str(state)] if command[0] == "bakemesh" else command
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            asking = subprocess.Popen(whole, env=environ, preexec_fn=lambda: end_with_us(signal.SIGKILL))
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            if code := wait_for(asking):
                break
    except KeyboardInterrupt:
        code = 130
    finally:
        if running is not None:
            stop(running)
    print(f"\neverything is stopped; the exit code is {code}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
