"""The demo: `bakemesh up` in a private state folder, a bake with live progress and output, all stopped.

Each part is a command that a user types; this script only puts them after one another. Exit code: the
bake's. Ctrl-C stops all of it at any time, and where this script is killed the kernel stops `up` for it.
"""

import argparse
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

HERE = Path(__file__).parent
MOST_S = 600  # whatever happens to this script, nothing of it runs for longer
READY_S = 60
SET_PARENT_DEATH_SIGNAL = 1  # of prctl


def main() -> int:
    """Runs it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--state", type=Path, required=True, help="the demo's own state folder; it is made anew"
    )
    parser.add_argument("recipe", type=Path, nargs="?", default=HERE / "recipe.xml")
    args = parser.parse_args()
    state = args.state.absolute()
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir(parents=True)
    program = [sys.executable, "-m", "bakemesh.cli"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BAKEMESH_")}

    up = [*program, "up", "--json", "--state", str(state), "--node", "alpha", "--listen", "127.0.0.1:0"]
    up += ["--for", str(MOST_S)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    log = state / "up.log"
    running: subprocess.Popen[bytes] | None = None
    code = 1
    try:
        print("$ bakemesh up", flush=True)
        with log.open("wb") as errors:
            # Ctrl-C may not hit a half made process: it is held back, in the new one until it can hear it.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            running = subprocess.Popen(
                up,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environ,
                start_new_session=True,  # Ctrl-C is for the bake first
                preexec_fn=lambda: end_with_us(signal.SIGTERM),
            )
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        if not ready(running):
            print(f"bakemesh up ended; its log:\n{log.read_text(errors='replace')}", file=sys.stderr)
            return running.wait() or 1
        print(f"\n$ bakemesh bake {os.path.relpath(args.recipe)} --param examples=...", flush=True)
        param = f"examples={HERE.parent.absolute()}"
        bake = [*program, "bake", str(args.recipe), "--state", str(state), "--param", param]
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        baking = subprocess.Popen(bake, env=environ, preexec_fn=lambda: end_with_us(signal.SIGKILL))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        code = wait_for(baking)
    except KeyboardInterrupt:
        code = 130
    finally:
        if running is not None:
            stop(running)
    print(f"\neverything is stopped; the bake ended with exit code {code}", flush=True)
    return code


def end_with_us(number: signal.Signals) -> None:
    """In the new process: this signal comes when the one that started it is gone, however it went."""
    ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, number)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_for(baking: "subprocess.Popen[bytes]") -> int:
    """Its exit code, as a shell counts it. Ctrl-C is for it: it cancels the bake and ends by itself."""
    while True:
        try:
            code = baking.wait()
            return code if code >= 0 else 128 - code
        except KeyboardInterrupt:
            continue


def stop(running: "subprocess.Popen[bytes]") -> None:
    """Ends `up` and waits for it; a further Ctrl-C is handed on, and kills what is left."""
    running.send_signal(signal.SIGINT)
    while True:
        try:
            running.communicate()
            return
        except KeyboardInterrupt:
            running.send_signal(signal.SIGINT)


def ready(running: "subprocess.Popen[bytes]") -> bool:
    """Shows each component as it gets ready; True once all are."""
    assert running.stdout is not None
    alarm = threading.Timer(READY_S, running.terminate)
    alarm.daemon = True  # Ctrl-C may come while it starts, and must not wait for it
    try:
        alarm.start()
        for line in running.stdout:
            event = json.loads(line)
            if event["event"] == "up":
                return True
            print(
                f"{event['component']:9} {event['event']}",
                event.get("nats") or event.get("node") or "",
                flush=True,
            )
        return False
    finally:
        alarm.cancel()


if __name__ == "__main__":
    sys.exit(main())
