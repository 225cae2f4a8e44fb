"""The core over lanes in virtual time: order, merging, deadlines, what is refused, what is left afterwards.

Beside it: `test_core_lanes`, what lanes do wrong; `test_core_kinds`, rerankings and generations.
"""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakemesh.protocol.inference.errors import ErrorObject
from bakemesh.synapse.scheduling.asks import Ask, Failed
from bakemesh.synapse.scheduling.core import Core
from bakemesh.synapse.scheduling.settings import Settings
from support.corecalls import ask, code, embed, nothing_is_left, outcome, text
from support.scriptedlanes import BUSY, CRASH, ERR, HANG, ScriptedLanes, model, packed, vector
from support.virtual import virtually

ITEMS = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=40), min_size=1, max_size=30)


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
