"""Controls of a real Builder: what each verb does, and its one acknowledgement, at any moment."""

from __future__ import annotations

import asyncio
import random
import sys

import pytest

from bakemesh.protocol.builder.codes import Verb
from bakemesh.protocol.builder.messages import (
    BakeCancelled,
    BakePaused,
    BakeRestarted,
    BakeSuccess,
)
from bakemesh.supervisor import Bake
from support.controls import AFTER, RETRYABLE, at_rest, control, ok
from support.house import (
    House,
    acks,
    chunks_of,
    house_fixture,
    output_of,
    said,
    summaries,
    tale,
)
from support.processes import alive
from support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
house = house_fixture("--operator", "ops", "--kill-grace-ms", "300")


# -- Pause and Start


async def test_pause_holds_at_the_boundary_and_start_resumes(house: House) -> None:
    gate = house.gate()
    bake = await house.bake(f'<recipe name="rests">{house.held_at(gate, "slow")}{AFTER}</recipe>')
    await house.reached(bake, 0)
    first = await ok(bake.pause())
    assert (first.verb, first.recipe_id, first.node_id) == ("Pause", bake.recipe_id, "alpha")
    second = await ok(bake.pause())
    gate.open()
    rest = await at_rest(bake)
    assert (rest.stepindex, rest.code, rest.outcome, rest.final) == (1, None, "paused", False)
    third = await ok(bake.pause())
    fourth = await ok(bake.start())
    story = await house.story(bake)
    assert tale(story) == [
        "start",
        "0 begins",
        "0 ok",
        "ack Pause paused",
        "ack Pause paused",
        "Paused",
        "ack Pause paused",
        "ack Start restarted",
        "Restarted",
        "1 begins",
        "1 ok",
        "Success",
    ]
    told = [s for s in story if s.kind == "ack"]
    assert [s.ctrlseq for s in told] == [r.ctrlseq for r in (first, second, third, fourth)]
    assert {s.issuedby for s in told} == {"boss"}
    again = next(s for s in story if isinstance(s, BakeRestarted))
    assert (again.outcome, again.stepindex, again.final) == ("restarted", 1, False)


async def test_start_withdraws_a_pending_pause_and_changes_nothing_on_a_running_bake(house: House) -> None:
    gate = house.gate()
    bake = await house.bake(f'<recipe name="goes">{house.held_at(gate, "slow")}{AFTER}</recipe>')
    await house.reached(bake, 0)
    await ok(bake.pause())
    await ok(bake.start())
    await ok(bake.start())
    gate.open()
    story = await house.story(bake)
    assert acks(story) == [("Pause", "superseded"), ("Start", "restarted"), ("Start", "restarted")]
    assert not [s for s in story if isinstance(s, BakePaused | BakeRestarted)]
    assert isinstance(story[-1], BakeSuccess)


@pytest.mark.parametrize("verb", [Verb.CANCEL, Verb.TERMINATE])
async def test_cancel_supersedes_a_pending_pause_and_ends_at_once(house: House, verb: Verb) -> None:
    gate = house.gate()
    bake = await house.bake(f'<recipe name="ends">{house.held_at(gate, "slow")}{AFTER}</recipe>')
    await house.reached(bake, 0)
    await ok(bake.pause())
    result = await ok(bake.control(verb))
    story = await house.story(bake)
    assert tale(story) == [
        "start",
        "0 begins",
        "ack Pause superseded",
        f"ack {verb} cancelled",
        "0 cancelled",
        "Cancelled",
    ]
    end = story[-1]
    assert isinstance(end, BakeCancelled)
    assert (end.outcome, end.stepindex) == ("cancelled", 0)
    assert "no survivors" in story[-2].summary
    assert [s.ctrlseq for s in story if s.verb == verb] == [result.ctrlseq]
    assert end.lastseq == story[-2].lastseq == len([chunk async for chunk in bake.data()])


async def test_the_end_of_the_bake_supersedes_a_pending_pause(house: House) -> None:
    gate, other = house.gate(), house.gate()
    good = await house.bake(f'<recipe name="good">{house.held_at(gate, "only")}</recipe>')
    bad = await house.bake(
        f'<recipe name="bad"><cli shell="yes" data-interval-ms="0"'
        f' command="echo {house.canary()}; {other.wait}; exit 3"/>{AFTER}</recipe>'
    )
    for bake in (good, bad):
        await house.reached(bake, 0)
        await ok(bake.pause())
    gate.open()
    other.open()
    story = await house.story(good)
    assert tale(story)[-3:] == ["0 ok", "ack Pause superseded", "Success"]
    story = await house.story(bad)
    assert tale(story)[-3:] == ["0 failed", "ack Pause superseded", "Failed"]


async def test_cancel_ends_a_bake_that_rests(house: House) -> None:
    gate = house.gate()
    resting = await house.bake(f'<recipe name="resting">{house.held_at(gate, "a")}{AFTER}</recipe>')
    held = await house.bake('<recipe name="held"><cli command="false" on-failure="hold"/></recipe>')
    await house.reached(resting, 0)
    await ok(resting.pause())
    gate.open()
    for bake in (resting, held):
        await at_rest(bake)
        await ok(bake.cancel())
        assert tale(await house.story(bake))[-3:] == ["Paused", "ack Cancel cancelled", "Cancelled"]


# -- SkipStep and RetryStep


async def test_skip_kills_a_running_step_and_goes_on(house: House) -> None:
    gate = house.gate()
    secret = house.canary()
    bake = await house.bake(
        f'<recipe name="skips">{house.held_at(gate, "slow")}'
        f'<cli name="after" command="echo {secret}"/></recipe>'
    )
    await house.reached(bake, 0)
    await ok(bake.skip_step())
    story = await house.story(bake)
    assert tale(story) == [
        "start",
        "0 begins",
        "ack SkipStep skipped",
        "0 cancelled",
        "1 begins",
        "1 ok",
        "Success",
    ]
    output = await output_of(bake)
    assert output[1, "stdout"] == f"{secret}\n".encode()
    assert output[0, "stdout"] == f"{house.canaries[-1]}\n".encode(), "what a skipped step wrote is not lost"


async def test_skip_on_a_paused_bake_leaves_it_paused(house: House) -> None:
    gate = house.gate()
    bake = await house.bake(
        f'<recipe name="skims">{house.held_at(gate, "slow")}'
        '<cli command="false"/><cli command="false"/></recipe>'
    )
    await house.reached(bake, 0)
    await ok(bake.pause())
    gate.open()
    await at_rest(bake)
    refused = await bake.retry_step()
    assert refused.code == "no_step", "the cursor's step has not begun"
    await ok(bake.skip_step())
    await ok(bake.skip_step())
    refused = await bake.skip_step()
    assert (refused.accepted, refused.code) == (False, "no_step")
    assert bake.terminal is None
    await ok(bake.start())
    story = await house.story(bake)
    assert tale(story)[4:] == [
        "Paused",
        "ack SkipStep skipped",
        "1 skipped",
        "ack SkipStep skipped",
        "2 skipped",
        "ack Start restarted",
        "Restarted",
        "Success",
    ]
    skipped = [s for s in story if s.outcome == "skipped" and s.kind == "step"]
    assert [s.attempt for s in skipped] == [None, None], "a step that never began has no attempt"
    assert [s.exitcode for s in skipped] == [None, None]


async def test_retry_kills_a_running_step_and_runs_it_again(house: House) -> None:
    gate = house.gate()
    bake = await house.bake(
        f'<recipe name="again">{house.held_at(gate, "slow", RETRYABLE)}'
        f"{house.held_at(gate, 'guarded')}</recipe>"
    )
    await house.reached(bake, 0)
    await ok(bake.retry_step())
    await house.reached(bake, 0, attempt=2)
    gate.open()
    await house.reached(bake, 1)
    story = await house.story(bake)
    assert tale(story)[:6] == [
        "start",
        "0 begins",
        "ack RetryStep retrying",
        "0 cancelled",
        "0 begins",
        "0 ok",
    ]
    assert [s.attempt for s in story if s.kind == "step" and s.stepindex == 0] == [1, 1, 2, 2]
    ended = next(s for s in story if s.outcome == "cancelled")
    assert ended.exitcode == -15


async def test_retry_needs_retryable(house: House) -> None:
    gate = house.gate()
    bake = await house.bake(f'<recipe name="once">{house.held_at(gate, "slow")}</recipe>')
    await house.reached(bake, 0)
    refused = await bake.retry_step()
    assert (refused.accepted, refused.code) == (False, "not_retryable")
    gate.open()
    story = await house.story(bake)
    assert tale(story) == ["start", "0 begins", "0 ok", "Success"]


async def test_the_last_of_skip_and_retry_counts(house: House) -> None:
    """Both come while the step is still dying; each is acknowledged, the later one is what happens."""
    stubborn = f"trap : TERM; echo {house.canary()}; while :; do sleep 0.02; done"
    bake = await house.bake(
        f'<recipe name="both"><cli shell="yes" retryable="yes" data-interval-ms="0" command="{stubborn}"/>'
        f"{AFTER}</recipe>"
    )
    await house.reached(bake, 0)
    await asyncio.gather(ok(bake.skip_step()), ok(bake.retry_step()))
    await house.reached(bake, 0, attempt=2)
    await asyncio.gather(ok(bake.retry_step()), ok(bake.skip_step()))
    story = await house.story(bake)
    assert tale(story) == [
        "start",
        "0 begins",
        "ack SkipStep skipped",
        "ack RetryStep retrying",
        "0 cancelled",
        "0 begins",
        "ack RetryStep retrying",
        "ack SkipStep skipped",
        "0 cancelled",
        "1 begins",
        "1 ok",
        "Success",
    ]


# -- held


async def test_a_held_bake(house: House) -> None:
    """Start is refused; Pause is taken at once and makes it rest after the step; Retry and Skip run on."""
    flag = house.gate()
    flaky = f"echo {house.canary()}; [ -e '{flag.path}' ] || exit 3"
    bake = await house.bake(
        '<recipe name="holds" on-failure="hold">'
        f'<cli name="flaky" shell="yes" retryable="yes" command="{flaky}"/>'
        f'<cli name="bad" command="false"/>{AFTER}</recipe>'
    )
    rest = await at_rest(bake)
    assert (rest.code, rest.stepindex, rest.outcome) == ("held", 0, "paused")
    refused = await bake.start()
    assert (refused.accepted, refused.code) == (False, "held")
    assert "RetryStep" in refused.summary
    await ok(bake.retry_step())  # fails again: held again
    await at_rest(bake, 2)
    await ok(bake.pause())
    flag.open()
    await ok(bake.retry_step())
    rest = await at_rest(bake, 3)
    assert (rest.code, rest.stepindex) == (None, 1), "after the step it rests as paused"
    await ok(bake.start())
    rest = await at_rest(bake, 4)
    assert (rest.code, rest.stepindex) == ("held", 1)
    assert (await bake.retry_step()).code == "not_retryable"
    await ok(bake.pause())
    await ok(bake.skip_step())
    rest = await at_rest(bake, 5)
    assert (rest.code, rest.stepindex) == (None, 2)
    await ok(bake.start())
    story = await house.story(bake)
    assert tale(story) == [
        *("start", "0 begins", "0 failed", "Paused"),
        *("ack RetryStep retrying", "Restarted", "0 begins", "0 failed", "Paused"),
        *("ack Pause paused", "ack RetryStep retrying", "Restarted", "0 begins", "0 ok", "Paused"),
        *("ack Start restarted", "Restarted", "1 begins", "1 failed", "Paused"),
        *("ack Pause paused", "ack SkipStep skipped", "Restarted", "1 skipped", "Paused"),
        *("ack Start restarted", "Restarted", "2 begins", "2 ok", "Success"),
    ]
    end = story[-1]
    assert isinstance(end, BakeSuccess)
    assert end.failedsteps == [], "they were retried or skipped, not continued over"


async def test_a_pause_that_waits_is_acknowledged_when_the_step_is_held(house: House) -> None:
    gate = house.gate()
    bake = await house.bake(
        f'<recipe name="holds"><cli shell="yes" on-failure="hold" data-interval-ms="0"'
        f' command="echo {house.canary()}; {gate.wait}; exit 4"/>{AFTER}</recipe>'
    )
    await house.reached(bake, 0)
    await ok(bake.pause())
    gate.open()
    await at_rest(bake)
    await ok(bake.skip_step())
    await at_rest(bake, 2)
    await ok(bake.cancel())
    assert tale(await house.story(bake)) == [
        *("start", "0 begins", "0 failed", "ack Pause paused", "Paused"),
        *("ack SkipStep skipped", "Restarted", "0 skipped", "Paused"),
        *("ack Cancel cancelled", "Cancelled"),
    ]


# -- the tree


TREE = """
import os, signal, sys, time
mark = sys.argv[1]
ME = [sys.executable, "-I", "-S", "-c"]
STUBBORN = "import signal, time\\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\\nwhile True: time.sleep(1)"
def start(code, *, setsid=False, env=None):
    pid = os.fork()
    if pid == 0:
        if setsid:
            os.setsid()
            if os.fork():
                os._exit(0)
        os.execve(ME[0], [*ME, code, mark], os.environ if env is None else env)
    return pid
start("import time; time.sleep(600)")
start(STUBBORN)
start(STUBBORN, setsid=True)                       # a daemon that ignores TERM
start("import time; time.sleep(600)", setsid=True, env={})   # one that is nobody's by its environment
os.kill(start("import time; time.sleep(600)"), signal.SIGSTOP)
print(sys.argv[2], flush=True)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True: time.sleep(1)
"""


@pytest.mark.parametrize("verb", [Verb.CANCEL, Verb.SKIP_STEP, Verb.RETRY_STEP])
async def test_a_kill_leaves_nothing_of_the_tree(house: House, verb: Verb) -> None:
    script = house.folder / "tree.py"
    script.write_text(TREE)
    mark, secret = f"mark-{house.canary()}", house.canary()
    words = "".join(f"<arg>{word}</arg>" for word in (sys.executable, script, mark, secret))
    step = f'<cli name="tree" retryable="yes" data-interval-ms="0">{words}</cli>'
    bake = await house.bake(f'<recipe name="tree">{step}{AFTER}</recipe>')
    await house.reached(bake, 0)
    await eventually(lambda: len(alive(mark)) == 6, what="the whole tree")
    before = set(alive(mark))
    await ok(bake.control(verb))
    ended = await said(bake, lambda s: s.kind == "step" and s.outcome)
    assert not before & set(alive(mark)), "dead when the step says that it has ended"
    assert ended.outcome == "cancelled"
    assert "no survivors" in ended.summary
    if verb is Verb.RETRY_STEP:
        await house.reached(bake, 0, attempt=2)
        await ok(bake.cancel())
    await house.story(bake)
    assert not alive(mark)


# -- at random


@pytest.mark.parametrize("seed", range(3))
async def test_any_controls_at_any_moment_keep_every_promise(house: House, seed: int) -> None:
    """Ten bakes of quick, failing, held and slow steps under random verbs from two issuers: each accepted
    control is acknowledged once, rests are paired, serials have no gap, and the end is the last word.
    """
    chance = random.Random(seed)

    def step(number: int) -> str:
        body = chance.choice(["true", "false", "sleep 0.05", "trap : TERM; sleep 0.1", "exit 3"])
        attributes = chance.choice(["", RETRYABLE, f'{RETRYABLE} retries="1" retry-delay-ms="20"'])
        failure = chance.choice(["hold", "continue", "hold", "fail"])
        return (
            f'<cli name="s{number}" shell="yes" on-failure="{failure}" {attributes}'
            f' command="echo {house.canary()}; {body}"/>'
        )

    async def steer(bake: Bake, issuer: str, taken: list[tuple[str, int]]) -> None:
        for ctrlseq in range(1, 40):
            verb = chance.choice(["Pause", "Start", "Start", "SkipStep", "RetryStep", "SkipStep"])
            result = await control(house.bus, bake.identity, verb, ctrlseq, party=issuer)
            if result.accepted:
                taken.append((issuer, ctrlseq))
            else:
                assert result.code in ("held", "no_step", "not_retryable", "terminal"), result
            if result.code == "terminal":
                return
            await asyncio.sleep(chance.random() * 0.02)

    async def one(number: int) -> None:
        steps = "".join(step(index) for index in range(6))
        bake = await house.bake(f'<recipe name="any" status-interval-ms="20">{steps}</recipe>')
        taken: list[tuple[str, int]] = []
        await asyncio.gather(*(steer(bake, issuer, taken) for issuer in ("boss", "ops")))
        last = await control(house.bus, bake.identity, "Cancel", 1000)
        assert last.code in ("ok", "terminal")
        if last.accepted:
            taken.append(("boss", 1000))
        story = await house.story(bake)
        told = [(s.issuedby, s.ctrlseq) for s in story if s.kind == "ack"]
        assert sorted(told) == sorted(taken), summaries(story)
        begun = [(s.stepindex, s.attempt) for s in story if s.kind == "step" and not s.outcome]
        assert len(begun) == len(set(begun)), "no attempt begins twice"
        ended = [(s.stepindex, s.attempt) for s in story if s.kind == "step" and s.outcome and s.attempt]
        assert set(begun) <= set(ended), "what began has ended"
        end = await bake.outcome()
        assert [c.seq for c in await chunks_of(bake)] == list(range(1, (end.lastseq or 0) + 1))

    await asyncio.gather(*(one(number) for number in range(10)))
