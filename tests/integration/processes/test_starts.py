"""Real programs started through a real keeper: what they get, how their end is told, why they are refused."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import signal
import sys
from pathlib import Path

import pytest

from bakemesh.processes import Keeper, KeeperLost, ProcessSpec, Refusal, SpawnRefused
from bakemesh.processes.link import WINDOW
from support.processes import PATH, Pipe, fd_count, new_marker, output, read_until, zombies
from support.waiting import eventually

C_LIBRARY = {32, 33}  # its own, which its posix_spawn leaves ignored and each program sets anew
PYTHON = [sys.executable, "-I", "-S", "-c"]


async def ignored_signals(keeper: Keeper) -> set[int]:
    """What a program finds ignored at its start."""
    seen = await output(keeper, ["sh", "-c", "grep SigIgn /proc/self/status"])
    mask = int(seen.split()[1], 16)
    return {number for number in range(1, 65) if mask >> (number - 1) & 1} - C_LIBRARY


@pytest.mark.parametrize(
    ("script", "code", "number"),
    [("exit 0", 0, None), ("exit 7", 7, None), ("exit 255", 255, None)]
    + [(f"kill -{number} $$", None, number) for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1)],
)
async def test_the_end_is_told(script: str, code: int | None, number: int | None) -> None:
    async with await Keeper.start(new_marker()) as keeper:
        minded = await keeper.spawn(ProcessSpec(["sh", "-c", script], PATH))
        end = await minded.exited()
        assert (end.code, end.signal, end.lost) == (code, number, False)
        swept = await minded.sweep()
        assert (swept.killed, swept.survivors) == (0, ())
        await eventually(lambda: keeper.running == 0)


async def test_asking_again_gives_the_same_answer() -> None:
    async with await Keeper.start(new_marker()) as keeper:
        minded = await keeper.spawn(ProcessSpec(["sh", "-c", "exit 3"], PATH))
        ends = await asyncio.gather(minded.exited(), minded.exited(), minded.exited())
        assert {end.code for end in ends} == {3}
        assert await minded.sweep() == await minded.sweep() == await minded.kill(1)


async def test_stdio_goes_where_it_was_sent(tmp_path: Path) -> None:
    data = os.urandom(1_000_000)
    (tmp_path / "in").write_bytes(data)
    async with await Keeper.start(new_marker()) as keeper:
        with Pipe() as out, Pipe() as err, open(tmp_path / "in", "rb") as given:
            spec = ProcessSpec(["sh", "-c", "cat; echo to-err >&2"], PATH)
            minded = await keeper.spawn(spec, given.fileno(), out.writing, err.writing)
            out.given()
            err.given()
            assert await read_until(out.reading) == data
            assert await read_until(err.reading) == b"to-err\n"
            assert (await minded.exited()).code == 0


async def test_one_pipe_for_both_keeps_their_order() -> None:
    async with await Keeper.start(new_marker()) as keeper:
        script = "for i in 1 2 3 4; do echo o$i; echo e$i >&2; done"
        assert (await output(keeper, ["sh", "-c", script], stderr=True)).split() == (
            b"o1 e1 o2 e2 o3 e3 o4 e4".split()
        )


async def test_a_program_gets_its_environment_and_nothing_of_ours() -> None:
    token = new_marker()
    async with await Keeper.start(token) as keeper:
        seen = await output(keeper, ["/usr/bin/env"], {"ONE": "1", "TWO": "zwei mit Blank"})
    assert set(seen.decode().splitlines()) == {"ONE=1", "TWO=zwei mit Blank", f"BAKEMESH_STEP_OF={token}"}


async def test_a_program_gets_a_session_null_stdin_default_signals_and_no_descriptor_of_ours() -> None:
    leaked = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leaked, True)
    script = """
import os
print(os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid(), os.readlink("/proc/self/fd/0"))
print(sorted(map(int, os.listdir("/proc/self/fd")))[:-1])
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(int(status["SigBlk"], 16))
"""
    try:
        async with await Keeper.start(new_marker()) as keeper:
            seen = (await output(keeper, [*PYTHON, script])).decode().splitlines()
            # The Python above ignores two signals by itself; a shell shows what it was given.
            ignored = await ignored_signals(keeper)
    finally:
        os.close(leaked)
    assert seen == ["True True /dev/null", "[0, 1, 2]", "0"]
    assert ignored == set()


async def test_ignored_signals_of_this_process_are_not_handed_down() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN), signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        keeper = await Keeper.start(new_marker())
    finally:
        signal.signal(signal.SIGCHLD, before[0])
        signal.signal(signal.SIGHUP, before[1])
    async with keeper:
        assert await ignored_signals(keeper) == set()
        minded = await keeper.spawn(ProcessSpec(["sh", "-c", "exit 7"], PATH))
        assert (await minded.exited()).code == 7


async def test_steps_go_first_when_memory_runs_out() -> None:
    own = int(Path("/proc/self/oom_score_adj").read_text())
    async with await Keeper.start(new_marker()) as keeper:
        step = int(await output(keeper, ["cat", "/proc/self/oom_score_adj"]))
        keepers = int(Path(f"/proc/{keeper.pid}/oom_score_adj").read_text())
    assert step == min(1000, own + 503)
    assert keepers == own


@pytest.mark.parametrize("wanted", [True, False])
async def test_new_privileges_are_kept_from_steps_where_wanted(wanted: bool) -> None:
    async with await Keeper.start(new_marker(), no_new_privileges=wanted) as keeper:
        seen = await output(keeper, ["grep", "NoNewPrivs", "/proc/self/status"])
    assert int(seen.split()[1]) == int(wanted)


async def test_the_folder_is_where_it_starts(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\npwd\n")
    (tmp_path / "tool").chmod(0o755)
    async with await Keeper.start(new_marker()) as keeper:
        assert await output(keeper, ["pwd"], cwd=tmp_path) == f"{tmp_path}\n".encode()
        assert await output(keeper, ["./tool"], cwd=str(tmp_path)) == f"{tmp_path}\n".encode()
        assert await output(keeper, ["pwd"]) == f"{os.getcwd()}\n".encode()


async def test_the_program_is_looked_for_in_the_path_it_is_given(tmp_path: Path) -> None:
    denied, allowed = tmp_path / "denied", tmp_path / "allowed"
    for folder, mode in ((denied, 0o644), (allowed, 0o755)):
        folder.mkdir()
        (folder / "only-here").write_text("#!/bin/sh\necho found\n")
        (folder / "only-here").chmod(mode)
    async with await Keeper.start(new_marker()) as keeper:
        path = {"PATH": f"/nowhere:{denied}:{allowed}"}
        assert await output(keeper, ["only-here"], path) == b"found\n"
        assert await output(keeper, ["echo", "default"], {}) == b"default\n"


async def test_what_cannot_be_started_is_refused_with_its_cause(tmp_path: Path) -> None:
    plain, script, nonsense = tmp_path / "plain", tmp_path / "script", tmp_path / "nonsense"
    plain.write_text("#!/bin/sh\n")
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    nonsense.write_bytes(b"\x01\x02\x03 neither binary nor script")
    nonsense.chmod(0o755)
    gone, missing, denied = Refusal.BAD_CWD, Refusal.PROGRAM_MISSING, Refusal.NOT_EXECUTABLE
    cases: list[tuple[list[str], str | None, Refusal, int, str]] = [
        (["/no/such/program"], None, missing, errno.ENOENT, "no such file"),
        (["no-such-program"], None, missing, errno.ENOENT, "not found in PATH (/usr/bin:/bin)"),
        (["/etc/passwd/x"], None, missing, errno.ENOTDIR, "no such file"),
        ([str(plain)], None, denied, errno.EACCES, "not an executable file"),
        ([str(tmp_path)], None, denied, errno.EACCES, "not an executable file"),
        ([str(script)], None, Refusal.INTERPRETER_MISSING, errno.ENOENT, "interpreter"),
        ([str(nonsense)], None, Refusal.BAD_FORMAT, errno.ENOEXEC, "'#!'"),
        (["true"], "/no/such/folder", gone, errno.ENOENT, "'/no/such/folder': No such file"),
        (["true"], str(plain), gone, errno.ENOTDIR, "Not a directory"),
        (["true", "x" * 131_072], None, Refusal.TOO_LARGE, errno.E2BIG, "argument 1 has 131,072 bytes"),
        (
            ["true"] + ["x" * 100_000] * 100,
            None,
            Refusal.TOO_LARGE,
            errno.E2BIG,
            "more than the system takes",
        ),
        ([], None, Refusal.BAD_ARGUMENT, errno.EINVAL, "no program"),
        ([""], None, Refusal.BAD_ARGUMENT, errno.EINVAL, "no program"),
        (["true", "a\0b"], None, Refusal.BAD_ARGUMENT, errno.EINVAL, "NUL"),
    ]
    async with await Keeper.start(new_marker()) as keeper:
        for argv, cwd, what, number, words in cases:
            with pytest.raises(SpawnRefused) as refused:
                await keeper.spawn(ProcessSpec(argv, PATH, cwd))
            assert (refused.value.what, refused.value.errno) == (what, number), argv[:1]
            assert words in str(refused.value)
        await eventually(lambda: keeper.running == 0)
        await eventually(lambda: not zombies(keeper.pid))


async def test_a_descriptor_that_is_not_open_is_refused() -> None:
    async with await Keeper.start(new_marker()) as keeper:
        with pytest.raises(SpawnRefused) as refused:
            await keeper.spawn(ProcessSpec(["true"], PATH), stdout=999_999)
        assert refused.value.errno == errno.EBADF
        assert await output(keeper, ["echo", "next"]) == b"next\n"


async def test_arguments_larger_than_a_message_arrive_whole() -> None:
    arguments = [f"{n}-" + "x" * 100_000 for n in range(15)]
    script = "import hashlib, sys; print(hashlib.sha256(chr(10).join(sys.argv[1:]).encode()).hexdigest())"
    async with await Keeper.start(new_marker()) as keeper:
        seen = await output(keeper, [*PYTHON, script, *arguments])
        env = {f"K{n}": "y" * 50_000 for n in range(20)}
        assert len(await output(keeper, ["env"], {**PATH, **env})) > 1_000_000
    assert seen.decode().strip() == hashlib.sha256("\n".join(arguments).encode()).hexdigest()


async def test_large_arguments_and_every_descriptor_come_together() -> None:
    async with await Keeper.start(new_marker()) as keeper:
        with Pipe() as given, Pipe() as out, Pipe() as err:
            script = 'read line; echo "$line" "$#"; echo err >&2'
            argv = ["sh", "-c", script, *["x" * 1000] * 200]
            minded = await keeper.spawn(ProcessSpec(argv, PATH), given.reading, out.writing, err.writing)
            out.given()
            err.given()
            os.write(given.writing, b"in\n")
            assert await read_until(out.reading) == b"in 199\n"
            assert await read_until(err.reading) == b"err\n"
            assert (await minded.exited()).code == 0


async def test_many_at_once_all_end_with_their_own_code() -> None:
    async with await Keeper.start(new_marker()) as keeper:

        async def one(code: int) -> int | None:
            minded = await keeper.spawn(ProcessSpec(["sh", "-c", f"exit {code}"], PATH))
            end = await minded.exited()
            assert (await minded.sweep()).survivors == ()
            return end.code

        assert await asyncio.gather(*(one(code) for code in range(64))) == list(range(64))


async def test_more_starts_than_the_keeper_takes_at_a_time_wait_for_their_turn() -> None:
    async with await Keeper.start(new_marker()) as keeper:
        os.kill(keeper.pid, signal.SIGSTOP)
        starts = [
            asyncio.create_task(keeper.spawn(ProcessSpec(["sh", "-c", f"exit {n}"], PATH)))
            for n in range(WINDOW * 4)
        ]
        await asyncio.sleep(0)
        assert not any(start.done() for start in starts)
        os.kill(keeper.pid, signal.SIGCONT)
        ends = [await (await start).exited() for start in starts]
        assert [end.code for end in ends] == list(range(WINDOW * 4))


async def test_a_thousand_starts_leave_no_descriptor_and_no_zombie() -> None:
    async with await Keeper.start(new_marker()) as keeper:

        async def one() -> None:
            with Pipe() as pipe:
                minded = await keeper.spawn(ProcessSpec(["/bin/true"], {}), stdout=pipe.writing)
                pipe.given()
                assert (await minded.exited()).code == 0
                await minded.sweep()
                assert await read_until(pipe.reading) == b""

        async def many(count: int) -> None:
            for _ in range(count):
                await one()

        async def settled() -> None:
            await eventually(lambda: keeper.running == 0 and not zombies(keeper.pid))

        await many(1)
        await settled()
        before = fd_count(), fd_count(keeper.pid)
        dead = set(zombies(os.getpid()))  # of other tests
        await asyncio.gather(*(many(125) for _ in range(8)))
        with pytest.raises(SpawnRefused):
            await keeper.spawn(ProcessSpec(["/no/such"], {}))
        await settled()
        assert (fd_count(), fd_count(keeper.pid)) == before
        assert set(zombies(os.getpid())) <= dead
        assert len(asyncio.all_tasks()) == 2  # this test and the keeper's watcher


async def test_closing_leaves_no_descriptor() -> None:
    before = fd_count()
    for _ in range(3):
        keeper = await Keeper.start(new_marker())
        await keeper.spawn(ProcessSpec(["sleep", "30"], PATH))
        await keeper.close()
        await keeper.close()
        with pytest.raises(KeeperLost, match="closed"):
            await keeper.spawn(ProcessSpec(["true"], PATH))
    assert fd_count() == before


def pythons() -> list[Path]:
    """Every Python on this machine that a node may run on: the tests' own, and pyenv's newer ones."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    newer = (
        path for minor in range(12, 20) for path in sorted(root.glob(f"versions/3.{minor}.*/bin/python"))[-1:]
    )
    return [Path(sys.executable), *newer]


@pytest.mark.parametrize("python", pythons(), ids=str)
async def test_the_keeper_runs_on_every_python(python: Path) -> None:
    async with await Keeper.start(new_marker(), python=str(python)) as keeper:
        assert python.resolve() == Path(f"/proc/{keeper.pid}/exe").resolve()
        assert await output(keeper, ["echo", "hello"]) == b"hello\n"
        minded = await keeper.spawn(ProcessSpec(["sh", "-c", "sleep 30 & exit 4"], PATH))
        assert (await minded.exited()).code == 4
        assert (await minded.sweep()).killed == 1
