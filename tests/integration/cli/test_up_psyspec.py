"""`bakemesh up PSYSPEC`, `startup`, `apply` as they are run: what is said, what runs, what is left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bakemesh.processes import marks
from support.commandline import PROGRAM, TIMEOUT_S, Up, bakemesh, environment

LISTEN = ("--listen", "127.0.0.1:0")


def psyspec(*modules: str) -> str:
    return f'<psySpec name="demo"><node name="alpha"/>{"".join(modules)}</psySpec>'


def module(name: str, command: str = "sleep 300", more: str = "") -> str:
    return f'<module name="{name}" ready-ms="100" {more}><crank command="{command}"/></module>'


TWO = psyspec(module("first"), module("second", more='depends="first"'))


def components_of(state: Path) -> list[psutil.Process]:
    """Every process of a component on this state folder: known by its working folder."""
    found = []
    for process in psutil.process_iter(["environ"]):
        if marks.INSTANCE_VARIABLE not in (process.info["environ"] or {}):
            continue
        with contextlib.suppress(psutil.Error):
            if process.cwd().startswith(str(state)):
                found.append(process)
    return found


def none_left(state: Path) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while left := components_of(state):
        assert time.monotonic() < deadline, left
        psutil.wait_procs(left, timeout=0.1)


@contextlib.contextmanager
def up_with(home: Path, spec: str, *flags: str) -> Iterator[Up]:
    """`up` with a PsySpec, up to its Psyclone.Ready."""
    (home / "demo.xml").write_text(spec)
    up = Up(home, "demo.xml", "--node", "alpha", *LISTEN, *flags)
    try:
        up.until("announced", psyspec="demo")
        yield up
    finally:
        up.stop()


def pids(up: Up) -> dict[str, int]:
    """The pid of each component, as the node reports it."""
    done = bakemesh("components", "--json", home=up.home)
    assert done.returncode == 0, done.stderr
    return {row["name"]: row["pid"] for row in json.loads(done.stdout)}


def test_a_line_a_component_in_order_then_ready_then_all_stopped_in_reverse(tmp_path):
    (tmp_path / "demo.xml").write_text(TWO)
    up = subprocess.Popen(
        [*PROGRAM, "up", "demo.xml", "--node", "alpha", *LISTEN],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment(tmp_path),
        cwd=tmp_path,
    )
    with up:
        assert up.stdout is not None
        lines = []
        for line in up.stdout:
            lines.append(line.rstrip())
            if "Psyclone.Ready" in line:
                assert len(components_of(tmp_path / "state")) == 2
                up.send_signal(signal.SIGINT)
    assert up.returncode == 0
    shown = [line for line in lines if line.split()[0] in ("first", "second") or "Psyclone" in line]
    assert shown[:3] == [
        "first     ready on node alpha",
        "second    ready on node alpha",
        "startup   Psyclone.Ready: demo on node alpha, 2 components",
    ]
    assert "up        the node is ready, what demo.xml says is brought up; Ctrl-C stops it" in lines
    assert not any("everything is ready" in line for line in lines)
    assert [line.split()[0] for line in lines[-3:]] == ["startup", "builder", "bus"]
    assert components_of(tmp_path / "state") == []


def test_a_module_without_a_node_waits_for_one_of_the_local_node(tmp_path):
    mixed = psyspec(module("first", more='node="alpha"'), module("second", more='depends="first"'))
    (tmp_path / "mixed.xml").write_text(mixed)
    done = bakemesh("up", "mixed.xml", "--node", "beta", *LISTEN, home=tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"'first' is on node alpha, this one on the node whose PsySpec it is, here beta" in done.stderr
    assert not (tmp_path / "state" / "bus").exists()
    (tmp_path / "alpha").mkdir()
    with up_with(tmp_path / "alpha", mixed) as up:
        assert pids(up).keys() == {"first", "second"}


def test_every_problem_at_once_before_anything_starts_and_warnings(tmp_path):
    (tmp_path / "bad.xml").write_text(
        '<psySpec name="demo">\n<module name="a"><crank script="missing.py"/></module>\n'
        '<module nam="b"><crank command="x"/></module>\n<modul/>\n</psySpec>'
    )
    done = bakemesh("up", "bad.xml", *LISTEN, home=tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    for word in (b"missing.py", b"nam=", b"did you mean", b"bad.xml:2", b"bad.xml:3"):
        assert word in done.stderr, done.stderr
    assert not (tmp_path / "state" / "bus").exists()
    nothing = bakemesh("up", "no.xml", *LISTEN, home=tmp_path)
    assert nothing.returncode == 2
    assert b"no.xml" in nothing.stderr
    (tmp_path / "warned.xml").write_text(psyspec(module("one"), '<psyprobe port="1"/>'))
    warned = bakemesh("up", "warned.xml", "--node", "alpha", *LISTEN, "--for", "0", home=tmp_path)
    assert warned.returncode == 0, warned.stderr
    assert b"warning" in warned.stderr
    assert b"psyprobe" in warned.stderr.lower()
    none_left(tmp_path / "state")


def test_a_second_ctrl_c_leaves_nothing_running(tmp_path):
    stubborn = module("deaf", "sh -c 'trap : TERM; while :; do sleep 0.1; done'", 'shutdown-ms="60000"')
    with up_with(tmp_path, psyspec(stubborn, module("good"))) as up:
        running = components_of(tmp_path / "state")
        assert len(running) >= 2
        processes = up.processes()
        up.process.send_signal(signal.SIGINT)
        up.until("stopped", component="startup")
        up.process.send_signal(signal.SIGINT)
        up.process.wait(TIMEOUT_S)
        assert psutil.wait_procs([*processes, *running], timeout=TIMEOUT_S)[1] == []
    none_left(tmp_path / "state")


def test_nothing_is_left_when_up_is_killed(tmp_path):
    with up_with(tmp_path, TWO) as up:
        running = [*up.processes(), *components_of(tmp_path / "state")]
        assert len(running) > 5
        up.process.kill()
        assert psutil.wait_procs(running, timeout=TIMEOUT_S)[1] == []
    none_left(tmp_path / "state")


def test_kept_components_are_found_again_at_the_same_bus(tmp_path):
    state = tmp_path / "state"
    try:
        with up_with(tmp_path, TWO, "--on-stop", "keep") as up:
            before = pids(up)
            bus = next(event["nats"] for event in up.events if event.get("nats"))
            assert up.stop() == 0
        assert {process.pid for process in components_of(state)} == set(before.values())
        again = Up(tmp_path, "demo.xml", "--node", "alpha", *LISTEN)
        try:
            again.until("up")
            assert next(event["nats"] for event in again.events if event.get("nats")) == bus
            # The same boot of the node: what runs is left alone, and nothing is announced again.
            done = bakemesh("apply", "demo.xml", "--node", "alpha", home=tmp_path)
            assert done.returncode == 0, done.stderr
            assert b"node alpha: 2 unchanged" in done.stdout
            assert pids(again) == before
        finally:
            assert again.stop() == 0
        assert not [event for event in again.events if event["event"] == "announced"]
        assert components_of(state) == []
    finally:
        for process in components_of(state):
            process.kill()


def test_after_an_ordered_stop_it_is_a_new_boot_and_all_is_brought_up_again(tmp_path):
    boots = []
    for _ in range(2):
        with up_with(tmp_path, TWO) as up:
            boots.append(next(event["boot"] for event in up.events if event["event"] == "announced"))
            assert len(components_of(tmp_path / "state")) == 2
            assert up.stop() == 0
    assert boots[0] != boots[1]


def test_a_killed_startup_supervisor_and_builder_come_back_and_nothing_is_done_twice(tmp_path):
    with up_with(tmp_path, TWO) as up:
        before = pids(up)
        for name in ("startup", "builder"):
            told = [e for e in up.events if e["event"] == "ready" and e["component"] == name]
            os.kill(int(told[-1]["pid"]), signal.SIGKILL)
            up.until("died", component=name, code=-9)
            up.until("ready", component=name)
        done = bakemesh("apply", "demo.xml", "--node", "alpha", home=tmp_path)
        assert done.returncode == 0, done.stderr
        assert pids(up) == before
        assert up.stop() == 0
    assert len([event for event in up.events if event["event"] == "announced"]) == 1


def test_down_by_request_ends_up_with_0_and_its_components(tmp_path):
    with up_with(tmp_path, TWO) as up:
        running = components_of(tmp_path / "state")
        done = bakemesh("down", "alpha", home=tmp_path)
        assert done.returncode == 0, done.stderr
        assert up.process.wait(TIMEOUT_S) == 0
        assert psutil.wait_procs(running, timeout=TIMEOUT_S)[1] == []


def test_apply_adds_removes_restarts_and_leaves_the_rest(tmp_path):
    with up_with(tmp_path, psyspec(module("stays"), module("goes"), module("changes"))) as up:
        before = pids(up)
        changed = psyspec(module("stays"), module("changes", "sleep 301"), module("comes"))
        (tmp_path / "changed.xml").write_text(changed)
        done = bakemesh("apply", "changed.xml", home=tmp_path)
        assert done.returncode == 0, done.stderr
        assert b"added comes; removed goes; restarted changes; 1 unchanged" in done.stdout
        after = pids(up)
        assert after.keys() == {"stays", "changes", "comes"}
        assert after["stays"] == before["stays"]
        assert after["changes"] != before["changes"]
        up.until("reconciled", node="alpha", added=["comes"], removed=["goes"], restarted=["changes"])

        told = bakemesh("apply", "changed.xml", "--json", home=tmp_path)
        events = [json.loads(line) for line in told.stdout.splitlines()]
        assert [event["event"] for event in events] == ["result", "reconciled"]
        assert events[1]["unchanged"] == 3

        (tmp_path / "bad.xml").write_text(psyspec('<module name="x"/>'))
        refused = bakemesh("apply", "bad.xml", home=tmp_path)
        assert refused.returncode == 2
        assert pids(up) == after

        failing = psyspec(module("stays"), module("broken", "/no/such/program"))
        (tmp_path / "failing.xml").write_text(failing)
        late = bakemesh("apply", "failing.xml", "--timeout", "2", home=tmp_path)
        assert late.returncode == 1
        assert b"not done within 2 s on: alpha" in late.stderr
        assert b"bring-up of node alpha failed" in late.stderr


def test_without_a_psyspec_one_can_be_applied_and_is_kept(tmp_path):
    (tmp_path / "demo.xml").write_text(TWO)
    up = Up(tmp_path, "--node", "alpha", *LISTEN)
    try:
        up.until("up")
        assert bakemesh("apply", "demo.xml", home=tmp_path).returncode == 0
        up.until("announced", psyspec="demo")
        assert up.stop() == 0
        again = Up(tmp_path, "--node", "alpha", *LISTEN)
        try:
            again.until("announced", psyspec="demo")
        finally:
            assert again.stop() == 0
    finally:
        up.stop()


def test_startup_in_the_foreground_beside_a_builder(tmp_path):
    with up_with(tmp_path, TWO) as up:
        nats = next(event["nats"] for event in up.events if event.get("nats"))
        taken = bakemesh("startup", "--nats", nats, "--node", "alpha", home=tmp_path)
        assert taken.returncode == 6
        nobody = bakemesh("apply", "demo.xml", "--node", "nowhere", home=tmp_path)
        assert nobody.returncode == 5
        other = tmp_path / "other"
        command = [*PROGRAM, "startup", "--nats", nats, "--node", "beta", "--state", str(other)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment(tmp_path)
        ) as alone:
            assert alone.stdout is not None
            assert alone.stdout.readline().startswith(b"ready ")
            alone.send_signal(signal.SIGTERM)
            assert alone.wait(TIMEOUT_S) == 0
    unreachable = bakemesh("startup", "--nats", nats, "--node", "gamma", home=tmp_path / "..", timeout=30)
    assert unreachable.returncode in (2, 5)


@pytest.mark.timeout(240)
def test_a_component_that_cannot_run_is_said_and_the_rest_is_up_when_it_can(tmp_path):
    program = tmp_path / "late"
    (tmp_path / "demo.xml").write_text(psyspec(module("late", str(program)), module("good")))
    up = Up(tmp_path, "demo.xml", "--node", "alpha", *LISTEN)
    try:
        failed = up.until("failed", node="alpha")
        assert "late" in failed["why"]
        program.write_text("#!/bin/sh\nexec sleep 300\n")
        program.chmod(0o755)
        done = bakemesh("components", "restart", "late", home=tmp_path)  # else it is probed in a minute or so
        assert done.returncode == 0, done.stderr
        up.until("announced", psyspec="demo")
    finally:
        up.stop()
    none_left(tmp_path / "state")
