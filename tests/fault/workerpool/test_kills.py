"""Workers and hosts killed at any moment: one answer each, and nobody left behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import random
import re
import signal
import sys
import time
from array import array
from collections import Counter
from pathlib import Path

import pytest

from bakemesh.worker.engines.fake import vector
from bakemesh.workerpool import (
    Call,
    EngineCrashed,
    ModelQuarantined,
    PoolClosed,
    Share,
    Vectors,
    WorkerPoolError,
    budget,
)
from support.processes import children, fd_count, gone
from support.waiting import eventually
from support.workerpools import FAKE, ids, named, pools, scripted, share

ROOMY = budget.Rules(crashes=10_000, lane_crashes=10_000)
HOST = Path(__file__).parents[2] / "support" / "pool_host.py"


@pytest.mark.parametrize("seed", [1, 2])
async def test_with_workers_killed_at_random_each_request_has_exactly_one_right_answer(tmp_path, seed):
    chance, answers = random.Random(seed), {}
    async with pools(tmp_path, scripted("good"), workers=2, budget=ROOMY, poison_s=0.001) as world:
        model, requests, killed = await world.load(), 600, 0

        async def one(number: int) -> None:
            assert number not in answers
            try:
                vectors = await world.pool.embed(
                    model.key, share([number, number + 1]), call=Call(within_s=60)
                )
                answers[number] = bytes(vectors.data) == ids(number, number + 1)
            except EngineCrashed as error:
                answers[number] = error

        waiting = list(range(requests))

        async def caller() -> None:
            while waiting:
                await one(waiting.pop())

        callers = [asyncio.ensure_future(caller()) for _ in range(8)]
        while len(answers) < requests:
            target = chance.randrange(1, 40) + len(answers)
            await eventually(
                lambda target=target: len(answers) >= min(target, requests), within=60, what="answers"
            )
            up = [lane.pid for lane in world.pool.health().lanes if lane.pid is not None]
            if up and len(answers) < requests:
                with contextlib.suppress(ProcessLookupError):  # it is a stamp: that one may be dead already
                    os.kill(chance.choice(up), signal.SIGKILL)
                    killed += 1
        await asyncio.gather(*callers)
        assert killed > 10
        assert set(answers) == set(range(requests))
        wrong = [answer for answer in answers.values() if answer is False]
        assert not wrong
        # Only who was hit twice, in its run and in its one repetition, may have an error.
        assert sum(answer is True for answer in answers.values()) >= requests - killed


MANY = pytest.mark.parametrize(
    "requests", [1_000, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)


def resident_mib() -> float:
    """Of this process, what is garbage given back."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def expected(*tokens: int) -> bytes:
    """The fake engine's vector of an item."""
    return array("f", vector(memoryview(array("i", tokens)), "mean", True, 8)).tobytes()


@MANY
async def test_with_a_crash_every_fifty_requests_each_has_one_answer_in_time_and_nothing_grows(
    tmp_path, requests
):
    within_s, ended, late = 5.0, Counter(), 0.0
    waiting = iter(range(requests))
    async with pools(tmp_path, workers=2, budget=None) as world:
        model = await world.load(exit_code_after="9:50")
        settled = []

        async def caller() -> None:
            nonlocal late
            for number in waiting:
                began = time.monotonic()
                try:
                    vectors = await world.pool.embed(
                        model.key, share([number, 7]), call=Call(within_s=within_s)
                    )
                    ended["right" if bytes(vectors.data) == expected(number, 7) else "wrong"] += 1
                except WorkerPoolError as error:
                    ended[error.code] += 1
                late = max(late, time.monotonic() - began)
                if number == requests // 5:
                    settled.extend((fd_count(), len(children(os.getpid())), resident_mib()))

        await asyncio.gather(*(caller() for _ in range(4)))
        crashes = sum(lane.starts for lane in world.pool.health().lanes) - 2
        assert crashes >= requests // 51
        assert ended.total() == requests
        assert not ended["wrong"]
        assert ended["right"] >= 0.97 * requests, ended
        assert late <= 2 * within_s
        await eventually(lambda: all(lane.pid for lane in world.pool.health().lanes))
        assert len(children(os.getpid())) <= settled[1] + 2
        assert fd_count() <= settled[0] + 12  # of a worker that comes up: a listener, a socket, pipes
        assert resident_mib() - settled[2] < 8
        assert not world.pool.health().queued


@MANY
async def test_with_budgets_the_third_crash_is_the_last_until_a_probe_and_every_answer_is_typed(
    tmp_path, requests
):
    """R right, C the crash that is told, Q quarantined; P between two: a probe, which is a run of its own."""
    told, refused, pauses = "", 0, set()
    async with pools(tmp_path, ping_every_s=3600.0) as world:
        model = await world.load(exit_code_after="9:50")
        for number in range(requests):
            try:
                vectors = await world.pool.embed(model.key, share([number, 7]))
                told += "R" if bytes(vectors.data) == expected(number, 7) else "wrong"
                refused = 0
            except ModelQuarantined as error:
                told, refused = told + "Q", refused + 1
                pauses.add(error.retry_after_s)
            except EngineCrashed as error:
                told += "C" if error.exit_code == 9 else "other"
            if refused == 100:
                assert await world.pool.probe(model.key)
                told += "P"
        starts = world.pool.health().lanes[0].starts
    # Each life of the worker answers 49; the first two crashes are run again, the third quarantines, and so
    # does the first after a probe.
    assert re.fullmatch(r"R{147}C(Q{100}PR{48}C)*(Q{0,100}P?|Q{100}PR{0,48})", told), told
    assert len(told) - told.count("P") == requests
    assert starts - 2 - told.count("C") in (0, 1)
    assert all(0 < each <= 900 for each in pauses)


async def test_a_pool_closed_under_load_answers_everybody_and_leaves_nothing(tmp_path):
    async with pools(tmp_path, workers=2) as world:
        model = await world.load(slow_ms="50")
        calls = [
            asyncio.ensure_future(world.pool.embed(model.key, share([number + 1]))) for number in range(50)
        ]
        await eventually(lambda: any(call.done() for call in calls))
        await world.pool.close()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(result, Vectors | PoolClosed) for result in results)
        assert any(isinstance(result, PoolClosed) for result in results)
        with pytest.raises(PoolClosed):
            await world.pool.embed(model.key, share([1]))
        assert not named(str(tmp_path))
        assert not list((tmp_path / "run").rglob("*.sock"))


async def test_what_runs_has_its_grace_when_the_pool_is_closed(tmp_path):
    async with pools(tmp_path) as world:
        model = await world.load(slow_ms="300")
        running = asyncio.ensure_future(world.pool.embed(model.key, share([1])))
        await eventually(lambda: world.pool.health().lanes[0].busy_s)
        await world.pool.close(grace_s=30)
        assert (await running).n == 1


async def test_a_drained_pool_takes_nothing_new_and_answers_what_it_has(tmp_path):
    async with pools(tmp_path) as world:
        model = await world.load(slow_ms="50")
        calls = [asyncio.ensure_future(world.pool.embed(model.key, share([n + 1]))) for n in range(4)]
        await eventually(lambda: world.pool.health().queued)
        assert await world.pool.drain(30)
        assert all(call.done() and call.exception() is None for call in calls)
        with pytest.raises(PoolClosed):
            await world.pool.embed(model.key, share([1]))


async def test_a_worker_that_ignores_shutdown_and_one_that_is_stopped_are_killed_at_close(tmp_path):
    async with pools(tmp_path, scripted("no_shutdown"), workers=2) as world:
        await eventually(lambda: all(lane.pid for lane in world.pool.health().lanes))
        pids = [world.pid(0), world.pid(1)]
        os.kill(pids[1], signal.SIGSTOP)
        await world.pool.close()
        assert all(gone(pid) for pid in pids)


async def test_a_pool_closed_while_its_workers_come_up_leaves_none(tmp_path):
    chance = random.Random(3)
    for _ in range(6):
        async with pools(tmp_path, scripted("good"), workers=3):
            for _ in range(chance.randrange(200)):
                await asyncio.sleep(0)
        assert not named(str(tmp_path))


async def test_a_pool_closed_right_after_its_workers_were_killed_ends_and_leaves_none(tmp_path):
    chance = random.Random(4)
    for _ in range(6):
        async with pools(tmp_path, scripted("good"), workers=2) as world:
            await eventually(lambda world=world: all(lane.pid for lane in world.pool.health().lanes))
            for number in range(2):
                os.kill(world.pid(number), signal.SIGKILL)
            for _ in range(chance.randrange(400)):
                await asyncio.sleep(0)
        assert not named(str(tmp_path))


@pytest.mark.parametrize("mood", ["hang", "load"])
async def test_when_the_host_is_killed_its_workers_die_even_where_they_hang(tmp_path, mood):
    host = await asyncio.create_subprocess_exec(
        sys.executable, str(HOST), str(tmp_path), mood, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert host.stdout is not None
        async with asyncio.timeout(90):
            workers = json.loads(await host.stdout.readline())
        assert len(workers) == 2
        assert not any(gone(pid) for pid in workers)
        host.kill()
        await host.wait()
        await eventually(lambda: all(gone(pid) for pid in workers), what="the workers' death")
    finally:
        if host.returncode is None:
            host.kill()
            await host.wait()
    # The next host takes the same folder, whatever was left in it.
    async with pools(tmp_path, FAKE) as world:
        model = await world.load()
        assert (await world.pool.embed(model.key, share([1]))).n == 1


async def test_cancels_at_any_moment_leave_the_worker_and_no_answer_to_another(tmp_path):
    chance = random.Random(7)
    async with pools(tmp_path, workers=2) as world:
        model = await world.load(slow_ms="2", endless="yes")
        await eventually(lambda: all(lane.pid for lane in world.pool.health().lanes))
        pids = [lane.pid for lane in world.pool.health().lanes]

        async def one(number: int) -> None:
            call = Call(within_s=60)
            running = asyncio.ensure_future(
                world.pool.generate(model.key, ids(number), chance.randrange(1, 20), call=call)
            )
            how = chance.randrange(4)
            for _ in range(chance.randrange(30)):
                await asyncio.sleep(0)
            if how == 0:
                call.cancel()
            elif how == 1:
                running.cancel()
            elif how == 2:
                call.within_s = 0.01
            try:
                text = await running
                assert set(text.text.split()) <= {str(number)}
            except (WorkerPoolError, asyncio.CancelledError):
                pass

        for start in range(0, 120, 6):
            await asyncio.gather(*(one(1000 + start + n) for n in range(6)))
        assert [lane.pid for lane in world.pool.health().lanes] == pids
        assert not any(lane.last_crash for lane in world.pool.health().lanes)


async def test_a_frame_of_64_mib_goes_both_ways(tmp_path):
    tokens = (64 << 20) // 4
    data = os.urandom(1 << 20) * 64
    async with pools(tmp_path, scripted("good")) as world:
        model = await world.load()
        vectors = await world.pool.embed(model.key, Share([tokens], data))
        assert vectors.dims == tokens
        assert vectors.data == data
