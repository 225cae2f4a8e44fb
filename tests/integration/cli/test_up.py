"""`bakemesh up` as it is run: restarts, exit codes, stops, its own death, a leaf, a node that is down."""

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from bakemesh.protocol.builder.messages import BakeSuccess
from support.commandline import PROGRAM, TIMEOUT_S, Up, bakemesh, environment, running_up
from support.mesh import mesh
from support.modules import instances, module, recipe
from support.processes import gone

SAY = b'<recipe name="r" data-interval-ms="0"><cli name="say" command="echo hello"/></recipe>'


def says_hello(home: Path, *args: str) -> None:
    done = bakemesh("bake", "-", "--quiet", *args, home=home, stdin=SAY)
    assert (done.returncode, done.stdout) == (0, b"hello\n"), done.stderr


def pid_of(up: Up, component: str) -> int:
    told = [event for event in up.events if event["event"] == "ready" and event["component"] == component]
    return int(told[-1]["pid"])


def test_a_line_a_component_and_stopped_in_reverse(tmp_path):
    done = bakemesh("up", "--listen", "127.0.0.1:0", "--node", "alpha=a1", "--for", "0", home=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.decode().splitlines()]
    told = [line[:2] for line in lines]
    assert told[0] == ["bus", "ready"]
    # The Startup Supervisor begins beside the Builder: either may be the first.
    assert sorted(told[1:3]) == [["builder", "ready"], ["startup", "ready"]]
    assert told[3:] == [
        ["up", "everything"],
        ["startup", "stopped"],
        ["builder", "stopped"],
        ["bus", "stopped"],
    ]
    assert lines[1][2:] == lines[2][2:] == ["node", "alpha,", "id", "a1"]
    assert json.loads((tmp_path / "state" / "node.json").read_text()) == {"node": "alpha", "nodeid": "a1"}
    assert not (tmp_path / "state" / "up.json").exists()


def test_a_killed_builder_and_a_killed_server_come_back(tmp_path):
    with running_up(tmp_path) as up:
        says_hello(tmp_path)
        os.kill(pid_of(up, "builder"), signal.SIGKILL)
        up.until("died", component="builder", code=-9)
        up.until("ready", component="builder")
        says_hello(tmp_path)
        before = next(event["nats"] for event in up.events if event.get("nats"))
        os.kill(pid_of(up, "bus"), signal.SIGKILL)
        up.until("died", component="bus", code=-9)
        assert up.until("ready", component="bus")["nats"] == before
        says_hello(tmp_path)
        processes = up.processes()
        assert up.stop() == 0
    _, alive = psutil.wait_procs(processes, timeout=TIMEOUT_S)
    assert alive == []


def test_nothing_is_left_when_up_is_killed(tmp_path):
    with running_up(tmp_path) as up:
        (tmp_path / "sleep.xml").write_bytes(b'<recipe name="r"><cli name="s" command="sleep 300"/></recipe>')
        assert bakemesh("bake", "sleep.xml", "--detach", home=tmp_path).returncode == 0
        processes = up.processes()
        up.process.kill()
        _, alive = psutil.wait_procs(processes, timeout=TIMEOUT_S)
        assert alive == []
    assert not [
        each
        for each in psutil.process_iter(["cmdline"])
        if str(tmp_path) in " ".join(each.info["cmdline"] or [])
    ]


def test_a_reader_that_goes_away_does_not_end_it(tmp_path):
    with running_up(tmp_path) as up:
        assert up.process.stdout is not None
        os.kill(pid_of(up, "builder"), signal.SIGKILL)
        up.until("ready", component="builder")
        command = [
            *PROGRAM,
            "up",
            "--listen",
            "127.0.0.1:0",
            "--node",
            "beta",
            "--state",
            str(tmp_path / "beta"),
        ]
        with subprocess.Popen(
            [*command, "--for", "1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(tmp_path),
        ) as other:
            assert other.stdout is not None
            other.stdout.readline()
            other.stdout.close()
            assert other.wait(TIMEOUT_S) == 0


def test_a_second_one_is_exit_code_6(tmp_path):
    with running_up(tmp_path) as up:
        same_folder = bakemesh("up", "--node", "alpha", home=tmp_path)
        assert same_folder.returncode == 6
        assert b"--state" in same_folder.stderr
        nats = next(event["nats"] for event in up.events if event.get("nats"))
        other = ["--nats", nats, "--node", "alpha", "--state", str(tmp_path / "other")]
        as_builder = bakemesh("builder", *other, home=tmp_path)
        assert as_builder.returncode == 6, as_builder.stderr
        as_up = bakemesh("up", "--json", *other, home=tmp_path)
        assert as_up.returncode == 6
        told = [json.loads(line) for line in as_up.stdout.splitlines()]
        builder = [event["event"] for event in told if event["component"] == "builder"]
        assert builder == ["died", "given-up"]
        says_hello(tmp_path)


async def test_components_of_a_builder_that_it_did_not_start_are_left_alone(tmp_path):
    async with mesh(tmp_path, guard=False) as net, net.supervisor("boss") as boss:
        assert isinstance(await (await boss.bake(recipe(module("one")))).outcome(), BakeSuccess)
        (pid,) = instances("one", net.node.state)
        args = ["up", "--nats", net.url, "--node", "alpha", "--state", str(net.node.state)]
        refused = await asyncio.to_thread(lambda: bakemesh(*args, home=tmp_path))
        assert refused.returncode == 6, refused.stderr
        assert not gone(pid)


def test_another_nodes_state_folder_is_refused(tmp_path):
    assert (
        bakemesh("up", "--node", "alpha", "--for", "0", "--listen", "127.0.0.1:0", home=tmp_path).returncode
        == 0
    )
    done = bakemesh("up", "--node", "beta=b1", home=tmp_path)
    assert done.returncode == 2
    assert b"belongs to the node id 'alpha', not 'b1'" in done.stderr


def test_listening_to_others_without_authorization_is_refused(tmp_path):
    done = bakemesh("up", "--listen", "0.0.0.0:0", home=tmp_path)
    assert done.returncode == 2
    assert b"0.0.0.0" in done.stderr


@pytest.mark.timeout(300)  # a hub sources a leaf that has come back after 10 s, after a minute at times
def test_a_leaf_and_a_node_that_is_down(tmp_path):
    hub, leaf = tmp_path / "hub", tmp_path / "leaf"
    hub.mkdir()
    leaf.mkdir()
    with running_up(hub) as up:
        leaf_url = next(event["leaf"] for event in up.events if event.get("leaf"))
        beta = Up(leaf, "--node", "beta", "--join", leaf_url, "--listen", "127.0.0.1:0")
        try:
            beta.until("up")
            says_hello(hub, "--node", "beta")
            says_hello(leaf, "--node", "beta")
            says_hello(leaf, "--node", "alpha")
        finally:
            assert beta.stop() == 0
        sent = bakemesh("bake", "-", "--detach", "--node", "beta", home=hub, stdin=SAY)
        assert sent.returncode == 0
        assert b"waits in its inbox" in sent.stderr
        recipe_id = sent.stdout.decode().strip()
        rows = json.loads(bakemesh("bakes", "--json", home=hub).stdout)
        (waiting,) = [row for row in rows if row["state"] == "waiting"]
        assert (waiting["recipeid"], waiting["nodeid"]) == (recipe_id, "beta")
        unreachable = bakemesh("control", "cancel", recipe_id, home=hub)
        assert unreachable.returncode == 5
        assert b"no Builder on node beta" in unreachable.stderr
        again = Up(leaf, "--node", "beta", "--join", leaf_url, "--listen", "127.0.0.1:0")
        try:
            again.until("up")
            followed = bakemesh("logs", recipe_id, "--follow", home=hub, timeout=150)
            assert (followed.returncode, followed.stdout) == (0, b"hello\n"), followed.stderr
        finally:
            again.stop()
