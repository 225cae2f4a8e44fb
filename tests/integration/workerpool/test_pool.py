"""A pool of our own workers, fake engine, real processes: what its users can count on."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from array import array
from dataclasses import replace

import pytest

from bakemesh.protocol.worker import headers as h
from bakemesh.worker.engines.fake import score, vector
from bakemesh.workerpool import (
    ArtifactInvalid,
    BadRequest,
    Call,
    Cancelled,
    LaneBusy,
    Sampling,
    Text,
    Token,
    Vectors,
)
from bakemesh.workerpool.job import Job
from support.waiting import eventually
from support.workerpools import floats, ids, pools, scripted, share


def expected(*tokens: int, pooling: str = "mean") -> list[float]:
    """The fake engine's vector of an item."""
    return array("f", vector(memoryview(array("i", tokens)), pooling, True, 8)).tolist()


async def test_each_request_gives_what_the_engine_makes_of_its_ids(tmp_path):
    async with pools(tmp_path) as world:
        pool, model = world.pool, await world.load()
        assert model.dims == 8
        vectors = await pool.embed(model.key, share([1, 2, 3], [4]))
        assert floats(vectors.data) == expected(1, 2, 3) + expected(4)
        scores = await pool.rerank(model.key, 2, [1, 2], ids(7, 8, 1, 2, 3))
        query = memoryview(array("i", [7, 8]))
        wanted = [score(query, memoryview(array("i", each))) for each in ([1], [2, 3])]
        assert floats(scores) == array("f", wanted).tolist()
        text = await pool.generate(model.key, ids(7, 8, 9), 10)
        assert text == Text("7 8 9 ", 3, 3, "stop")
        parts = [part async for part in pool.generate_stream(model.key, ids(7, 8), 9, Sampling(seed=1))]
        assert parts == [Token(0, "8 "), Token(1, "9 "), Text("8 9 ", 2, 2, "stop")]
        info = await pool.info(model.key)
        assert (info.dims, info.n_vocab) == (8, 32_000)


async def test_callers_in_one_batch_get_their_own_rows(tmp_path):
    async with pools(tmp_path) as world:
        model = await world.load()
        shares = [share([1], [2, 3]), share([4, 5, 6]), share([7])]
        found = await world.pool.embed_batch(model.key, shares)
        assert [floats(each.data) for each in found if isinstance(each, Vectors)] == [
            expected(1) + expected(2, 3),
            expected(4, 5, 6),
            expected(7),
        ]


async def test_work_goes_over_all_workers_and_a_model_is_never_loaded_twice_at_a_time(tmp_path):
    async with pools(tmp_path, workers=2) as world:
        model = await world.load(slow_load_ms="200", slow_ms="20")
        overlaps = []

        async def watch() -> None:
            while True:
                overlaps.append(sum(lane.loading is not None for lane in world.pool.lanes))
                await asyncio.sleep(0)

        watching = asyncio.ensure_future(watch())
        await asyncio.gather(*(world.pool.embed(model.key, share([n + 1])) for n in range(40)))
        watching.cancel()
        assert max(overlaps) == 1
        assert world.pool.health().models[0].lanes == ("w0", "w1")


async def test_a_killed_idle_worker_is_replaced_and_its_models_are_loaded_when_they_are_asked(tmp_path):
    async with pools(tmp_path) as world:
        model, pid = await world.load(), world.pid()
        os.kill(pid, signal.SIGKILL)
        assert floats((await world.pool.embed(model.key, share([5]))).data) == expected(5)
        assert world.pid() != pid
        health = world.pool.health()
        assert health.state == "ok"
        assert not health.models[0].quarantined


async def test_unload_gives_it_back_on_every_worker(tmp_path):
    async with pools(tmp_path, workers=2, ping_every_s=0.1) as world:
        model = await world.load(slow_ms="20")
        await asyncio.gather(*(world.pool.embed(model.key, share([n + 1])) for n in range(10)))
        await eventually(lambda: [lane.models_loaded for lane in world.pool.health().lanes] == [1, 1])
        await world.pool.unload(model.key)
        assert all(not lane.models for lane in world.pool.health().lanes)
        await eventually(lambda: [lane.models_loaded for lane in world.pool.health().lanes] == [0, 0])


async def test_an_occupied_lane_answers_at_once_where_nobody_wants_to_wait(tmp_path):
    async with pools(tmp_path, workers=2) as world:
        model = await world.load(slow_ms="500")
        running = asyncio.ensure_future(world.pool.embed(model.key, share([1]), call=Call(lane="w0")))
        await eventually(lambda: world.pool.health().lanes[0].busy_s)
        with pytest.raises(LaneBusy) as caught:
            await world.pool.embed(model.key, share([2]), call=Call(lane="w0", queue_s=0))
        assert caught.value.code == "lane_busy"
        assert not running.done()
        with pytest.raises(BadRequest, match="w0, w1"):
            await world.pool.embed(model.key, share([2]), call=Call(lane="w7"))
        await running


async def test_a_queued_request_that_is_cancelled_never_runs(tmp_path):
    async with pools(tmp_path) as world:
        model, call = await world.load(slow_ms="200"), Call()
        running = asyncio.ensure_future(world.pool.embed(model.key, share([1])))
        await eventually(lambda: world.pool.health().lanes[0].busy_s)
        queued = asyncio.ensure_future(world.pool.embed(model.key, share([2]), call=call))
        await eventually(lambda: world.pool.health().queued == 1)
        call.cancel()
        with pytest.raises(Cancelled):
            await queued
        assert (await running).n == 1
        assert (await world.pool.embed(model.key, share([3]))).n == 1


async def test_a_load_survives_its_caller(tmp_path):
    async with pools(tmp_path) as world:
        loading = asyncio.ensure_future(world.load(slow_load_ms="300"))
        await eventually(lambda: world.pool.lanes[0].loading)
        loading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await loading
        again = await world.load(slow_load_ms="300")
        assert again.dims == 8
        assert world.pool.health().lanes[0].starts == 1


async def test_the_path_that_a_model_was_loaded_from_last_is_where_it_is_loaded_from_again(tmp_path):
    async with pools(tmp_path) as world:
        model = await world.load()
        moved = replace(world.artifact, path=world.artifact.path.rename(tmp_path / "moved"))

        async def lose() -> None:
            pid = world.pid()
            os.kill(pid, signal.SIGKILL)
            await eventually(lambda: world.pool.health().lanes[0].pid not in (None, pid))

        await lose()
        with pytest.raises(ArtifactInvalid):
            await world.pool.embed(model.key, share([1]))
        assert (await world.pool.load(moved, {})).key == model.key
        await lose()
        with pytest.raises(ArtifactInvalid):  # of nobody's model but his who named it
            await world.pool.load(replace(moved, path=tmp_path / "nowhere"), {})
        assert (await world.pool.embed(model.key, share([1]))).n == 1


async def test_types_that_a_worker_says_it_knows_are_told_in_health(tmp_path):
    async with pools(tmp_path) as world:
        lane = world.pool.health().lanes[0]
        assert lane.types == tuple(sorted(h.ADDED_TYPES))
        assert lane.engine == "fake 1"
    async with pools(tmp_path, scripted("good")) as world:
        assert world.pool.health().lanes[0].types == ()


async def test_a_request_that_is_over_is_held_by_nothing(tmp_path):
    async with pools(tmp_path) as world:
        model = await world.load()
        gc.collect()
        gc.disable()  # what lives on is held, or in a cycle
        try:
            for number in range(20):
                await world.pool.embed(model.key, share([number + 1]))
            assert sum(type(each) is Job for each in gc.get_objects()) <= 1
        finally:
            gc.enable()
