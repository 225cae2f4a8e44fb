"""examples/cluster as its README says it: two real `up` processes, on one server and as hub and leaf."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import psutil
import pytest

from support.commandline import TIMEOUT_S, Up, bakemesh

ROOT = Path(__file__).parents[3]
README = ROOT / "examples" / "cluster" / "README.md"


def commands() -> list[str]:
    """Every command of the README, in order."""
    blocks = re.findall(r"```console\n(.*?)```", README.read_text(), re.DOTALL)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]


def words(command: str, home: Path, addresses: dict[str, str]) -> list[str]:
    """A command's words, at this test's folder and addresses."""
    for old, new in {"/tmp/bakemesh": str(home / "state"), **addresses}.items():
        command = command.replace(old, new)
    first, *rest = shlex.split(command)
    assert first == "bakemesh"
    return rest


def start(home: Path, command: str, addresses: dict[str, str]) -> Up:
    verb, *rest = words(command, home, addresses)
    assert verb == "up"
    return Up(home, *rest)


def beta_is_up(alpha: Up) -> None:
    """Both of its components get ready, in whatever order."""
    ready: set[str] = set()
    while ready != {"counter", "beacon"}:
        ready.add(alpha.until("component", node="beta", state="ready")["name"])


def watched(home: Path) -> dict[str, int]:
    """What the board shows."""
    done = bakemesh("components", "--json", "--state", str(home / "state-alpha"), home=home)
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    found = next((row for row in rows if row["name"] == "board"), {})
    return {key: int((found.get("watch") or {}).get(key, 0)) for key in ("count", "total")}


def counts_on(home: Path) -> None:
    """The board sees counts and totals that grow."""
    first = watched(home)
    for _ in range(100):
        seen = watched(home)
        if all(seen[key] > first[key] > 0 for key in seen):
            return
        first = {key: first[key] or seen[key] for key in seen}
    raise AssertionError(f"{first} and then {seen}")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", ["--nats", "--join"])
def test_two_nodes_from_one_psyspec(tmp_path, way):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    alpha_command, *rest = commands()
    beta_command = next(command for command in rest if command.startswith("bakemesh up") and way in command)
    alpha = start(tmp_path, alpha_command, {"127.0.0.1:4222": "127.0.0.1:0"})
    ups = [alpha]
    try:
        bus = alpha.until("ready", component="bus")
        alpha.until("missing", node="beta", components=2)
        announced = alpha.until("announced")
        assert sorted(announced["components"]) == ["board", "robot"]
        addresses = {"nats://127.0.0.1:4222": bus["nats"], "nats://127.0.0.1:7422": bus["leaf"]}
        beta = start(tmp_path, beta_command, addresses)
        ups.append(beta)
        beta_is_up(alpha)
        counts_on(tmp_path)

        shown = bakemesh(*words(rest[2], tmp_path, addresses), home=tmp_path)
        assert shown.returncode == 0, shown.stderr
        for name in (b"robot", b"counter", b"board", b"beacon"):
            assert name in shown.stdout

        demo = tmp_path / "examples" / "cluster" / "demo.xml"
        demo.write_text(
            demo.read_text().replace(
                'name="PressesPerSecond" value="20"', 'name="PressesPerSecond" value="40"'
            )
        )
        applied = bakemesh(*words(rest[4], tmp_path, addresses), home=tmp_path)
        assert applied.returncode == 0, applied.stderr
        assert b"node alpha: restarted robot; 1 unchanged" in applied.stdout
        assert b"node beta: 2 unchanged" in applied.stdout
        counts_on(tmp_path)

        # beta goes and comes back: a new boot, brought up again without being asked.
        assert beta.stop() == 0
        again = start(tmp_path, beta_command, addresses)
        ups.append(again)
        beta_is_up(alpha)
        counts_on(tmp_path)
    finally:
        processes: list[psutil.Process] = []
        for up in reversed(ups):
            if up.process.poll() is None:
                processes += up.processes()
            up.stop()
    assert psutil.wait_procs(processes, timeout=TIMEOUT_S)[1] == []
    assert len([event for event in alpha.events if event["event"] == "announced"]) == 1
