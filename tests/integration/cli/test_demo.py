"""The demo and what README.md shows: run as written."""

import ast
import re
import subprocess
import sys
from pathlib import Path

from support.commandline import TIMEOUT_S, bakemesh, environment

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
