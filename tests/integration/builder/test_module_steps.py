"""`<module>` and `<attach>` steps against a real Builder, with command cranks."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bakemesh.protocol.builder.messages import BakeCancelled, BakeFailed, BakeSuccess
from support.house import House, house_fixture, output_of, said, summaries
from support.modules import SLEEP, Board, attach, board, instances, module, order, recipe
from support.waiting import eventually

house = house_fixture("--operator", "ops", "--on-stop", "stop")
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seen(house: House) -> AsyncIterator[Board]:
    async with board(house.bus) as made:
        yield made


async def done(house: House, *steps: str, attributes: str = "") -> BakeSuccess | BakeFailed:
    """The outcome of a recipe of these steps."""
    bake = await house.bake(recipe(*steps, attributes=attributes))
    outcome = await bake.outcome()
    assert isinstance(outcome, BakeSuccess | BakeFailed)
    return outcome


# -- module


async def test_a_module_step_is_done_when_its_component_is_ready(house: House, seen: Board) -> None:
    bake = await house.bake(recipe(module("one", SLEEP, ready_ms=50)))
    story = await house.story(bake)
    assert isinstance(story[-1], BakeSuccess), summaries(story)
    row = await seen.until("one", "ready")
    assert (row["owner"], row["kind"], row["restarts"], row["ready"]) == ("boss", "command", 0, 1)
    assert instances("one", house.node.state) == [row["pid"]]


async def test_the_same_spec_again_changes_nothing_and_another_one_restarts_it(
    house: House, seen: Board
) -> None:
    await done(house, module("two"))
    first = await seen.until("two", "ready")
    again = await house.bake(recipe(module("two", wait=False)))
    assert any("runs already" in said for said in summaries(await house.story(again)))
    assert instances("two", house.node.state) == [first["pid"]]
    await done(house, module("two", SLEEP, restart="never"))
    changed = await seen.until("two", lambda row: row["state"] == "ready" and row["pid"] != first["pid"])
    assert changed["digest"] != first["digest"]
    assert instances("two", house.node.state) == [changed["pid"]]


async def test_without_wait_the_step_ends_at_once_and_attach_waits(house: House, seen: Board) -> None:
    gate = house.gate()
    probe = f'<health command="/usr/bin/test -e {gate.path}" interval-ms="50"/>'
    assert isinstance(await done(house, module("slow", SLEEP, probe, wait=False)), BakeSuccess)
    assert (await seen.until("slow", "starting"))["ready"] == 0
    waiting = await house.bake(recipe(attach("slow")))
    await said(waiting, lambda s: s.kind == "step")
    gate.open()
    assert isinstance(await waiting.outcome(), BakeSuccess)
    assert (await seen.until("slow", "ready"))["pid"] in instances("slow", house.node.state)


async def test_its_output_until_it_is_ready_is_data_and_no_status(house: House) -> None:
    word, gate = house.canary(), house.gate()
    probe = f'<health command="/usr/bin/test -e {gate.path}" interval-ms="50"/>'
    bake = await house.bake(
        recipe(module("talks", f"echo {word}; {SLEEP}", probe), attributes='data-interval-ms="0"')
    )
    async for chunk in bake.data():
        assert chunk.data == f"{word}\n".encode()
        break
    gate.open()
    assert isinstance(await bake.outcome(), BakeSuccess)
    assert await output_of(bake) == {(0, "stdout"): f"{word}\n".encode()}


async def test_the_output_of_what_is_replaced_is_not_the_step_s(house: House, seen: Board) -> None:
    old, new = house.canary(), house.canary()
    trap = f'trap "echo {old}; exit" TERM; echo {old}'
    await done(house, module("heir", f"{trap}; while :; do /usr/bin/sleep 0.05; done", ready_ms=300))
    await seen.until("heir", "ready")
    bake = await house.bake(
        recipe(module("heir", f"echo {new}; {SLEEP}", ready_ms=300), attributes='data-interval-ms="0"')
    )
    assert isinstance(await bake.outcome(), BakeSuccess)
    assert [chunk.data async for chunk in bake.data() if chunk.data] == [f"{new}\n".encode()]


async def test_a_component_that_is_another_owner_s_fails_the_step_and_says_whose_it_is(house: House) -> None:
    await done(house, module("mine"))
    async with house.net.supervisor("other") as other:
        bake = await other.bake(recipe(module("mine", restart="never")), node_id="alpha")
        outcome = await bake.outcome()
    assert isinstance(outcome, BakeFailed)
    assert "belongs to boss" in outcome.summary


async def test_a_program_that_is_not_there_is_tried_under_the_policy_and_the_reason_said(
    house: House, seen: Board
) -> None:
    outcome = await done(
        house,
        '<module name="none" max-restarts="0"><crank command="/nowhere/at-all"/></module>',
    )
    assert isinstance(outcome, BakeFailed)
    assert "quarantined" in outcome.summary
    assert "no such file" in outcome.summary
    assert (await seen.until("none", "quarantined"))["pid"] == 0


async def test_a_service_that_is_not_installed_fails_the_step(house: House) -> None:
    outcome = await done(house, '<module name="dashboard"><crank service="dashboard"/></module>')
    assert isinstance(outcome, BakeFailed)
    assert "this installation has no service dashboard" in outcome.summary


async def test_what_references_stand_for_is_put_in_and_stays_out_of_the_summary(house: House) -> None:
    word = house.canary()
    xml = recipe(
        '<module name="param" ready-ms="0">'
        "<crank command=\"/bin/sh -c 'echo $$BAKEMESH_PARAM_WORD; sleep 1000'\"/>"
        '<parameter name="word" type="String" value="${param:word}"/></module>',
        '<module name="param2" ready-ms="0"><crank command="/bin/true"/>'
        '<parameter name="n" type="Integer" value="${param:word}"/></module>',
        attributes='data-interval-ms="0"',
    )
    bake = await house.bake(xml, params={"word": word})
    outcome = await bake.outcome()
    assert isinstance(outcome, BakeFailed)
    assert outcome.stepindex == 1
    assert "value=" in outcome.summary
    log = house.node.state / "components" / "param" / "out.log"
    await eventually(lambda: log.read_text() == f"{word}\n", what="the parameter in the output")


async def test_a_cancelled_module_step_stops_what_it_started(house: House, seen: Board) -> None:
    bake = await house.bake(recipe(module("early", SLEEP, '<health command="/bin/false" interval-ms="50"/>')))
    pid = (await seen.until("early", lambda row: row["state"] == "starting" and row["pid"]))["pid"]
    await bake.cancel()
    assert isinstance(await bake.outcome(), BakeCancelled)
    assert instances("early", house.node.state) == []
    row = await seen.until("early", "stopped")
    assert "cancelled" in row["reason"]
    assert pid


async def test_a_cancelled_module_step_leaves_alone_what_ran_before_it(house: House, seen: Board) -> None:
    probe = '<health command="/bin/false" interval-ms="50"/>'
    await done(house, module("before", SLEEP, probe, wait=False))
    pid = (await seen.until("before", lambda row: row["pid"]))["pid"]
    bake = await house.bake(recipe(module("before", SLEEP, probe)))
    await said(bake, lambda s: s.kind == "step")
    await bake.cancel()
    assert isinstance(await bake.outcome(), BakeCancelled)
    assert instances("before", house.node.state) == [pid]


async def test_a_module_step_that_is_out_of_time_fails_and_stops_what_it_started(
    house: House, seen: Board
) -> None:
    late = module("late", SLEEP, '<health command="/bin/false" interval-ms="50"/>', timeout_ms=300)
    outcome = await done(house, late)
    assert isinstance(outcome, BakeFailed)
    assert outcome.code == "timeout"
    await seen.until("late", "stopped")


async def test_a_skipped_module_step_lets_the_bake_go_on(house: House, seen: Board) -> None:
    late = module("skipped", SLEEP, '<health command="/bin/false" interval-ms="50"/>')
    bake = await house.bake(recipe(late, '<cli command="true"/>'))
    await seen.until("skipped", lambda row: row["pid"])
    await bake.skip_step()
    assert isinstance(await bake.outcome(), BakeSuccess)
    await seen.until("skipped", "stopped")


async def test_a_term_that_is_ignored_ends_in_kill_after_shutdown_ms(house: House, seen: Board) -> None:
    gate = house.gate()
    script = f'trap "" TERM; touch {gate.path}; while :; do sleep 0.05; done'
    await done(house, module("deaf", script, shutdown_ms=100))
    row = await seen.until("deaf", "ready")
    await eventually(gate.path.exists, what="the trap")
    await done(house, module("deaf", SLEEP))
    await seen.until("deaf", lambda new: new["state"] == "ready" and new["pid"] != row["pid"])
    assert row["pid"] not in instances("deaf", house.node.state)


async def test_an_attach_that_is_out_of_time_says_where_the_component_is(house: House, seen: Board) -> None:
    slow = module("slow", SLEEP, '<health command="/bin/false"/>', wait=False)
    outcome = await done(house, slow, attach("slow", attributes='timeout-ms="700"'))
    assert isinstance(outcome, BakeFailed)
    assert "of waiting; component slow is starting: not healthy yet: exit code 1" in outcome.summary
    assert (await seen.until("slow", "starting"))["pid"], "nothing ends it for being slow"


# -- restarts


async def test_a_crash_loop_goes_into_quarantine_and_is_tried_again_by_itself(
    house: House, seen: Board
) -> None:
    gate = house.gate()
    script = f"[ -e {gate.path} ] || exit 3; {SLEEP}"
    outcome = await done(house, module("loop", script, ready_ms=200, max_restarts=2, restart_window_ms=3000))
    assert isinstance(outcome, BakeFailed)
    assert "quarantined" in outcome.summary
    assert "exit code 3" in outcome.summary
    row = await seen.until("loop", "quarantined")
    assert row["restarts"] == 2
    assert "backoff" in seen.states["loop"]
    at_once = await done(house, attach("loop"))
    assert isinstance(at_once, BakeFailed)
    assert "quarantined" in at_once.summary
    gate.open()
    back = await seen.until("loop", "ready")
    assert back["restarts"] == 3


async def test_a_recipe_that_is_tried_again_gives_a_crash_loop_no_new_budget(
    house: House, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    loop = module("doomed", f"echo x >> {runs}; exit 3", wait=False, ready_ms=60_000, max_restarts=0)
    for _ in range(3):
        outcome = await done(house, loop, attach("doomed"))
        assert isinstance(outcome, BakeFailed)
        assert "quarantined: ended too often; at last: exit code 3" in outcome.summary
    assert runs.read_text() == "x\n"
    changed = loop.replace("exit 3", "exit 4")
    assert "exit code 4" in (await done(house, changed, attach("doomed"))).summary
    assert runs.read_text() == "x\n" * 2


async def test_a_component_that_is_killed_is_started_again(house: House, seen: Board) -> None:
    await done(house, module("phoenix"))
    first = await seen.until("phoenix", "ready")
    os.kill(first["pid"], signal.SIGKILL)
    second = await seen.until("phoenix", lambda row: row["state"] == "ready" and row["pid"] != first["pid"])
    assert second["restarts"] == 1
    assert instances("phoenix", house.node.state) == [second["pid"]]


async def test_what_its_policy_lets_be_stays_so_and_says_why(house: House, seen: Board) -> None:
    assert isinstance(
        await done(house, module("job", "exit 0", restart="on-failure", wait=False)), BakeSuccess
    )
    row = await seen.until("job", "ended")
    assert row["reason"] == "exit code 0"
    await done(house, module("bad", "sleep 0.1; exit 9", restart="never", wait=False))
    await seen.until("bad", "ended")
    outcome = await done(house, attach("bad"))
    assert isinstance(outcome, BakeFailed)
    assert "exit code 9" in outcome.summary


async def test_attach_takes_one_that_was_ready_and_ended_well_as_done(house: House, seen: Board) -> None:
    gate = house.gate()
    await done(house, module("task", gate.wait, restart="on-failure"))
    await seen.until("task", "ready")
    gate.open()
    await seen.until("task", "ended")
    assert isinstance(await done(house, attach("task")), BakeSuccess)


async def test_attach_to_nobody_fails_at_once(house: House) -> None:
    outcome = await done(house, attach("nobody"))
    assert isinstance(outcome, BakeFailed)
    assert "no component nobody" in outcome.summary


# -- follow


async def test_attach_with_follow_passes_all_output_on_to_its_end(house: House, seen: Board) -> None:
    word, gate = house.canary(), house.gate()
    script = (
        f"echo {word}; {gate.wait}; i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; exit 4"
    )
    await done(house, module("prints", script, restart="never"))
    await seen.until("prints", "ready")
    bake = await house.bake(recipe(attach("prints", follow=True), attributes='data-interval-ms="0"'))
    async for chunk in bake.data():
        assert chunk.data == f"{word}\n".encode()
        break
    gate.open()
    outcome = await bake.outcome()
    assert isinstance(outcome, BakeFailed)
    assert "exit code 4" in outcome.summary
    wanted = f"{word}\n" + "".join(f"line {i}\n" for i in range(2000))
    assert (await output_of(bake))[0, "stdout"] == wanted.encode()
    step = await said(bake, lambda s: s.kind == "step" and s.outcome)
    assert step.exitcode == 4


async def test_follow_goes_on_over_a_restart_and_ends_when_it_is_stopped(house: House, seen: Board) -> None:
    await done(house, module("twice", f"echo up; {SLEEP}"))
    first = await seen.until("twice", "ready")
    bake = await house.bake(recipe(attach("twice", follow=True), attributes='data-interval-ms="0"'))
    got = b""
    async for chunk in bake.data():
        got += chunk.data
        if got == b"up\n" and instances("twice", house.node.state) == [first["pid"]]:
            os.kill(first["pid"], signal.SIGKILL)
        if got == b"up\nup\n":
            break
    await seen.until("twice", lambda row: row["state"] == "ready" and row["restarts"] == 1)
    async with house.net.connect("boss") as bus:
        assert (await order(bus, "Stop", "twice", issuer="boss")).accepted
    assert isinstance(await bake.outcome(), BakeSuccess)
    assert await output_of(bake) == {(0, "stdout"): b"up\nup\n"}


async def test_a_cancelled_attach_ends_and_the_component_runs_on(house: House, seen: Board) -> None:
    await done(house, module("stays", f"echo up; {SLEEP}"))
    row = await seen.until("stays", "ready")
    bake = await house.bake(recipe(attach("stays", follow=True), attributes='data-interval-ms="0"'))
    await house.reached(bake, 0)
    await bake.cancel()
    assert isinstance(await bake.outcome(), BakeCancelled)
    assert instances("stays", house.node.state) == [row["pid"]]
