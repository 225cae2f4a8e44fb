"""The demo: `bakemesh up` in a private state folder, a bake with live progress and output, all stopped.

Each part is a command that a user types; this script only puts them after one another. Exit code: the
bake's.
"""

import argparse
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
    print("$ bakemesh up", flush=True)
    log = state / "up.log"
    with log.open("wb") as errors:
        running = subprocess.Popen(
            up, stdout=subprocess.PIPE, stderr=errors, env=environ, start_new_session=True
        )
    try:
        if not ready(running):
            print(f"bakemesh up ended; its log:\n{log.read_text(errors='replace')}", file=sys.stderr)
            return running.wait() or 1
        print(f"\n$ bakemesh bake {os.path.relpath(args.recipe)} --param examples=...", flush=True)
        param = f"examples={HERE.parent.absolute()}"
        bake = [*program, "bake", str(args.recipe), "--state", str(state), "--param", param]
        code = wait_for(subprocess.Popen(bake, env=environ))
    finally:
        running.send_signal(signal.SIGINT)
        running.communicate()
    print(f"\neverything is stopped; the bake ended with exit code {code}", flush=True)
    return code


def wait_for(baking: "subprocess.Popen[bytes]") -> int:
    """Its exit code. Ctrl-C is for it: it cancels the bake and ends by itself."""
    while True:
        try:
            return baking.wait()
        except KeyboardInterrupt:
            continue


def ready(running: "subprocess.Popen[bytes]") -> bool:
    """Shows each component as it gets ready; True once all are."""
    assert running.stdout is not None
    alarm = threading.Timer(READY_S, running.terminate)
    alarm.start()
    for line in running.stdout:
        event = json.loads(line)
        if event["event"] == "up":
            alarm.cancel()
            return True
        print(
            f"{event['component']:9} {event['event']}",
            event.get("nats") or event.get("node") or "",
            flush=True,
        )
    alarm.cancel()
    return False


if __name__ == "__main__":
    sys.exit(main())
