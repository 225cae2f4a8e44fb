"""`bakemesh worker` is the same worker, in the same process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.workerhost import Host

BAKEMESH = str(Path(sys.executable).with_name("bakemesh"))


def test_the_verb_becomes_the_worker() -> None:
    with Host(command=(BAKEMESH, "worker")) as host:
        assert host.hello["pid"] == host.process.pid
        assert host.embed(host.load(), (1, 2))[0]["type"] == "VECTORS"
        host.send({"type": "SHUTDOWN"})
        assert host.wait() == 0
        assert host.output() == b""


def test_the_verb_says_what_is_missing() -> None:
    done = subprocess.run([BAKEMESH, "worker", "--socket", "/s"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--nonce" in done.stderr
