"""Workers killed under a core: one right answer or one typed error each, and nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal

import pytest

from bakemesh.protocol.inference.errors import ErrorObject
from bakemesh.synapse.scheduling.settings import Settings
from bakemesh.workerpool import budget
from support.corecalls import ask, code, embed, outcome
from support.localcore import fake_vectors, local_core
from support.scriptedlanes import packed
from support.waiting import eventually

ROOMY = budget.Rules(crashes=10_000, lane_crashes=10_000)
PATIENT_QUEUE = Settings(max_queue_s=120)


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_with_workers_killed_at_random_each_request_has_exactly_one_right_answer(tmp_path, seed):
    chance = random.Random(seed)
    async with local_core(tmp_path, settings=PATIENT_QUEUE, budget=ROOMY, poison_s=0.001) as world:
        core, key = world.core, world.know(slow_ms="2")
        answers: dict[int, list[str]] = {}
        waiting = list(range(600))

        async def one(number):
            kind = number % 3
            if kind == 2:
                prompt = packed([[number + 1] * 6])[1]
                found = await outcome(_text(core, key, prompt))
                right = found == f"{number + 1} " * 6
            else:
                items = [[number + 1, n + 1] for n in range(1 if kind else 120)]
                found = await outcome(embed(core, key, items, ask(120, work_class="bulk")))
                right = found == fake_vectors(items)
            assert right or isinstance(found, ErrorObject)
            answers.setdefault(number, []).append(code(found))

        async def caller():
            while waiting:
                await one(waiting.pop())

        callers = [asyncio.ensure_future(caller()) for _ in range(16)]
        killed = 0
        while len(answers) < 600 and not any(each.done() and each.exception() for each in callers):
            target = min(600, len(answers) + chance.randrange(5, 60))
            await eventually(lambda target=target: len(answers) >= target, within=90, what="answers")
            if pids := world.pids():
                with contextlib.suppress(ProcessLookupError):  # it is a stamp: that one may be dead already
                    os.kill(chance.choice(pids), signal.SIGKILL)
                    killed += 1
        await asyncio.gather(*callers)
        assert killed > 5
        assert sorted(answers) == list(range(600))
        assert all(len(each) == 1 for each in answers.values())
        codes = [each[0] for each in answers.values()]
        assert set(codes) <= {"ok", "engine_crashed"}
        assert codes.count("ok") >= 600 - 16 * killed // 4
        await world.all_up(2)
        await eventually(lambda: core.status().busy == 0)
        status = core.status()
        assert (status.bytesinflight, status.queued, status.backlog) == (0, 0, 0)


async def test_who_shared_a_batch_with_a_poison_gets_his_answer_and_it_gets_its_error(tmp_path):
    async with local_core(tmp_path, settings=PATIENT_QUEUE, budget=ROOMY) as world:
        core, key = world.core, world.know(abort_on_item="666")
        await embed(core, key, [[1]])
        others = [asyncio.ensure_future(embed(core, key, [[n]])) for n in range(1, 30)]
        poison = await outcome(embed(core, key, [[666]]))
        assert await asyncio.gather(*others) == [fake_vectors([[n]]) for n in range(1, 30)]
        assert code(poison) == "engine_crashed"
        assert not poison.safe_to_retry
        assert "aborts, as it was told" in poison.details["output"]
        again = await outcome(embed(core, key, [[666]]))
        assert (code(again), again.safe_to_retry) == ("engine_crashed", False)
        assert core.status().bytesinflight == 0


async def test_a_model_that_kills_every_worker_is_quarantined_and_others_go_on(tmp_path):
    rules = budget.Rules(crashes=3, lane_crashes=10_000)
    async with local_core(tmp_path, settings=PATIENT_QUEUE, budget=rules) as world:
        core, bad, good = world.core, world.know(abort_on_item="embed"), world.know("good")
        found = [code(await outcome(embed(core, bad, [[n]]))) for n in range(1, 8)]
        assert found[0] == "engine_crashed"
        assert found[-1] == "probe_required"
        assert set(found) == {"engine_crashed", "probe_required"}
        assert await embed(core, good, [[5]]) == fake_vectors([[5]])


async def test_a_model_whose_load_kills_is_told_of_and_does_not_stop_others(tmp_path):
    async with local_core(tmp_path, settings=PATIENT_QUEUE, budget=ROOMY) as world:
        core, bad, good = world.core, world.know(abort_on_item="load"), world.know("good")
        results = await asyncio.gather(
            *(outcome(embed(core, bad, [[n]])) for n in range(1, 6)), embed(core, good, [[5]])
        )
        assert [code(each) for each in results] == ["engine_crashed"] * 5 + ["ok"]
        assert results[0].details["stage"] == "load"


async def test_a_core_that_is_closed_under_load_answers_everybody(tmp_path):
    async with local_core(tmp_path) as world:
        core, key = world.core, world.know(slow_ms="20")
        calls = [asyncio.ensure_future(outcome(embed(core, key, [[n] * 100, [n]]))) for n in range(1, 60)]
        await eventually(lambda: any(call.done() for call in calls))
        await core.close()
        codes = {code(each) for each in await asyncio.gather(*calls)}
        assert codes == {"ok", "module_restarted"}
        assert code(await outcome(embed(core, key, [[1]]))) == "module_restarted"
        assert core.status().bytesinflight == 0


async def _text(core, key, prompt):
    parts = [part async for part in core.generate(key, prompt, 6, None, ask(120))]
    assert [part.index for part in parts[:-1]] == list(range(len(parts) - 1))
    assert "".join(part.text for part in parts[:-1]) == parts[-1].text
    return parts[-1].text
