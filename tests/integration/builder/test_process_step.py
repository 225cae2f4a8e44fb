"""`cli` and `code` with real processes under the real keeper: output, ends, and all kinds of misbehaviour."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from pathlib import Path

import psutil
import pytest

from bakemesh.builder.steps.base import StopReason
from bakemesh.protocol.builder.codes import Code, StepOutcome
from support.attempts import Attempt, cli, code, keeping, shell
from support.waiting import eventually

PYTHON = sys.executable
FAST = {"data_interval_ms": 0}


def python(source: str, **more: object):
    """A `<cli>` that runs Python source as its own process."""
    return cli(PYTHON, "-I", "-S", "-c", source, **more)


async def ran(folder: Path, step, **more):
    """The attempt and its result."""
    async with keeping() as keeper:
        attempt = Attempt(keeper, folder, step, **more)
        return attempt, await attempt.run()


# -- output


async def test_output_and_exit_code(tmp_path):
    attempt, result = await ran(tmp_path, shell('echo "$CANARY"; echo err >&2'))
    assert result.outcome is StepOutcome.OK
    assert result.exitcode == 0
    assert attempt.data() == f"{attempt.canary}\n".encode()
    assert attempt.data("stderr") == b"err\n"
    assert result.summary.startswith("exit code 0 after ")
    assert "peak memory" in result.summary


async def test_binary_output_is_byte_exact(tmp_path):
    source = "import os\nfor i in range(40): os.write(1, bytes(range(256)) * 31 + b'\\xff\\xfe\\x80')"
    attempt, result = await ran(tmp_path, python(source, max_data_bytes=1000))
    assert result.outcome is StepOutcome.OK
    assert attempt.data() == (bytes(range(256)) * 31 + b"\xff\xfe\x80") * 40
    assert max(len(chunk.data) for chunk in attempt.chunks) == 1000


@pytest.mark.parametrize("text", ["x", "", "no newline at the end", "\n"])
async def test_short_output_needs_no_newline(tmp_path, text):
    attempt, result = await ran(tmp_path, cli("/usr/bin/printf", "%s", text))
    assert result.outcome is StepOutcome.OK
    assert attempt.data() == text.encode()
    assert [chunk.stream for chunk in attempt.chunks] == (["stdout"] if text else [])


async def test_a_silent_step_has_no_chunks(tmp_path):
    attempt, result = await ran(tmp_path, cli("true"))
    assert result.outcome is StepOutcome.OK
    assert attempt.chunks == []


async def test_output_shows_while_the_step_runs(tmp_path):
    async with keeping() as keeper:
        attempt = Attempt(keeper, tmp_path, shell("echo ready; exec sleep 600", **FAST))
        result = await attempt.stopped(StopReason.CANCEL)
    assert result.outcome is StepOutcome.CANCELLED


async def test_merged_stderr_keeps_the_true_order(tmp_path):
    source = "import os\nfor i in range(2000): os.write(1 + i % 2, b'%d\\n' % i)"
    attempt, result = await ran(tmp_path, python(source, merge_stderr=True))
    assert result.outcome is StepOutcome.OK
    assert attempt.data() == b"".join(b"%d\n" % i for i in range(2000))
    assert attempt.data("stderr") == b""


async def test_both_pipes_flooded_at_once(tmp_path):
    source = (
        "import os, threading\n"
        "def flood(fd):\n"
        "    for _ in range(256): os.write(fd, b'%d' % fd * 65536)\n"
        "threads = [threading.Thread(target=flood, args=(fd,)) for fd in (1, 2)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
    )
    attempt, result = await ran(tmp_path, python(source))
    assert result.outcome is StepOutcome.OK
    assert attempt.data() == b"1" * (256 * 65536)
    assert attempt.data("stderr") == b"2" * (256 * 65536)


@pytest.mark.parametrize("mib", [64, 1024])
async def test_much_output_with_flat_memory(tmp_path, mib):
    process = psutil.Process()
    async with keeping() as keeper:
        attempt = Attempt(keeper, tmp_path, cli("head", "-c", str(mib << 20), "/dev/zero"), keep=False)
        before = highest = process.memory_info().rss

        async def watch() -> None:
            nonlocal highest
            while True:
                highest = max(highest, process.memory_info().rss)
                await asyncio.sleep(0.01)

        watching = asyncio.create_task(watch())
        result = await attempt.run()
        watching.cancel()
    assert result.outcome is StepOutcome.OK
    assert attempt.counted == {"stdout": mib << 20}
    assert highest - before < 24 << 20


async def test_a_flood_of_tiny_writes_comes_whole(tmp_path):
    source = "import os\nfor i in range(100_000): os.write(1, b'%08d' % i)"
    attempt, result = await ran(tmp_path, python(source))
    assert result.outcome is StepOutcome.OK
    assert attempt.data() == b"".join(b"%08d" % i for i in range(100_000))


async def test_a_full_store_holds_the_child_back_and_loses_nothing(tmp_path):
    source = (
        "import os\n"
        "for i in range(200):\n"
        "    os.write(1, b'%07d\\n' % i * 1024)\n"
        "    open('written', 'w').write(str(i))\n"
    )
    async with keeping() as keeper:
        attempt = Attempt(keeper, tmp_path, python(source, max_data_bytes=65536, **FAST))
        attempt.gate.clear()
        running = asyncio.create_task(attempt.run())
        written = tmp_path / "written"
        await eventually(written.exists)

        def child_sleeps_in_write() -> bool:
            for child in psutil.Process().children(recursive=True):
                try:
                    wchan = Path(f"/proc/{child.pid}/wchan").read_text()
                except OSError:
                    continue
                if "pipe_write" in wchan:
                    return True
            return False

        await eventually(child_sleeps_in_write)
        assert int(written.read_text() or 0) < 100
        assert not running.done()
        attempt.gate.set()
        result = await running
    assert result.outcome is StepOutcome.OK
    assert attempt.data() == b"".join(b"%07d\n" % i * 1024 for i in range(200))


async def test_stdout_closed_early_does_not_end_the_step(tmp_path):
    attempt, result = await ran(tmp_path, shell("echo out; exec >&-; echo err >&2; exit 4"))
    assert (result.outcome, result.exitcode) == (StepOutcome.FAILED, 4)
    assert attempt.data() == b"out\n"
    assert attempt.data("stderr") == b"err\n"


async def test_what_a_killed_child_wrote_is_still_read(tmp_path):
    source = "import os, signal\nos.write(1, b'x' * 50_000)\nos.kill(os.getpid(), signal.SIGKILL)"
    attempt, result = await ran(tmp_path, python(source))
    assert result.exitcode == -9
    assert attempt.data() == b"x" * 50_000


# -- ends


async def test_exit_code_of_a_failure_and_success_codes(tmp_path):
    _, result = await ran(tmp_path, shell("echo $CANARY; exit 3"))
    assert (result.outcome, result.exitcode, result.code) == (StepOutcome.FAILED, 3, None)
    _, result = await ran(tmp_path, shell("exit 3", success_codes=frozenset({0, 3})))
    assert (result.outcome, result.exitcode) == (StepOutcome.OK, 3)
    _, result = await ran(tmp_path, cli("true", success_codes=frozenset({3})))
    assert result.outcome is StepOutcome.FAILED


async def test_death_by_a_signal(tmp_path):
    _, result = await ran(tmp_path, shell("echo $CANARY; kill -SEGV $$"))
    assert (result.outcome, result.exitcode) == (StepOutcome.FAILED, -signal.SIGSEGV)
    assert "killed by SIGSEGV" in result.summary


async def test_a_missing_program(tmp_path):
    attempt, result = await ran(tmp_path, cli("no-such-program-here"))
    assert (result.outcome, result.exitcode) == (StepOutcome.FAILED, None)
    assert result.summary == "'no-such-program-here' cannot be started: not found in PATH"
    assert attempt.chunks == []
    _, result = await ran(tmp_path, cli("./absent"))
    assert "there is no such file" in result.summary


async def test_files_that_cannot_be_run(tmp_path):
    (tmp_path / "plain").write_text("echo hi\n")
    _, result = await ran(tmp_path, cli("./plain"))
    assert result.outcome is StepOutcome.FAILED
    assert "not an executable file" in result.summary
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    _, result = await ran(tmp_path, cli("./script"))
    assert "interpreter" in result.summary
    _, result = await ran(tmp_path, cli("/"))
    assert "not an executable file" in result.summary


async def test_a_program_named_by_a_reference_is_shown_as_written(tmp_path):
    attempt, result = await ran(tmp_path, cli("${param:tool}", "x"), params={"tool": "absent-secret"})
    assert result.outcome is StepOutcome.FAILED
    assert "${param:tool}" in result.summary
    assert "secret" not in result.summary
    assert attempt.chunks == []


async def test_an_argument_that_is_too_large(tmp_path):
    argument = "${param:big}" * 3
    _, result = await ran(tmp_path, cli("true", argument), params={"big": "x" * 65536})
    assert result.outcome is StepOutcome.FAILED
    assert "128 KiB" in result.summary


async def test_a_reference_that_cannot_be_put_in(tmp_path):
    _, result = await ran(tmp_path, cli("echo", "${param:absent}"))
    assert result.outcome is StepOutcome.FAILED
    assert "absent" in result.summary


async def test_no_descriptor_is_left_open_by_any_end(tmp_path):
    async with keeping() as keeper:
        await Attempt(keeper, tmp_path, cli("true")).run()
        await eventually(lambda: keeper.running == 0)
        before = len(os.listdir("/proc/self/fd"))
        for step in (
            cli("true"),
            cli("absent"),
            shell("cat", stdin="x" * 200_000),
            shell("exit 1", stdin="y"),
        ):
            await Attempt(keeper, tmp_path, step).run()
        # A minder closes its end a moment after its last word.
        await eventually(lambda: len(os.listdir("/proc/self/fd")) <= before)


# -- what a step leaves behind


async def test_a_daemon_that_holds_the_pipe_does_not_hold_the_step_and_is_killed(tmp_path):
    text = "setsid sh -c 'echo $$ > pid; exec sleep 600' & while [ ! -s pid ]; do :; done; echo $CANARY"
    attempt, result = await ran(tmp_path, shell(text))
    assert result.outcome is StepOutcome.OK
    assert attempt.data() == f"{attempt.canary}\n".encode()
    assert "1 left-over process was killed" in result.summary
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


async def test_a_child_that_still_writes_when_the_main_process_ends_is_heard(tmp_path):
    attempt, result = await ran(tmp_path, shell("(sleep 0.05; echo late) & exit 0"))
    assert result.outcome is StepOutcome.OK
    assert attempt.data() == b"late\n"


async def test_a_daemon_that_floods_the_pipe_does_not_hold_the_step(tmp_path):
    attempt, result = await ran(tmp_path, shell("yes & exit 0"))
    assert result.outcome is StepOutcome.OK
    assert "left-over" in result.summary
    assert set(attempt.data().split(b"\n")) <= {b"y", b""}


# -- stops


@pytest.mark.parametrize(
    ("reason", "outcome", "bake_code"),
    [
        (StopReason.CANCEL, StepOutcome.CANCELLED, None),
        (StopReason.SKIP, StepOutcome.CANCELLED, None),
        (StopReason.RETRY, StepOutcome.CANCELLED, None),
        (StopReason.SHUTDOWN, StepOutcome.CANCELLED, None),
        (StopReason.TIMEOUT, StepOutcome.TIMEOUT, Code.TIMEOUT),
    ],
)
async def test_a_stop_kills_the_whole_tree(tmp_path, reason, outcome, bake_code):
    text = (
        "setsid sh -c 'trap \"\" TERM; echo $$ > daemon; while :; do sleep 1; done' & "
        "while [ ! -s daemon ]; do :; done; echo ready; echo $CANARY; sleep 600"
    )
    async with keeping() as keeper:
        attempt = Attempt(keeper, tmp_path, shell(text, **FAST))
        result = await attempt.stopped(reason)
    assert (result.outcome, result.code) == (outcome, bake_code)
    assert result.exitcode == -signal.SIGTERM
    assert result.summary.endswith("no survivors")
    assert not psutil.pid_exists(int((tmp_path / "daemon").read_text()))


async def test_a_process_that_ignores_term_is_killed_after_the_grace(tmp_path):
    async with keeping() as keeper:
        attempt = Attempt(
            keeper, tmp_path, shell("trap '' TERM; echo ready; while :; do sleep 1; done", **FAST)
        )
        result = await attempt.stopped(StopReason.CANCEL)
    assert (result.outcome, result.exitcode) == (StepOutcome.CANCELLED, -signal.SIGKILL)


async def test_a_clean_end_within_the_grace_is_heard(tmp_path):
    text = "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.01; done"
    async with keeping() as keeper:
        attempt = Attempt(keeper, tmp_path, shell(text, **FAST))
        result = await attempt.stopped(StopReason.CANCEL)
    assert (result.outcome, result.exitcode) == (StepOutcome.CANCELLED, 5)
    assert attempt.data() == b"ready\nbye\n"


async def test_a_stop_before_the_begin_starts_nothing(tmp_path):
    async with keeping() as keeper:
        attempt = Attempt(keeper, tmp_path, shell("touch began"))
        attempt.stop.request(StopReason.CANCEL)
        result = await attempt.run()
    assert result.outcome is StepOutcome.CANCELLED
    assert not (tmp_path / "began").exists()


async def test_a_shutdown_does_not_wait_for_a_full_store(tmp_path):
    async with keeping() as keeper:
        attempt = Attempt(keeper, tmp_path, shell("yes > began & echo x; yes", **FAST))
        attempt.gate.clear()
        running = asyncio.create_task(attempt.run())
        await eventually((tmp_path / "began").exists)
        attempt.stop.request(StopReason.SHUTDOWN)
        result = await running
    assert result.outcome is StepOutcome.CANCELLED


async def test_a_shutdown_does_not_wait_for_room_for_a_step_that_has_ended(tmp_path):
    async with keeping() as keeper:
        attempt = Attempt(keeper, tmp_path, shell("echo $$ > pid; echo x", **FAST))
        attempt.gate.clear()
        running = asyncio.create_task(attempt.run())
        await eventually((tmp_path / "pid").exists)
        await eventually(lambda: keeper.running == 0)
        attempt.stop.request(StopReason.SHUTDOWN)
        result = await running
    assert result.exitcode == 0


async def test_a_cancelled_attempt_leaves_no_process(tmp_path):
    async with keeping() as keeper:
        attempt = Attempt(
            keeper, tmp_path, shell("echo $$ > pid; trap '' TERM; echo ready; sleep 600", **FAST)
        )
        running = asyncio.create_task(attempt.run())
        await eventually(lambda: b"ready" in attempt.data())
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await eventually(lambda: keeper.running == 0)
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


async def test_a_sink_that_fails_kills_the_step(tmp_path):
    async with keeping() as keeper:
        attempt = Attempt(keeper, tmp_path, shell("echo $$ > pid; echo x; sleep 600", **FAST))

        async def broken(_chunk: object) -> None:
            raise OSError("the journal is gone")

        attempt.output._sink = broken
        with pytest.raises(OSError, match="journal"):
            await attempt.run()
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("victim", ["keeper", "minder"])
async def test_a_lost_keeper_or_minder_fails_the_step_and_says_so(tmp_path, victim):
    async with keeping() as keeper:
        attempt = Attempt(
            keeper, tmp_path, shell("echo $$ > pid; echo ready; echo $CANARY; sleep 600", **FAST)
        )
        running = asyncio.create_task(attempt.run())
        await eventually(lambda: b"ready" in attempt.data())
        pid = int((tmp_path / "pid").read_text())
        os.kill(keeper.pid if victim == "keeper" else psutil.Process(pid).ppid(), signal.SIGKILL)
        result = await running
        assert (result.outcome, result.lost, result.exitcode) == (StepOutcome.FAILED, True, None)
        assert "was killed" in result.summary
        assert not psutil.pid_exists(pid)
        again = await Attempt(keeper, tmp_path, cli("true")).run()
    assert again.outcome is StepOutcome.OK


# -- stdin


async def test_without_stdin_it_is_empty(tmp_path):
    attempt, result = await ran(tmp_path, cli("cat"))
    assert result.outcome is StepOutcome.OK
    assert attempt.data() == b""


async def test_text_with_references_and_an_entry(tmp_path):
    attempt, _ = await ran(tmp_path, cli("cat", stdin="für ${param:who} $$"), params={"who": "Ada"})
    assert attempt.data() == "für Ada $".encode()
    async with keeping() as keeper:
        attempt = Attempt(keeper, tmp_path, cli("cat", stdin_entry="Words"))
        attempt.entries["Words"] = os.urandom(3 << 20)
        result = await attempt.run()
    assert result.outcome is StepOutcome.OK
    assert attempt.data() == attempt.entries["Words"]


@pytest.mark.parametrize("text", ["true", "exec <&-; sleep 0.05", "head -c 10 >/dev/null", "exec sleep 0.05"])
async def test_a_child_that_does_not_read_its_stdin_is_no_failure(tmp_path, text):
    _, result = await ran(tmp_path, shell(text, stdin="x" * (1 << 20)))
    assert (result.outcome, result.exitcode) == (StepOutcome.OK, 0)


# -- environment and folder


async def test_the_environment_is_the_chosen_list_and_the_recipes(tmp_path, monkeypatch):
    monkeypatch.setenv("BUILDERS_OWN_SECRET", "1")
    step = cli("env", env=(("WORD", "${param:word} $$"), ("EMPTY", "")))
    attempt, result = await ran(tmp_path, step, params={"word": "a b"})
    names = dict(line.split("=", 1) for line in attempt.data().decode().splitlines())
    assert result.outcome is StepOutcome.OK
    assert names["WORD"] == "a b $"
    assert names["EMPTY"] == ""
    assert names["PYTHONUNBUFFERED"] == "1"
    assert "BUILDERS_OWN_SECRET" not in names


async def test_the_recipe_may_set_unbuffered_itself(tmp_path):
    attempt, _ = await ran(tmp_path, shell("echo [$PYTHONUNBUFFERED]", env=(("PYTHONUNBUFFERED", ""),)))
    assert attempt.data() == b"[]\n"


async def test_the_path_of_the_recipe_finds_the_program(tmp_path):
    tool = tmp_path / "bin" / "my-tool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho found\n")
    tool.chmod(0o755)
    attempt, result = await ran(tmp_path, cli("my-tool", env=(("PATH", str(tool.parent)),)))
    assert result.outcome is StepOutcome.OK
    assert attempt.data() == b"found\n"


async def test_folders(tmp_path):
    folder = tmp_path / "bake"
    folder.mkdir()
    attempt, _ = await ran(folder, cli("pwd"))
    assert attempt.data().decode().strip() == str(folder)
    attempt, _ = await ran(folder, cli("pwd", cwd="a/b"))
    assert attempt.data().decode().strip() == str(folder / "a" / "b")
    attempt, _ = await ran(folder, cli("pwd", cwd=str(tmp_path)))
    assert attempt.data().decode().strip() == str(tmp_path)
    for cwd, reason in (("../x", "must be absolute"), (str(tmp_path / "absent"), "does not exist")):
        attempt, result = await ran(folder, cli("pwd", cwd=cwd))
        assert result.outcome is StepOutcome.FAILED
        assert reason in result.summary
        assert attempt.chunks == []


async def test_arguments_arrive_as_they_are(tmp_path):
    words = ["a b", "$HOME", "*", "'", '"', "", "ü", "\n", "${param:v}"]
    argv = [word if word.startswith("${") else word.replace("$", "$$") for word in words]
    source = "import sys; print(repr(sys.argv[1:]))"
    attempt, _ = await ran(tmp_path, cli(PYTHON, "-c", source, *argv), params={"v": "x; $(id) ${node}"})
    assert attempt.data().decode() == repr([*words[:-1], "x; $(id) ${node}"]) + "\n"


# -- progress


async def test_percents_on_lines_become_progress_and_nothing_else(tmp_path):
    text = "echo $CANARY 10%; echo 250%; printf '%s 30%%\\r' $CANARY; echo ready; sleep 600"
    async with keeping() as keeper:
        attempt = Attempt(keeper, tmp_path, shell(text, progress=r"(\d+)%", **FAST))
        running = asyncio.create_task(attempt.run())
        await eventually(lambda: 30 in attempt.percents)
        attempt.stop.request(StopReason.CANCEL)
        await running
    assert set(attempt.percents) <= {10, 30}


async def test_an_expression_that_runs_away_does_not_stop_the_step(tmp_path):
    text = "printf 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\\n'; sleep 0.3; echo done"
    attempt, result = await ran(tmp_path, shell(text, progress=r"((?:a+)+)$", **FAST))
    assert result.outcome is StepOutcome.OK
    assert attempt.data().endswith(b"done\n")
    assert "progress expression" in result.summary


# -- code


async def test_a_python_snippet_is_a_script_in_its_folder(tmp_path):
    (tmp_path / "mine.py").write_text("value = 42\n")
    source = (
        '"""Doc."""\n'
        "from __future__ import annotations\n"
        "import json, mine, sys\n"  # the step is named json: it must not shadow the module
        "assert __name__ == '__main__' and __doc__ == 'Doc.' and sys.argv == [__file__]\n"
        "def recursive(n): return n and recursive(n - 1)\n"
        'print(json.dumps(mine.value), recursive(3), open(__file__).read().startswith(\'"""Doc\'))\n'
    )
    attempt, result = await ran(tmp_path, code(source, name="json"))
    assert result.outcome is StepOutcome.OK, attempt.data("stderr")
    assert attempt.data() == b"42 0 True\n"


async def test_a_failing_snippet_shows_its_own_lines_alone(tmp_path):
    source = "import os\ndef inner():\n    raise ValueError(os.environ['CANARY'])\ninner()\n"
    attempt, result = await ran(tmp_path, code(source))
    trace = attempt.data("stderr").decode()
    assert (result.outcome, result.exitcode) == (StepOutcome.FAILED, 1)
    assert trace.count("File ") == 2
    assert "<string>" not in trace
    assert "line 3, in inner" in trace
    assert f"ValueError: {attempt.canary}" in trace


async def test_a_snippet_with_a_syntax_error(tmp_path):
    attempt, result = await ran(tmp_path, code("a = = 1\n"))
    assert result.exitcode == 1
    assert "SyntaxError" in attempt.data("stderr").decode()
    assert "<string>" not in attempt.data("stderr").decode()


async def test_a_snippet_may_exit_print_unbuffered_and_use_processes(tmp_path):
    attempt, result = await ran(tmp_path, code("import sys; print('x'); sys.exit(7)"))
    assert result.exitcode == 7
    source = (
        "import multiprocessing as mp\n"
        "def double(n): return n * 2\n"
        "if __name__ == '__main__':\n"
        "    with mp.get_context('spawn').Pool(1) as pool: print(pool.map(double, [1, 2]))\n"
    )
    attempt, result = await ran(tmp_path, code(source))
    assert result.outcome is StepOutcome.OK, attempt.data("stderr")
    assert attempt.data() == b"[2, 4]\n"


async def test_a_large_snippet_with_any_text(tmp_path):
    source = f"data = {'ü' * 300_000!r}\nprint(len(data), '$HOME', '${{param:x}}')\n"
    attempt, result = await ran(tmp_path, code(source))
    assert result.outcome is StepOutcome.OK
    assert attempt.data() == b"300000 $HOME ${param:x}\n"


async def test_a_shell_snippet(tmp_path):
    attempt, result = await ran(tmp_path, code('read x\necho "$x" "${0##*/}"\nexit 2\n', "sh", stdin="in\n"))
    assert result.exitcode == 2
    assert attempt.data() == b"in 0-step.sh\n"


async def test_the_snippets_file_is_private_and_hidden(tmp_path):
    attempt, result = await ran(tmp_path, code("print(__file__)"))
    path = Path(attempt.data().decode().strip())
    assert result.outcome is StepOutcome.OK
    assert path.parent.parent == tmp_path
    assert path.parent.name.startswith(".")
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    again, result = await ran(tmp_path, code("print('again')"))
    assert again.data() == b"again\n"
