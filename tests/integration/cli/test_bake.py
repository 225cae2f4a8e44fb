"""`bake`, `logs`, `control`, `push`, `bakes`, `nodes` against the real thing: one `bakemesh up` for the
whole file.
"""

import base64
import json
import os
import pty
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.commandline import PROGRAM, TIMEOUT_S, Up, bakemesh, environment, running_up


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running_up(tmp_path_factory.mktemp("node")) as up:
        yield up


@pytest.fixture
def home(node: Up) -> Path:
    return node.home


def recipe(*steps: str, name: str = "r", root: str = "") -> bytes:
    return f'<recipe name="{name}" data-interval-ms="0" {root}>{"".join(steps)}</recipe>'.encode()


def code(source: str, name: str, more: str = "") -> str:
    return f'<code name="{name}" language="python" {more}><![CDATA[{source}]]></code>'


def bake(home: Path, xml: bytes, *args: str) -> subprocess.CompletedProcess[bytes]:
    return bakemesh("bake", "-", *args, home=home, stdin=xml)


def logs(home: Path, *args: str) -> bytes:
    """What `logs` prints to stdout; it must end well."""
    done = bakemesh("logs", *args, home=home)
    assert done.returncode == 0, done.stderr
    return done.stdout


def events(done: subprocess.CompletedProcess[bytes]) -> list[dict]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def eventually_listed(home: Path, recipe_id: str, state: str) -> dict:
    """The bake's row in `bakes`, once it is in that state."""
    deadline = time.monotonic() + TIMEOUT_S
    row: dict = {}
    while time.monotonic() < deadline:
        rows = json.loads(bakemesh("bakes", "--json", home=home).stdout)
        row = next((row for row in rows if row["recipeid"] == recipe_id), {})
        if row.get("state") == state:
            return row
    raise AssertionError(f"{recipe_id} is not {state} but {row}")


ODD = bytes(range(256)) * 300 + b"no newline at the end"
WRITES = "import sys; out = bytes(range(256)) * 300 + b'no newline at the end'; sys.stdout.buffer.write(out)"


def test_output_goes_through_byte_for_byte_each_stream_to_its_own(home):
    xml = recipe(code(f"{WRITES}; sys.stderr.buffer.write(b'\\xff' + out[::-1])", "write"))
    done = bake(home, xml, "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ODD
    assert done.stderr == b"\xff" + ODD[::-1]


def test_progress_is_lines_on_stderr_when_piped(home):
    done = bake(home, recipe('<cli name="say" command="echo hello"/>'))
    assert (done.returncode, done.stdout) == (0, b"hello\n")
    text = done.stderr.decode()
    assert text.startswith("bake cli-r-")
    assert "say" in text
    assert "Success" in text.splitlines()[-1]
    assert "hello" not in text
    assert "\x1b" not in text


def test_a_person_sees_a_steps_begin_its_output_and_its_end_in_this_order(home):
    steps = "".join(f'<cli name="s{n}" command="echo said-{n}"/>' for n in range(8))
    (home / "eight.xml").write_bytes(recipe(steps))
    done = subprocess.run(
        [*PROGRAM, "bake", "eight.xml"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment(home),
        cwd=home,
        check=True,
        timeout=TIMEOUT_S,
    )
    lines = done.stdout.decode().splitlines()
    for n in range(8):
        own = [line for line in lines if f"(s{n})" in line or line == f"said-{n}"]
        assert own[1] == f"said-{n}"
        assert "begins" in own[0]
        assert "exit code 0" in own[2]


def test_a_failed_step_is_exit_code_1(home):
    done = bake(home, recipe('<cli name="no" command="false"/>'))
    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[-1].startswith("Failed (step_failed): ")


def test_an_invalid_recipe_is_exit_code_2_with_every_problem(home):
    done = bake(home, b'<recipe name="r">\n<cli/>\n<nope/>\n</recipe>')
    assert done.returncode == 2
    lines = done.stderr.decode().splitlines()
    assert "invalid_recipe" in lines[0]
    assert any("line 2" in line for line in lines)
    assert any("line 3" in line and "nope" in line for line in lines)


def test_json_lines_tell_everything(home):
    done = bake(home, recipe('<cli name="say" command="echo hello"/>'), "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    told = events(done)
    assert told[0]["event"] == "sent"
    assert told[0]["recipe_id"].startswith("cli-r-")
    assert told[0]["node_id"] == "alpha"
    assert [event["serial"] for event in told if event["event"] == "status"] == list(
        range(1, 1 + sum(event["event"] == "status" for event in told))
    )
    data = [event for event in told if event["event"] == "data"]
    assert b"".join(base64.b64decode(event["data"]) for event in data) == b"hello\n"
    assert data[-1]["finalchunk"] is True
    assert told[-1]["event"] == "end"
    assert told[-1]["outcome"] == "Success"
    assert told[-1]["failedsteps"] == []


def test_ctrl_c_cancels_and_waits_for_cancelled(home):
    xml = recipe('<cli name="sleep" command="sleep 300"/>')
    (home / "sleep.xml").write_bytes(xml)
    command = [*PROGRAM, "bake", "sleep.xml", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(home), cwd=home) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line).get("step") == "sleep":
                break
        process.send_signal(signal.SIGINT)
        rest = [json.loads(line) for line in process.stdout]
        assert process.wait(TIMEOUT_S) == 3
    assert rest[-1]["event"] == "end"
    assert rest[-1]["outcome"] == "Cancelled"


def test_detached_then_logs_then_bakes(home):
    xml = recipe(
        code("import sys; print('out'); print('err', file=sys.stderr)", "one"),
        '<cli name="two" command="echo second"/>',
    )
    sent = bake(home, xml, "--detach")
    assert sent.returncode == 0
    recipe_id = sent.stdout.decode().strip()
    followed = bakemesh("logs", recipe_id, "--follow", home=home)
    assert (followed.returncode, followed.stdout, followed.stderr) == (0, b"out\nsecond\n", b"err\n")
    replayed = bakemesh("logs", recipe_id, home=home)
    assert (replayed.stdout, replayed.stderr) == (followed.stdout, followed.stderr)
    assert logs(home, recipe_id, "--step", "two") == b"second\n"
    assert logs(home, recipe_id, "--step", "1") == b"second\n"
    only = bakemesh("logs", recipe_id, "--stream", "stderr", home=home)
    assert (only.stdout, only.stderr) == (b"", b"err\n")
    unknown = bakemesh("logs", recipe_id, "--step", "three", home=home)
    assert unknown.returncode == 2
    assert b"one, two" in unknown.stderr
    row = eventually_listed(home, recipe_id, "succeeded")
    assert (row["supervisor"], row["recipe"], row["node"], row["nodeid"]) == ("cli", "r", "alpha", "alpha")


def test_logs_of_a_running_bake_end_with_what_is_there(home):
    xml = recipe(code("import time; print('begun', flush=True); time.sleep(300)", "one"))
    recipe_id = bake(home, xml, "--detach").stdout.decode().strip()
    deadline = time.monotonic() + TIMEOUT_S
    while (shown := bakemesh("logs", recipe_id, "--step", "one", home=home)).stdout != b"begun\n":
        assert shown.returncode in (0, 2), shown.stderr
        assert time.monotonic() < deadline
    assert bakemesh("control", "cancel", recipe_id, home=home).returncode == 0


def test_pause_start_and_a_control_that_comes_too_late(home, tmp_path):
    gate = tmp_path / "gate"
    wait = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)"
    recipe_id = bake(home, recipe(code(wait, "wait"), '<cli name="after" command="echo after"/>'), "--detach")
    recipe_id = recipe_id.stdout.decode().strip()
    paused = bakemesh("control", "pause", recipe_id, home=home)
    assert paused.returncode == 0, paused.stderr
    assert paused.stdout.startswith(f"Pause {recipe_id}: accepted".encode())
    refused = bakemesh("control", "retry", recipe_id, "--json", home=home)
    assert refused.returncode == 1
    assert json.loads(refused.stdout)["code"] == "not_retryable"
    gate.write_text("")
    eventually_listed(home, recipe_id, "paused")
    assert bakemesh("control", "start", recipe_id, home=home).returncode == 0
    assert logs(home, recipe_id, "--follow") == b"after\n"
    late = bakemesh("control", "cancel", recipe_id, home=home)
    assert late.returncode == 1
    assert b"terminal" in late.stderr


def test_only_the_owner_and_operators_may_control(home):
    recipe_id = bake(home, recipe('<cli name="s" command="sleep 300"/>'), "--detach").stdout.decode().strip()
    refused = bakemesh("control", "cancel", recipe_id, "--as", "stranger", home=home)
    assert refused.returncode == 1
    assert b"unauthorised" in refused.stderr
    assert bakemesh("control", "cancel", recipe_id, home=home).returncode == 0
    eventually_listed(home, recipe_id, "cancelled")


ASKS = ('<requestdata name="words" entry="Words"/>', '<cli name="show" command="cat" stdin-entry="Words"/>')


def test_a_request_is_answered_by_a_file_a_folder_and_stdin(home, tmp_path):
    (tmp_path / "words").write_bytes(b"\x00some words")
    (home / "asks.xml").write_bytes(recipe(*ASKS))
    for given in (
        ["--data", str(tmp_path / "words")],
        ["--data", f"words={tmp_path / 'words'}"],
        ["--data-dir", str(tmp_path)],
    ):
        done = bake(home, recipe(*ASKS), "--quiet", *given)
        assert (done.returncode, done.stdout) == (0, b"\x00some words"), given
    done = bakemesh("bake", "asks.xml", "--quiet", "--data", "-", home=home, stdin=b"piped")
    assert (done.returncode, done.stdout) == (0, b"piped")


def test_a_request_is_answered_by_push(home):
    recipe_id = bake(home, recipe(*ASKS), "--detach").stdout.decode().strip()
    wrong = bakemesh("push", recipe_id, "--request", "wrds", "--text", "x", home=home)
    assert wrong.returncode == 2
    assert b"unknown_request" in wrong.stderr
    assert bakemesh("push", recipe_id, "--request", "words", "--text", "pushed", home=home).returncode == 0
    assert logs(home, recipe_id, "--follow") == b"pushed"


def test_params(home):
    done = bake(
        home, recipe('<cli name="e"><arg>echo</arg><arg>${param:day}</arg></cli>'), "--param", "day=a b=c"
    )
    assert done.stdout == b"a b=c\n"


def test_what_does_not_exist(home):
    unknown_node = bake(home, recipe('<cli name="e" command="true"/>'), "--node", "nowhere")
    assert unknown_node.returncode == 5
    assert b"alpha" in unknown_node.stderr
    for args in (["logs", "cli-r-999999"], ["control", "pause", "cli-r-999999"]):
        done = bakemesh(*args, home=home)
        assert done.returncode == 2
        assert b"cli-r-999999" in done.stderr


def test_nodes(home):
    (row,) = [
        row for row in json.loads(bakemesh("nodes", "--json", home=home).stdout) if row["NodeID"] == "alpha"
    ]
    assert row["alive"] is True
    assert b"alpha" in bakemesh("nodes", home=home).stdout


def test_doctor_finds_the_running_node(home):
    found = {
        row["matter"]: row for row in json.loads(bakemesh("doctor", "--json", home=home).stdout)["findings"]
    }
    assert found["bus"]["state"] == found["jetstream"]["state"] == found["builders"]["state"] == "ok"
    assert "bakemesh up" in found["bus"]["found"]
    assert found["builders"]["found"].startswith("alpha")


def test_a_reader_that_goes_away_does_not_end_the_bake(home):
    (home / "long.xml").write_bytes(recipe(code("for n in range(200000): print(n)", "many")))
    command = [*PROGRAM, "bake", "long.xml"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(home), cwd=home
    ) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr is not None
        said = process.stderr.read()
        assert process.wait(TIMEOUT_S) == 0
    assert b"nobody reads" in said
    assert b"Success" in said.splitlines()[-1]


def test_a_bar_on_a_terminal_and_the_output_untouched(home):
    (home / "tty.xml").write_bytes(recipe(code("print('plain ' * 3)", "say")))
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(home)
        command = [*PROGRAM, "bake", "tty.xml"]
        os.execve(command[0], command, environment(home, TERM="xterm", COLUMNS="100"))
    shown = b""
    while True:
        try:
            read = os.read(terminal, 65536)
        except OSError:  # the terminal's other end is closed
            break
        if not read:
            break
        shown += read
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert "━".encode() in shown
    assert b"\x1b[2Kplain plain plain \r\n" in shown or b"\nplain plain plain \r\n" in shown
    assert b"Success" in shown
