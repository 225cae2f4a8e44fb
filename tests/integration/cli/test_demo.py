"""The demo and what README.md shows: run as written."""

import ast
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from support import packages
from support.commandline import TIMEOUT_S, bakemesh, environment
from support.engine import need_engine

ROOT = Path(__file__).parents[3]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_the_demo_bakes_the_example_and_stops_everything(tmp_path):
    state = tmp_path / "demo"
    command = [sys.executable, str(ROOT / "examples" / "hello" / "demo.py"), "--state", str(state)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=2 * TIMEOUT_S, env=environment(tmp_path), check=False
    )
    assert done.returncode == 0, done.stderr
    shown = done.stdout.splitlines()
    readme = "\n".join(blocks("console"))
    for line in ("$ bakemesh up", "builder   ready alpha", "443 words.txt"):
        assert line in shown
        assert line in readme
    assert "Bake cli-hello-1 is done on node alpha; counting ended with exit code 0." in shown
    assert "Success: all steps done" in done.stderr
    assert shown[-1] == "everything is stopped; the bake ended with exit code 0"
    assert not (state / "up.json").exists()


def test_the_demo_ends_with_the_bakes_exit_code(tmp_path):
    (tmp_path / "no.xml").write_text('<recipe name="no"><cli command="false"/></recipe>')
    command = [
        sys.executable,
        str(ROOT / "examples" / "hello" / "demo.py"),
        "--state",
        str(tmp_path / "demo"),
        "no.xml",
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        timeout=2 * TIMEOUT_S,
        env=environment(tmp_path),
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 1, done.stderr


@pytest.mark.engine
@pytest.mark.timeout(900)
def test_the_demo_of_inference_answers_with_real_models(tmp_path):
    need_engine()
    models = packages.cache() / "demo"
    program = [sys.executable, str(ROOT / "examples" / "inference" / "demo.py")]
    with packages.alone("demo"):
        done = subprocess.run(
            [*program, "--state", str(tmp_path / "demo"), "--models", str(models)],
            capture_output=True,
            text=True,
            timeout=800,
            env=environment(tmp_path),
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    shown, readme = done.stdout.splitlines(), "\n".join(blocks("console"))
    for line in ("$ bakemesh up examples/inference/mesh.xml", " 1.000  The cat sits outside."):
        assert any(each.endswith(line) or each == line for each in shown)
        assert line in readme
    alike = [float(line.split()[0]) for line in shown if line.endswith((".",)) and line[:3] in (" 0.", " 1.")]
    assert alike[0] > alike[1] > 2 * alike[2] > 0
    said = done.stdout.partition("Write one sentence about the sea.'\n")[2]
    assert "sea" in said.splitlines()[0]
    assert shown[-1] == "everything is stopped; the exit code is 0"
    assert not (tmp_path / "demo" / "up.json").exists()


def demo(home: Path) -> "subprocess.Popen[str]":
    """The demo in a session of its own, as `make demo` on a terminal has one."""
    return subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / "hello" / "demo.py"), "--state", str(home / "demo")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(home),
        start_new_session=True,
    )


def read_until(running: "subprocess.Popen[str]", beginning: str) -> None:
    assert running.stdout is not None
    for line in running.stdout:
        if line.startswith(beginning):
            return
    raise AssertionError(f"the demo ended before {beginning!r}: {running.stderr and running.stderr.read()}")


def family(pid: int) -> list[psutil.Process]:
    """Everything that runs for it."""
    return psutil.Process(pid).children(recursive=True)


@pytest.mark.parametrize("moment", ["$ bakemesh up", "builder   ready", "443 words.txt"])
def test_ctrl_c_stops_all_of_the_demo_without_a_trace(tmp_path, moment):
    running = demo(tmp_path)
    read_until(running, moment)
    started = family(running.pid)
    os.killpg(running.pid, signal.SIGINT)
    stdout, stderr = running.communicate(timeout=TIMEOUT_S)
    assert "Traceback" not in stderr
    assert stdout.rstrip().splitlines()[-1].startswith("everything is stopped")
    assert running.returncode in (3, 130)
    assert psutil.wait_procs(started, timeout=TIMEOUT_S)[1] == []


def test_a_demo_that_is_killed_leaves_nothing_behind(tmp_path):
    running = demo(tmp_path)
    read_until(running, "443 words.txt")
    started = family(running.pid)
    assert len(started) >= 4  # up, its server, its Builder, the bake
    running.kill()
    running.communicate(timeout=TIMEOUT_S)
    assert psutil.wait_procs(started, timeout=TIMEOUT_S)[1] == []


def test_the_recipes_and_the_python_of_the_readme_are_right(tmp_path):
    recipes, snippets = blocks("xml"), blocks("python")
    assert recipes
    assert snippets
    for xml in recipes:
        done = bakemesh("check", "-", home=tmp_path, stdin=xml.encode())
        assert done.returncode == 0, done.stderr
    for snippet in snippets:
        ast.parse("async def main(xml):\n" + "".join(f"    {line}\n" for line in snippet.splitlines()))


def test_the_commands_of_the_readme_exist():
    text = "\n".join(blocks("console"))
    targets = set(re.findall(r"^\$ make (\w+)", text, re.MULTILINE))
    made = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert targets == {"demo", "test"}
    assert targets <= made
    ci = (ROOT / ".ci" / "run").read_text()
    assert "make check" in ci
    assert re.search(r"^check: .*\btest\b", (ROOT / "Makefile").read_text(), re.MULTILINE)
