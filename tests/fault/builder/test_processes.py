"""Programs that behave badly, under a real Builder: how the step ends, what Status says, what is left."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Sequence

import pytest

from bakemesh.protocol.builder.messages import BakeData, BakeFailed, BakeStatus, BakeSuccess
from bakemesh.supervisor import Bake
from support.house import (
    Gate,
    House,
    check_story,
    chunks_of,
    house_fixture,
    output_of,
    python,
    said,
    tale,
)
from support.processes import alive

NEVER = 'status-interval-ms="0"'
pytestmark = pytest.mark.asyncio(loop_scope="module")
house = house_fixture("--kill-grace-ms", "300")


def ends(story: Sequence[BakeStatus]) -> list[BakeStatus]:
    """The Status with which each attempt ended."""
    return [s for s in story if s.kind == "step" and s.outcome]


async def failed(house: House, bake: Bake) -> tuple[BakeStatus, BakeFailed]:
    """How the failing step and the bake ended."""
    story = await house.story(bake)
    end = story[-1]
    assert isinstance(end, BakeFailed), end
    step = ends(story)[-1]
    assert end.stepindex == step.stepindex
    return step, end


# -- programs that do not start


async def test_a_program_that_does_not_start(house: House) -> None:
    """Missing, not executable, a folder, no binary, a script without its interpreter: said in plain words."""
    plain, broken, text = (house.folder / name for name in ("plain", "broken", "text"))
    plain.write_text("#!/bin/sh\necho never\n")
    broken.write_text("#!/no/such/interpreter\n")
    text.write_bytes(b"\x00\x01neither")
    for path in (broken, text):
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    cases = {
        "no-such-program-anywhere": "not found in PATH",
        "/no/such/file": "there is no such file",
        str(plain): "not an executable file",
        str(house.folder): "not an executable file",
        str(broken): "interpreter",
        str(text): "neither a binary",
    }
    xml = "".join(f'<cli on-failure="continue"><arg>{program}</arg></cli>' for program in cases)
    bake = await house.bake(f'<recipe name="none">{xml}<cli command="echo {house.canary()}"/></recipe>')
    story = await house.story(bake)
    end = story[-1]
    assert isinstance(end, BakeSuccess)
    assert end.failedsteps == list(range(len(cases)))
    for status, (program, says) in zip(ends(story), cases.items(), strict=False):
        assert (status.outcome, status.exitcode) == ("failed", None), "no process, no exit code"
        assert says in status.summary, status.summary
        assert program in status.summary


async def test_a_folder_for_the_bake_that_cannot_be_made(house: House) -> None:
    folder = house.node.state / "bakes"
    aside = folder.rename(folder.with_name("aside"))
    folder.touch()
    try:
        step, end = await failed(house, await house.bake('<recipe name="n"><cli command="true"/></recipe>'))
    finally:
        folder.unlink()
        aside.rename(folder)
    assert end.code == "step_failed"
    assert "Not a directory" in step.summary


async def test_a_working_folder_that_is_not_there(house: House) -> None:
    bake = await house.bake('<recipe name="where"><cli command="true" cwd="/no/such/folder"/></recipe>')
    step, end = await failed(house, bake)
    assert "/no/such/folder" in step.summary
    assert end.code == "step_failed"


# -- ends


async def test_exit_codes_and_signals(house: House) -> None:
    step = 'on-failure="continue"'
    bake = await house.bake(
        f'<recipe name="codes"><cli {step} shell="yes" command="echo {house.canary()}; exit 7"/>'
        f'<cli {step} shell="yes" command="kill -SEGV $$$$"/>'
        f'<cli {step} shell="yes" command="kill -KILL $$$$"/>'
        f'<cli {step} shell="yes" success-codes="3,4" command="exit 4"/>'
        "<cli><arg>printf</arg><arg>%s %s</arg><arg>${step:cli-0.exitcode} ${step:cli-1.exitcode}</arg>"
        "<arg>${step:cli-3.exitcode}</arg></cli></recipe>"
    )
    story = await house.story(bake)
    assert [(s.outcome, s.exitcode) for s in ends(story)] == [
        ("failed", 7),
        ("failed", -11),
        ("failed", -9),
        ("ok", 4),
        ("ok", 0),
    ]
    assert ["SIGSEGV" in s.summary for s in ends(story)] == [False, True, False, False, False]
    assert all("peak memory" in s.summary for s in ends(story))
    assert (await output_of(bake))[4, "stdout"] == b"7 -11 4"


async def test_a_failure_under_fail_ends_the_bake_and_nothing_runs_after_it(house: House) -> None:
    mark = house.folder / "never"
    bake = await house.bake(
        f'<recipe name="stops"><cli shell="yes" command="echo {house.canary()}; exit 9"/>'
        f"<cli><arg>touch</arg><arg>{mark}</arg></cli></recipe>"
    )
    step, end = await failed(house, bake)
    assert (end.code, end.stepindex, end.outcome, end.final) == ("step_failed", 0, "failed", True)
    assert "exit code 9" in end.summary
    assert step.exitcode == 9
    assert end.lastseq == step.lastseq == 1
    assert not mark.exists()


async def test_stdout_closed_early_ends_no_step(house: House) -> None:
    gate, secret = house.gate(), house.canary()
    bake = await house.bake(
        f'<recipe name="closes"><cli shell="yes" data-interval-ms="0"'
        f' command="echo {secret}; exec &gt;&amp;- 2&gt;&amp;-; {gate.wait}; exit 5"/></recipe>'
    )
    async for chunk in bake.data():
        if chunk.finalchunk:  # the pipe is closed, its last chunk out; the step runs on
            break
    assert bake.terminal is None
    gate.open()
    step, _ = await failed(house, bake)
    assert step.exitcode == 5
    assert await output_of(bake) == {(0, "stdout"): f"{secret}\n".encode()}


async def test_a_daemon_that_is_left_over_is_killed_and_counted(house: House) -> None:
    """A grandchild that called setsid, closed nothing and never ends holds neither the step nor the node."""
    mark, secret = f"daemon-{house.canary()}", house.canary()
    code = (
        "import os, sys, time\n"
        "if os.fork() == 0:\n    os.setsid()\n"
        "    if os.fork() == 0:\n        time.sleep(600)\n    os._exit(0)\n"
        "os.wait()\nprint(sys.argv[1])"
    )
    bake = await house.bake(
        f'<recipe name="daemon"><cli>{python(code)}<arg>{secret}</arg><arg>{mark}</arg></cli></recipe>'
    )
    story = await house.story(bake)
    (step,) = ends(story)
    assert step.outcome == "ok"
    assert "1 left-over process was killed" in step.summary
    assert not alive(mark)
    assert await output_of(bake) == {(0, "stdout"): f"{secret}\n".encode()}


async def test_a_timeout_kills_what_ignores_term(house: House) -> None:
    mark, secret = f"stubborn-{house.canary()}", house.canary()
    code = (
        "import os, signal, sys, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if os.fork() == 0:\n    os.setsid()\n"
        "print(sys.argv[1], flush=True)\nwhile True: time.sleep(1)"
    )
    bake = await house.bake(
        f'<recipe name="late"><cli timeout-ms="400" data-interval-ms="0">{python(code)}'
        f"<arg>{secret}</arg><arg>{mark}</arg></cli></recipe>"
    )
    step, end = await failed(house, bake)
    assert (step.outcome, step.exitcode) == ("timeout", -9)
    assert "no survivors" in step.summary
    assert (end.code, end.stepindex) == ("timeout", 0)
    assert not alive(mark)
    assert secret.encode() in b"".join(chunk.data for chunk in await chunks_of(bake))


async def test_the_bakes_own_timeout(house: House) -> None:
    running = await house.bake(
        '<recipe name="whole" timeout-ms="500"><cli command="true"/>'
        f"{house.held_at(house.gate(), 'slow')}</recipe>"
    )
    resting = await house.bake(
        '<recipe name="rests" timeout-ms="300" on-failure="hold"><cli command="false"/></recipe>'
    )
    step, end = await failed(house, running)
    assert (step.outcome, end.code, end.stepindex) == ("timeout", "timeout", 1)
    story = await house.story(resting)
    assert tale(story)[-2:] == ["Paused", "Failed"]
    assert isinstance(story[-1], BakeFailed)
    assert story[-1].code == "timeout"


# -- retries


async def test_retries_with_attempts_of_their_own(house: House) -> None:
    tally, secret = house.folder / "tally", house.canary()
    xml = (
        '<cli name="flaky" shell="yes" retryable="yes" retries="3" retry-delay-ms="10"'
        f" command=\"echo x &gt;&gt; '{tally}'; echo {secret}; [ $$(wc -l &lt; '{tally}') -ge 3 ]\"/>"
    )
    bake = await house.bake(f'<recipe name="again">{xml}<cli command="true"/></recipe>')
    story = await house.story(bake)
    assert [(s.stepindex, s.attempt, s.outcome) for s in story if s.kind == "step"] == [
        (0, 1, None),
        (0, 1, "failed"),
        (0, 2, None),
        (0, 2, "failed"),
        (0, 3, None),
        (0, 3, "ok"),
        (1, 1, None),
        (1, 1, "ok"),
    ]
    assert isinstance(story[-1], BakeSuccess)
    assert story[-1].failedsteps == []
    chunks = await chunks_of(bake)
    assert [(c.seq, c.attempt, c.data, c.finalchunk) for c in chunks] == [
        (number, number, f"{secret}\n".encode(), True) for number in (1, 2, 3)
    ]


async def test_retries_that_are_used_up(house: House) -> None:
    bake = await house.bake(
        '<recipe name="worn"><cli command="false" retryable="yes" retries="2" retry-delay-ms="1"/></recipe>'
    )
    step, end = await failed(house, bake)
    assert (step.attempt, end.code) == (3, "step_failed")


async def test_a_retry_that_waits_takes_controls(house: House) -> None:
    """While the delay runs there is a cursor and no process: Cancel, SkipStep and RetryStep act at once."""
    xml = (
        '<recipe name="waits"><cli command="false" retryable="yes" retries="5" retry-delay-ms="3600000"/>'
        '<cli command="true"/></recipe>'
    )
    skipped, retried, cancelled = [await house.bake(xml) for _ in range(3)]
    for bake in (skipped, retried, cancelled):
        await said(bake, lambda s: s.outcome == "failed")
    assert (await skipped.skip_step()).accepted
    assert tale(await house.story(skipped))[3:] == [
        "ack SkipStep skipped",
        "0 skipped",
        "1 begins",
        "1 ok",
        "Success",
    ]
    assert (await retried.retry_step()).accepted
    await said(retried, lambda s: s.outcome == "failed" and s.attempt == 2)
    for bake in (retried, cancelled):
        assert (await bake.cancel()).accepted
        assert tale(await house.story(bake))[-2:] == ["ack Cancel cancelled", "Cancelled"]


async def test_failures_that_the_recipe_goes_on_over(house: House) -> None:
    secret = house.canary()
    bake = await house.bake(
        '<recipe name="goes"><cli command="false" on-failure="continue"/><cli command="true"/>'
        f'<cli shell="yes" command="echo {secret}; exit 2" on-failure="continue"/>'
        '<cli timeout-ms="50" command="sleep 60" on-failure="continue"/><cli command="true"/></recipe>'
    )
    story = await house.story(bake)
    assert [s.outcome for s in ends(story)] == ["failed", "ok", "failed", "timeout", "ok"]
    end = story[-1]
    assert isinstance(end, BakeSuccess)
    assert (end.failedsteps, end.outcome, end.pct) == ([0, 2, 3], "success", 100)
    assert "2 of 5 steps done" in end.summary


# -- output


async def test_both_pipes_flooded(house: House) -> None:
    """16 MiB on each at once: whole, in the order of each stream, with one seq over both."""
    size = 16 * 2**20
    code = (
        "import os, threading\n"
        "def flood(fd, byte):\n"
        f"    for _ in range({size} // 65536): os.write(fd, byte * 65536)\n"
        "both = [threading.Thread(target=flood, args=a) for a in ((1, b'o'), (2, b'e'))]\n"
        "[t.start() for t in both]\n[t.join() for t in both]"
    )
    bake = await house.bake(f'<recipe name="flood"><cli>{python(code)}</cli></recipe>')
    sizes = {"stdout": 0, "stderr": 0}
    last = 0
    async for chunk in bake.data():
        assert chunk.seq == last + 1
        last = chunk.seq
        assert not chunk.data.strip(b"o" if chunk.stream == "stdout" else b"e")
        assert len(chunk.data) <= 262144
        assert chunk.partial == (len(chunk.data) == 262144)
        sizes[chunk.stream] += len(chunk.data)
    assert sizes == {"stdout": size, "stderr": size}
    assert (await bake.outcome()).lastseq == last


async def test_merged_pipes_keep_the_true_order(house: House) -> None:
    secret = house.canary()
    code = "import os, sys\nfor i in range(2000): os.write(1 + i % 2, f'{i} {sys.argv[1]}\\n'.encode())"
    bake = await house.bake(
        f'<recipe name="merged"><cli stderr="merge">{python(code)}<arg>{secret}</arg></cli></recipe>'
    )
    expected = "".join(f"{i} {secret}\n" for i in range(2000)).encode()
    assert await output_of(bake) == {(0, "stdout"): expected}


async def test_data_cadence(house: House) -> None:
    """0: each piece at once. An hour: nothing before the end, but for a buffer that is full."""
    first, second = house.gate(), house.gate()
    piece = house.canary()

    def talks(interval: int, size: int) -> str:
        return (
            f'<recipe name="paced" data-interval-ms="{interval}" max-data-bytes="{size}"><cli shell="yes"'
            f' command="echo {piece}; {first.wait}; echo {piece}; {second.wait}; echo {piece}"/></recipe>'
        )

    line = f"{piece}\n".encode()
    at_once, full, lazy = [
        await house.bake(talks(*how)) for how in ((0, 4096), (3_600_000, len(line)), (3_600_000, 4096))
    ]
    readers = {bake.recipe_id: bake.data() for bake in (at_once, full)}
    for number, gate in enumerate((first, second, None), 1):
        for reader in readers.values():
            chunk = await anext(reader)
            assert (chunk.seq, chunk.data) == (number, line), "while the step runs"
        if gate:
            assert [s for s in house.tap.statuses if s.recipe_id == lazy.recipe_id and s.outcome] == []
            gate.open()
    assert [(c.data, c.partial, c.finalchunk) for c in await chunks_of(at_once)][:2] == [
        (line, False, False)
    ] * 2
    assert [(c.data, c.partial, c.finalchunk) for c in await chunks_of(full)] == [
        *[(line, True, False)] * 3,
        (b"", False, True),
    ]
    assert [(c.data, c.partial, c.finalchunk) for c in await chunks_of(lazy)] == [(line * 3, False, True)]


async def test_a_buffer_goes_at_its_cadence_though_nothing_follows(house: House) -> None:
    gate, secret = house.gate(), house.canary()
    bake = await house.bake(
        '<recipe name="beat" data-interval-ms="100">'
        f'<cli shell="yes" command="echo {secret}; {gate.wait}"/></recipe>'
    )
    chunk = await anext(bake.data())
    assert (chunk.data, chunk.finalchunk) == (f"{secret}\n".encode(), False)
    gate.open()
    assert [(c.data, c.finalchunk) for c in await chunks_of(bake)] == [(chunk.data, False), (b"", True)]


async def test_max_data_bytes(house: House) -> None:
    code = "import os, sys\nos.write(1, bytes(range(250)) * 41)"
    bake = await house.bake(
        f'<recipe name="cut" max-data-bytes="1000"><cli>{python(code)}</cli>'
        f'<cli max-data-bytes="10250">{python(code)}</cli></recipe>'
    )
    chunks = await chunks_of(bake)
    first: list[BakeData] = [c for c in chunks if c.stepindex == 0]
    assert [len(c.data) for c in first] == [1000] * 10 + [250]
    assert [c.partial for c in first] == [True] * 10 + [False]
    assert [len(c.data) for c in chunks if c.stepindex == 1] == [10250, 0], "just full, then the last one"
    assert [c.finalchunk for c in chunks] == [False] * 10 + [True, False, True]


# -- progress and heartbeat


def beats(statuses: Sequence[BakeStatus], bake: Bake) -> list[BakeStatus]:
    return [s for s in statuses if s.recipe_id == bake.recipe_id and s.kind == "interim"]


async def beaten(bake: Bake, times: int) -> list[BakeStatus]:
    """The first so many interim Status."""
    found: list[BakeStatus] = []
    async for status in bake.status():
        if status.kind == "interim":
            found.append(status)
            if len(found) == times:
                return found
    raise AssertionError(f"the bake has ended after {len(found)} interim Status")


async def test_every_bake_beats_whatever_its_step_does(house: House) -> None:
    """Silent, waiting for data, paused, held; and not at all with 0."""
    root = 'status-interval-ms="60"'
    gates = [house.gate() for _ in range(3)]
    silent = await house.bake(f'<recipe name="silent" {root}>{house.held_at(gates[0], "slow")}</recipe>')
    asking = await house.bake(f'<recipe name="asks" {root}><requestdata name="w" entry="W"/></recipe>')
    held = await house.bake(
        f'<recipe name="held" {root}><cli command="false" on-failure="hold" status-interval-ms="0"/></recipe>'
    )
    paused = await house.bake(
        f'<recipe name="paused" {root}>{house.held_at(gates[1], "slow", NEVER)}<cli command="true"/></recipe>'
    )
    quiet = await house.bake(
        f'<recipe name="quiet" status-interval-ms="0">{house.held_at(gates[2], "q")}</recipe>'
    )
    slow_to = await house.bake(f'<recipe name="own" {root}>{house.held_at(gates[2], "q", NEVER)}</recipe>')
    await house.reached(paused, 0)
    assert (await paused.pause()).accepted
    gates[1].open()
    for bake, word in ((silent, "running"), (asking, "waits for data"), (held, "held"), (paused, "paused")):
        found = await beaten(bake, 5)
        assert word in found[-1].summary, [s.summary for s in found]
        assert {s.pct for s in found[1:]} == {found[-1].pct}, "a heartbeat is no progress"
    assert beats(house.tap.statuses, quiet) == []
    assert beats(house.tap.statuses, slow_to) == [], "the step's own interval counts while it runs"
    for gate in gates:
        gate.open()
    assert (await asking.push("w", house.canary())).accepted
    assert (await held.cancel()).accepted
    assert (await paused.start()).accepted
    for bake in (silent, asking, held, paused, quiet, slow_to):
        await house.story(bake)


async def test_a_chatty_bake_beats_too(house: House) -> None:
    """The timer is fixed: neither output nor progress puts a heartbeat off."""
    gate = house.gate()
    code = (
        f"import os, sys, time\nwhile not os.path.exists({str(gate.path)!r}):\n"
        "    print(sys.argv[1], flush=True)\n    time.sleep(0.005)"
    )
    bake = await house.bake(
        '<recipe name="chatty" status-interval-ms="50" data-interval-ms="10">'
        f"<cli>{python(code)}<arg>{house.canary()}</arg></cli></recipe>"
    )
    await beaten(bake, 6)
    gate.open()
    await house.story(bake)


async def test_short_steps_with_intervals_of_their_own_do_not_put_the_heartbeat_off(house: House) -> None:
    """Each step has another interval; none lasts as long as its own, the bake beats all the same."""
    steps = "".join(
        f'<cli command="sleep 0.06" status-interval-ms="{100 + 10 * (number % 2)}"/>' for number in range(12)
    )
    bake = await house.bake(f'<recipe name="short">{steps}</recipe>')
    story = await house.story(bake)
    assert [s for s in story if s.kind == "interim"], "a bake of most of a second with a beat of a tenth"


async def test_progress(house: House) -> None:
    """pct is weighed, monotone, and only numbers leave the step's lines."""
    gates: list[Gate] = [house.gate() for _ in range(3)]
    secret = house.canary()
    talk = (
        f"echo '{secret} 10%'; {gates[0].wait}; echo '50% {secret}'; {gates[1].wait};"
        f" echo '20%'; echo '999%'; echo 'x%'; {gates[2].wait}"
    )
    bake = await house.bake(
        '<recipe name="shows"><cli command="true"/>'
        '<cli name="long" weight="3" shell="yes" progress="([0-9]+)%" data-interval-ms="0"'
        f' command="{talk}"/></recipe>'
    )
    at = await said(bake, lambda s: s.kind == "interim" and s.pct > 25)
    assert (at.pct, at.stepindex, at.step, at.attempt) == (32, 1, "long", 1)
    gates[0].open()
    at = await said(bake, lambda s: s.pct > 32)
    assert (at.kind, at.pct) == ("interim", 62)
    gates[1].open()
    gates[2].open()
    story = await house.story(bake)
    assert [s.pct for s in story if s.kind == "step"][:3] == [0, 25, 25]
    assert story[-1].pct == 100
    assert max(s.pct for s in story if s.kind == "interim") == 62, "20 % after 50 % shows nothing"


async def test_many_bakes_side_by_side(house: House) -> None:
    """Forty bakes with children that print: each has its own streams, whole."""
    secrets = [house.canary() for _ in range(40)]
    bakes = await asyncio.gather(
        *(
            house.bake(
                '<recipe name="one"><cli shell="yes"'
                f' command="for i in 1 2 3; do echo $$i {secret}; done"/></recipe>'
            )
            for secret in secrets
        )
    )
    for bake, secret in zip(bakes, secrets, strict=True):
        story = [status async for status in bake.status()]
        check_story(story, bake)
        expected = "".join(f"{i} {secret}\n" for i in (1, 2, 3)).encode()
        assert await output_of(bake) == {(0, "stdout"): expected}


async def test_the_bakes_environment_is_a_chosen_one(house: House) -> None:
    bake = await house.bake('<recipe name="env"><cli command="env"/></recipe>')
    text = (await output_of(bake))[0, "stdout"].decode()
    names = {line.partition("=")[0] for line in text.splitlines()}
    assert "PATH" in names
    assert "PYTHONUNBUFFERED" in names
    assert not {name for name in names if name.startswith(("BAKEMESH_NATS", "BAKEMESH_CREDS", "PYTEST"))}
