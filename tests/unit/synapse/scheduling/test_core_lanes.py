"""The core over lanes that crash, hang, are busy or go; LOADs, copies and memory. In virtual time."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise

import pytest

from bakemesh.synapse.scheduling.core import Core
from bakemesh.synapse.scheduling.settings import Settings
from support.corecalls import ask, code, embed, nothing_is_left, outcome
from support.scriptedlanes import BUSY, CRASH, ERR, HANG, ScriptedLanes, model, vector
from support.virtual import virtually


def test_what_a_crash_took_is_run_once_more_alone_and_elsewhere():
    async def main():
        poison = 13

        def mishap(step):
            return CRASH if any(poison in share for share in step.items) else None

        lanes = ScriptedLanes(2, mishap=mishap)
        core = Core(lanes)
        key = core.know(model())
        await embed(core, key, [[1]])
        lanes.steps.clear()
        good = [asyncio.ensure_future(embed(core, key, [[n]])) for n in range(1, 10)]
        bad = asyncio.ensure_future(outcome(embed(core, key, [[poison]])))
        assert await asyncio.gather(*good) == [[vector([n])] for n in range(1, 10)]
        assert code(await bad) == "engine_crashed"
        runs = [step for step in lanes.runs() if any(poison in share for share in step.items)]
        assert [step.attempt for step in runs] == [0, 1]
        assert len(runs[1].items) == 1
        assert runs[0].lane != runs[1].lane
        await asyncio.sleep(5)
        nothing_is_left(core)

    virtually(main())


def test_a_lane_that_is_back_at_once_is_not_given_what_crashed_it_where_there_is_another():
    async def main():
        said = iter([CRASH])
        lanes = ScriptedLanes(
            2, down_s=0, mishap=lambda step: next(said, None) if step.stage == "embed" else None
        )
        core = Core(lanes)
        assert await embed(core, core.know(model()), [[1]]) == [vector([1])]
        assert [step.lane for step in lanes.runs()] == ["l0", "l1"]

    virtually(main())


def test_bulk_that_runs_on_another_lane_is_not_one_that_waits():
    async def main():
        lanes = ScriptedLanes(2, token_s=0.002)  # a quantum takes a second
        core = Core(lanes, Settings(max_queue_s=100))
        key = core.know(model())
        for lane in lanes.lanes:
            lanes.put(lane, loaded={key})
        asked = [(500, "bulk"), (200, "interactive"), (500, "bulk"), (200, "interactive")]
        tasks = []
        for tokens, work_class in asked:
            tasks.append(asyncio.ensure_future(embed(core, key, [[7] * tokens], ask(work_class=work_class))))
            await asyncio.sleep(0.01)
        await asyncio.gather(*tasks)
        assert [step.tokens for step in lanes.runs()] == [500, 200, 200, 500]

    virtually(main())


def test_who_was_repeated_upstream_is_neither_merged_nor_repeated():
    async def main():
        lanes = ScriptedLanes(1, mishap=lambda step: CRASH if step.attempt else None)
        core = Core(lanes)
        key = core.know(model())
        results = await asyncio.gather(
            *(outcome(embed(core, key, [[n]], ask(attempt=n % 2))) for n in range(1, 5))
        )
        assert [code(each) for each in results] == ["engine_crashed", "ok"] * 2
        assert all(len(step.items) == 1 for step in lanes.runs() if step.attempt)
        await asyncio.sleep(5)
        nothing_is_left(core)

    virtually(main())


def test_a_hang_is_not_repeated_and_an_error_in_good_order_neither():
    async def main():
        said = iter([HANG, ERR])
        lanes = ScriptedLanes(1, mishap=lambda step: next(said, None) if step.stage == "embed" else None)
        core = Core(lanes)
        key = core.know(model())
        assert code(await outcome(embed(core, key, [[1]], ask(500)))) == "engine_crashed"
        assert code(await outcome(embed(core, key, [[1]]))) == "inference_failed"
        assert await embed(core, key, [[1]]) == [vector([1])]
        assert len(lanes.runs()) == 3

    virtually(main())


def test_a_lane_that_others_use_is_asked_again_and_costs_no_attempt():
    async def main():
        left = [3]

        def mishap(step):
            if step.stage == "embed" and left[0]:
                left[0] -= 1
                return BUSY
            return None

        core = Core(ScriptedLanes(1, mishap=mishap))
        key = core.know(model())
        assert await embed(core, key, [[1]]) == [vector([1])]
        left[0] = 1 << 30
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert code(await outcome(embed(core, key, [[1]]))) in ("lane_busy", "queue_full")
        assert loop.time() - began <= core.settings.max_queue_s + 2
        nothing_is_left(core)

    virtually(main())


def test_with_no_lane_up_requests_wait_and_are_told_so_in_the_end():
    async def main():
        lanes = ScriptedLanes(1)
        core = Core(lanes)
        key = core.know(model())
        lanes.put("l0", up=False)
        waiting = asyncio.ensure_future(embed(core, key, [[1]]))
        await asyncio.sleep(2)
        lanes.put("l0", up=True)
        assert await waiting == [vector([1])]
        lanes.put("l0", up=False, loaded=set())
        assert code(await outcome(embed(core, key, [[1]]))) == "lane_busy"
        nothing_is_left(core)

    virtually(main())


def test_a_model_that_is_quarantined_everywhere_is_refused_until_a_probe():
    async def main():
        lanes = ScriptedLanes(2)
        core = Core(lanes)
        key = core.know(model())
        for lane in lanes.lanes:
            lanes.put(lane, refused={key})
        assert code(await outcome(embed(core, key, [[1]]))) == "probe_required"
        assert await core.probe(key)
        assert await embed(core, key, [[1]]) == [vector([1])]
        lanes.put("l0", refused={key}, loaded=set())
        await asyncio.gather(*(embed(core, key, [[n]]) for n in range(1, 9)))
        assert {step.lane for step in lanes.runs()[1:]} == {"l1"}

    virtually(main())


def test_one_load_of_a_model_at_a_time_and_nobody_waits_for_a_further_one():
    async def main():
        lanes = ScriptedLanes(4, load_s=3.0)
        core = Core(lanes, Settings(max_queue_s=100))
        key, other = core.know(model()), core.know(model("other"))
        await asyncio.gather(
            *(embed(core, key, [[n] * 300]) for n in range(1, 60)), embed(core, other, [[1]])
        )
        loads = [step for step in lanes.runs("load") if step.model == key]
        assert all(a.ended <= b.began for a, b in pairwise(loads))
        nothing_is_left(core)

    virtually(main())


def test_a_model_that_keeps_its_lane_busy_is_loaded_on_a_further_one():
    async def main():
        lanes = ScriptedLanes(2, load_s=0.2)
        core = Core(lanes)
        key = core.know(model())

        async def caller(number):
            for _ in range(400):
                await embed(core, key, [[number] * 50])

        await asyncio.gather(*(caller(number) for number in range(1, 33)))
        by_lane = [sum(step.tokens for step in lanes.runs() if step.lane == lane) for lane in lanes.lanes]
        assert min(by_lane) > 0.3 * max(by_lane)

    virtually(main())


@pytest.mark.parametrize("outcomes", [[CRASH], [CRASH, CRASH], [ERR]])
def test_a_load_that_crashes_is_tried_once_more_and_one_that_is_refused_is_not(outcomes):
    async def main():
        said = iter(outcomes)
        lanes = ScriptedLanes(2, mishap=lambda step: next(said, None) if step.stage == "load" else None)
        core = Core(lanes)
        key = core.know(model())
        found = await asyncio.gather(*(outcome(embed(core, key, [[n]])) for n in range(1, 4)))
        wanted = {1: "ok", 2: "engine_crashed"}[len(outcomes)] if CRASH in outcomes else "inference_failed"
        assert [code(each) for each in found] == [wanted] * 3
        assert code(await outcome(embed(core, key, [[1]]))) == "ok"
        nothing_is_left(core)

    virtually(main())


def test_a_further_copy_that_cannot_be_loaded_is_nobody_s_loss():
    async def main():
        def mishap(step):
            return ERR if step.stage == "load" and step.lane == "l1" else None

        lanes = ScriptedLanes(2, mishap=mishap)
        lanes.put("l0", loaded=set())
        core = Core(lanes, Settings(max_queue_s=100))
        key = core.know(model())

        async def caller(number):
            for _ in range(100):
                assert await embed(core, key, [[number] * 50]) == [vector([number] * 50)]

        await asyncio.gather(*(caller(number) for number in range(1, 33)))
        loads = [step.lane for step in lanes.runs("load")]
        assert loads == ["l0", "l1"]

    virtually(main())


def test_models_that_do_not_fit_together_take_turns_by_their_order():
    async def main():
        lanes = ScriptedLanes(2)
        core = Core(lanes, Settings(memory_bytes=2500, max_queue_s=1000))
        keys = [core.know(model(name, 1000)) for name in "abcd"]
        chance = random.Random(4)

        async def caller(number):
            key = keys[number % 4]
            for _ in range(20):
                await asyncio.sleep(chance.random() * 0.2)
                assert await embed(core, key, [[number + 1] * 20], ask(1000)) == [vector([number + 1] * 20)]
                held = sum(len(lane.loaded) for lane in lanes.lanes.values())
                assert held <= 2

        await asyncio.gather(*(caller(number) for number in range(8)))
        assert code(await outcome(embed(core, core.know(model("huge", 3000)), [[1]]))) == "oom"
        nothing_is_left(core)

    virtually(main())


def test_a_model_that_waits_for_memory_is_not_overtaken_by_smaller_ones():
    async def main():
        lanes = ScriptedLanes(2, token_s=0.01)
        core = Core(lanes, Settings(memory_bytes=3000, max_queue_s=100))
        running = asyncio.ensure_future(embed(core, core.know(model("held", 2000)), [[1] * 300]))
        await asyncio.sleep(0.2)
        large, small = core.know(model("large", 2000)), core.know(model("small", 1000))
        await asyncio.gather(running, *(embed(core, each, [[1]]) for each in (large, small)))
        assert [step.model for step in lanes.runs("load")[1:]] == [large, small]

    virtually(main())
