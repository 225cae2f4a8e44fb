"""The core over lanes in virtual time: order, merging, deadlines, crashes, and what is left afterwards."""

from __future__ import annotations

import asyncio
import random
from array import array
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakemesh.protocol.inference.errors import ErrorObject
from bakemesh.synapse.scheduling.asks import Ask, Failed
from bakemesh.synapse.scheduling.core import Core
from bakemesh.synapse.scheduling.settings import Settings
from bakemesh.workerpool.models import Sampling, Text, Token
from support.corecalls import ask, code, embed, outcome
from support.scriptedlanes import BUSY, CRASH, ERR, HANG, ScriptedLanes, model, packed, vector
from support.virtual import virtually

ITEMS = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=40), min_size=1, max_size=30)


def nothing_is_left(core: Core) -> None:
    """What has to hold when nobody waits for anything."""
    status = core.status()
    assert (status.bytesinflight, status.queued, status.backlog) == (0, 0, 0)
    assert not core._lines
    assert not core._requests


@settings(max_examples=60)
@given(st.lists(ITEMS, min_size=1, max_size=12), st.integers(1, 3), st.randoms(use_true_random=False))
def test_each_caller_gets_the_vectors_of_its_own_items_in_order(requests, lanes, chance):
    async def main():
        core = Core(ScriptedLanes(lanes))
        key = core.know(model())

        async def caller(items):
            await asyncio.sleep(chance.random())
            wishes = ask(work_class=chance.choice(["interactive", "bulk"]), priority=chance.randrange(3))
            return await embed(core, key, items, wishes)

        found = await asyncio.gather(*map(caller, requests))
        assert found == [[vector(item) for item in items] for items in requests]
        nothing_is_left(core)

    virtually(main())


def test_callers_that_ask_at_the_same_time_share_a_batch_and_other_poolings_do_not():
    async def main():
        lanes = ScriptedLanes()
        core = Core(lanes)
        key = core.know(model())
        await embed(core, key, [[1]])
        lanes.steps.clear()
        await asyncio.gather(*(embed(core, key, [[n, n]]) for n in range(1, 41)))
        assert [len(step.items) for step in lanes.runs()] == [40]
        lanes.steps.clear()
        await asyncio.gather(
            *(embed(core, key, [[n]], pooling=pooling) for n in (1, 2) for pooling in ("mean", "cls")),
            embed(core, key, [[3]], normalize=False),
        )
        assert sorted(len(step.items) for step in lanes.runs()) == [1, 2, 2]

    virtually(main())


def test_an_interactive_request_behind_ten_thousand_bulk_items_waits_for_one_quantum():
    async def main():
        lanes = ScriptedLanes(token_s=0.002)  # a quantum takes a second
        core = Core(lanes, Settings(max_queue_s=1000))
        key = core.know(model())
        bulk = asyncio.ensure_future(embed(core, key, [[7] * 10] * 10_000, ask(1000, work_class="bulk")))
        many = [
            asyncio.ensure_future(embed(core, key, [[5] * 10], ask(1000, work_class="bulk")))
            for _ in range(1000)
        ]
        await asyncio.sleep(10)
        before = len(lanes.runs())
        assert await embed(core, key, [[1, 2, 3]]) == [vector([1, 2, 3])]
        assert [step.tokens for step in lanes.runs()[before:]] == [3]
        bulk.cancel()
        for each in many:
            each.cancel()
        await asyncio.gather(bulk, *many, return_exceptions=True)
        await asyncio.sleep(5)
        nothing_is_left(core)

    virtually(main())


def test_bulk_gets_its_turns_under_endless_interactive_work_and_control_goes_first():
    async def main():
        lanes = ScriptedLanes(token_s=0.0001)
        core = Core(lanes, Settings(max_queue_s=1000))
        key = core.know(model())
        ended: list[str] = []

        async def one(name, count):
            await embed(core, key, [[1] * 100] * count, ask(1000, work_class=name))
            ended.append(name)

        interactive = [asyncio.ensure_future(one("interactive", 50)) for _ in range(20)]
        await asyncio.sleep(0.2)
        bulk, control = asyncio.ensure_future(one("bulk", 10)), asyncio.ensure_future(one("control", 5))
        await asyncio.gather(bulk, control)
        assert ended.index("control") < ended.index("bulk")
        assert not all(each.done() for each in interactive)
        await asyncio.gather(*interactive)
        nothing_is_left(core)

    virtually(main())


def test_within_a_class_priority_orders_then_arrival():
    async def main():
        lanes = ScriptedLanes()
        core = Core(lanes)
        key = core.know(model())
        first = asyncio.ensure_future(embed(core, key, [[1] * 600]))
        await asyncio.sleep(0.15)
        rest = [
            asyncio.ensure_future(embed(core, key, [[10 + n] * 600], ask(priority=priority)))
            for n, priority in enumerate([0, -5, 3, 0, 3])
        ]
        await asyncio.gather(first, *rest)
        order = [step.items[0][0] // 600 for step in lanes.runs()]
        assert order == [1, 12, 14, 10, 13, 11]

    virtually(main())


def test_a_caller_whose_time_is_over_is_answered_at_once_and_its_items_are_not_run():
    async def main():
        lanes = ScriptedLanes(token_s=0.01)
        core = Core(lanes)
        key = core.know(model())
        loop = asyncio.get_running_loop()
        running = asyncio.ensure_future(embed(core, key, [[1] * 100]))
        await asyncio.sleep(0.2)
        began = loop.time()
        late = await outcome(embed(core, key, [[2] * 10], ask(0.5)))
        assert code(late) == "deadline_exceeded"
        assert loop.time() - began == pytest.approx(0.5)
        assert await running == [vector([1] * 100)]
        await asyncio.sleep(1)
        assert [step.tokens for step in lanes.runs()] == [100]
        nothing_is_left(core)

    virtually(main())


def test_what_cannot_end_in_time_any_more_when_its_turn_comes_is_not_begun():
    async def main():
        lanes = ScriptedLanes(token_s=0.01)
        core = Core(lanes)
        key = core.know(model())
        loop = asyncio.get_running_loop()
        for _ in range(3):
            await embed(core, key, [[1] * 100])
        lanes.steps.clear()
        began = loop.time()
        first = asyncio.ensure_future(embed(core, key, [[1] * 100]))
        await asyncio.sleep(0.01)
        late = asyncio.ensure_future(outcome(embed(core, key, [[2] * 500], ask(6.5))))
        await asyncio.sleep(0.01)
        before = asyncio.ensure_future(embed(core, key, [[3] * 100], ask(priority=1)))
        assert code(await late) == "deadline_exceeded"
        assert loop.time() - began == pytest.approx(2, abs=0.1)
        await asyncio.gather(first, before)
        assert [step.tokens for step in lanes.runs()] == [100, 100]

    virtually(main())


def test_a_caller_that_leaves_while_it_runs_is_answered_at_once_and_the_lane_works_on():
    async def main():
        lanes = ScriptedLanes(token_s=0.01)
        core = Core(lanes)
        key = core.know(model())
        wishes = ask()
        both = asyncio.gather(
            outcome(embed(core, key, [[1] * 100], wishes)), outcome(embed(core, key, [[2] * 100]))
        )
        await asyncio.sleep(0.3)
        wishes.cancel()
        wishes.cancel()
        first, second = await both
        assert (code(first), second) == ("cancelled", [vector([2] * 100)])
        early = ask()
        early.cancel()
        assert code(await outcome(embed(core, key, [[1]], early))) == "cancelled"
        nothing_is_left(core)

    virtually(main())


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


def test_reranking_gives_each_candidate_its_score_however_it_is_cut():
    async def main():
        lanes = ScriptedLanes(2)
        core = Core(lanes)
        key = core.know(model())
        documents = [[n] * (n % 30 + 1) for n in range(1, 400)]
        counts, ids = packed(documents)
        _, query = packed([[3, 4, 5]])
        scores = await core.rerank(key, query, counts, ids, ask())
        assert array("f", bytes(scores)).tolist() == [12 + sum(each) for each in documents]
        assert max(step.tokens for step in lanes.runs()) <= 512
        nothing_is_left(core)

    virtually(main())


def test_a_stream_is_handed_through_and_ends_with_its_text_when_it_is_taken_back():
    async def main():
        core = Core(ScriptedLanes(1, token_s=0.1))
        key = core.know(model())
        prompt = packed([[5, 6, 7]])[1]
        parts = [part async for part in core.generate(key, prompt, 9, Sampling(seed=1), ask())]
        assert parts == [Token(0, "5 "), Token(1, "6 "), Token(2, "7 "), Text("5 6 7 ", 3, 3, "stop")]
        whole = [part async for part in core.generate(key, prompt, 2, None, ask(), stream=False)]
        assert whole == [Text("5 6 ", 3, 2, "stop")]
        wishes = ask()
        found = []
        async for part in core.generate(key, packed([[1] * 50])[1], 50, None, wishes):
            found.append(part)
            if len(found) == 3:
                wishes.cancel()
        assert found[-1] == Text("1 1 1 ", 50, 3, "cancelled")
        assert core._estimates.pace(key.id, "generate").runs == 2  # it says nothing of how long texts take
        assert code(await outcome(text(core, key, packed([[1] * 50])[1], ask(6)))) == "deadline_exceeded"
        await asyncio.sleep(1)
        assert core.status().busy == 0
        nothing_is_left(core)

    virtually(main())


@pytest.mark.parametrize(("stage", "code_", "runs"), [("generate", "ok", 2), ("token", "engine_crashed", 1)])
def test_a_generation_is_repeated_only_before_its_first_token(stage, code_, runs):
    async def main():
        said = iter([CRASH])
        lanes = ScriptedLanes(2, mishap=lambda step: next(said, None) if step.stage == stage else None)
        core = Core(lanes)
        key = core.know(model())

        async def all_parts():
            return [part async for part in core.generate(key, packed([[5, 6]])[1], 9, Sampling(), ask())]

        found = await outcome(all_parts())
        assert code(found) == code_
        assert len(lanes.runs()) == runs
        if isinstance(found, ErrorObject):
            assert not found.safe_to_retry
        nothing_is_left(core)

    virtually(main())


def test_options_that_no_lane_can_honour_are_refused():
    async def main():
        lanes = ScriptedLanes(1)
        lanes.put("l0", types=())
        core = Core(lanes)
        key = core.know(model())

        async def parts(sampling):
            return [part async for part in core.generate(key, packed([[5, 6]])[1], 9, sampling, ask())]

        assert code(await outcome(parts(Sampling(seed=1)))) == "capability_absent"
        assert await parts(None) == [Text("5 6 ", 2, 2, "stop")]

    virtually(main())


def test_a_chat_s_next_turn_goes_to_the_lane_that_read_its_last_one():
    async def main():
        lanes = ScriptedLanes(3, load_s=0.01)
        core = Core(lanes)
        key = core.know(model())
        for lane in lanes.lanes:
            lanes.put(lane, loaded={key})
        chats = [[n] * 40 for n in (1, 2, 3)]

        async def turn(chat):
            _, prompt = packed([chat])
            async for _ in core.generate(key, prompt, 5, None, ask()):
                pass

        await asyncio.gather(*map(turn, chats))
        assert len({step.lane for step in lanes.runs()}) == 3
        first = [step.lane for step in lanes.runs()]
        chance = random.Random(2)
        for _ in range(12):
            which = chance.randrange(3)
            chats[which] = chats[which] + [9, which + 1]
            await turn(chats[which])
            assert lanes.runs()[-1].lane == first[which]

    virtually(main())


def test_at_three_times_the_capacity_goodput_stays_and_the_rest_is_told_at_once():
    async def main(load):
        lanes = ScriptedLanes(2, token_s=0.0002)  # 5,000 tokens a second each
        core = Core(lanes, Settings(max_queue_s=0.5))
        key = core.know(model())
        loop = asyncio.get_running_loop()
        chance, good, refused, tasks = random.Random(7), [], [], set()

        async def caller(number):
            items = [[number % 30 + 1] * chance.randrange(5, 60)]
            began = loop.time()
            found = await outcome(embed(core, key, items, ask(1.0)))
            if code(found) == "ok":
                assert found == [vector(items[0])]
                good.append(len(items[0]))
            else:
                refused.append((found, loop.time() - began))

        until, number = loop.time() + 20, 0
        while loop.time() < until:
            await asyncio.sleep(chance.expovariate(load * 10_000 / 32))
            number += 1
            task = asyncio.ensure_future(caller(number))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)
        nothing_is_left(core)
        at_once = sum(took == 0 for error, took in refused if error.code == "queue_full")
        return sum(good), refused, at_once

    peak, refused, _ = virtually(main(0.9))
    goodput, refused, at_once = virtually(main(3.0))
    assert goodput >= 0.9 * peak
    assert {error.code for error, _ in refused} <= {"queue_full", "deadline_exceeded"}
    assert at_once >= 0.95 * len(refused)
    assert all(error.retry_after_ms for error, _ in refused if error.code == "queue_full")


@settings(max_examples=40)
@given(st.integers(0, 1 << 30), st.integers(1, 3))
def test_whatever_happens_each_request_ends_once_and_nothing_is_left(seed, count):
    async def main():
        chance = random.Random(seed)
        fates = [CRASH, BUSY, ERR, HANG]

        def mishap(step):
            return chance.choice(fates) if chance.random() < 0.1 else None

        lanes = ScriptedLanes(count, mishap=mishap)
        core = Core(lanes, Settings(memory_bytes=3500, bytes_in_flight=20_000))
        keys = [core.know(model(name)) for name in "ab"]
        ends: list[str] = []

        async def caller(number):
            for _ in range(6):
                await asyncio.sleep(chance.random())
                wishes = Ask(
                    deadline=asyncio.get_running_loop().time() + chance.choice([0.02, 0.5, 30]),
                    work_class=chance.choice(["interactive", "bulk", "control"]),
                    priority=chance.randrange(-2, 3),
                    attempt=int(chance.random() < 0.1),
                    size=chance.randrange(1000),
                )
                if chance.random() < 0.1:
                    asyncio.get_running_loop().call_later(chance.random() * 0.1, wishes.cancel)
                items = [[number + 1] * chance.randrange(1, 80) for _ in range(chance.randrange(1, 30))]
                key = chance.choice(keys)
                if chance.random() < 0.3:
                    found = await outcome(text(core, key, packed(items[:1])[1], wishes))
                    if not isinstance(found, ErrorObject):
                        assert found.text == f"{number + 1} " * found.n_gen
                else:
                    found = await outcome(embed(core, key, items, wishes))
                    if not isinstance(found, ErrorObject):
                        assert found == [vector(item) for item in items]
                ends.append(code(found))

        callers = [asyncio.ensure_future(caller(number)) for number in range(12)]
        if chance.random() < 0.3:
            await asyncio.sleep(chance.random() * 4)
            await core.close()
        elif chance.random() < 0.3:
            await asyncio.sleep(chance.random() * 4)
            assert await core.drain(200)
        await asyncio.gather(*callers)
        await asyncio.sleep(100)
        assert len(ends) == 72
        nothing_is_left(core)
        assert core.status().busy == 0

    virtually(main())


async def text(core, key, prompt, wishes):
    """A generation's Text; its tokens are checked to come in order."""
    parts = [part async for part in core.generate(key, prompt, 30, None, wishes)]
    assert [part.index for part in parts[:-1]] == list(range(len(parts) - 1))
    return parts[-1]


def test_bytes_in_flight_are_bounded_and_given_back():
    async def main():
        core = Core(ScriptedLanes(1, token_s=0.001), Settings(bytes_in_flight=10_000))
        key = core.know(model())
        results = await asyncio.gather(
            *(outcome(embed(core, key, [[n] * 10], ask(size=1500))) for n in range(1, 11))
        )
        assert [code(each) for each in results] == ["ok"] * 6 + ["queue_full"] * 4
        assert results[-1].retry_after_ms > 0
        too_much = await outcome(embed(core, key, [[1]], ask(size=10_001)))
        assert (code(too_much), "10001" in too_much.message) == ("bad_request", True)
        nothing_is_left(core)

    virtually(main())


def test_a_drained_core_takes_nothing_new_and_answers_what_it_has():
    async def main():
        core = Core(ScriptedLanes(1))
        key = core.know(model())
        waiting = asyncio.gather(*(embed(core, key, [[n] * 200]) for n in range(1, 20)))
        await asyncio.sleep(0)
        assert await core.drain(60)
        assert code(await outcome(embed(core, key, [[1]]))) == "module_restarted"
        assert len(await waiting) == 19
        await core.close()
        await core.close()

    virtually(main())


def test_status_tells_what_waits_and_how_long():
    async def main():
        lanes = ScriptedLanes(2, token_s=0.001)
        core = Core(lanes, Settings(max_queue_s=100))
        key = core.know(model())
        assert core.status().rate == 0
        for _ in range(4):
            await embed(core, key, [[1] * 100])
        tasks = [asyncio.ensure_future(embed(core, key, [[n] * 500])) for n in range(1, 9)]
        await asyncio.sleep(0.1)
        status = core.status()
        assert status.lanes == 2
        assert status.rate == pytest.approx(2000, rel=0.1)
        assert status.backlog == 4000
        assert status.bytesinflight == 16_000
        assert status.waitms == pytest.approx(4000 / 2, rel=0.3)
        assert status.loaded == {key}
        await asyncio.gather(*tasks)
        assert core.status().waitms == 0
        for lane in lanes.lanes:
            lanes.put(lane, up=False)
        assert core.status().waitms == 100_000

    virtually(main())


def test_a_request_that_contradicts_itself_is_refused():
    async def main():
        core = Core(ScriptedLanes(1), Settings(items=10, tokens=100))
        key = core.know(model())
        for counts, ids in (
            ([2], b"1234"),
            ([], b""),
            ([1, 0], b"1234"),
            ([1] * 11, bytes(44)),
            ([101], bytes(404)),
        ):
            with pytest.raises(Failed) as caught:
                core.embed(key, counts, ids, pooling="mean", normalize=True, ask=ask())
            assert caught.value.error.code == "bad_request"
        nothing_is_left(core)

    virtually(main())
