"""Lanes of a pool, one request at a time: who has the turn; and what a pool tells of changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bakemesh.workerpool import (
    BadRequest,
    Call,
    EngineCrashed,
    LaneBusy,
    RequestPoisoned,
    Turns,
    Vectors,
    WorkerUnavailable,
)
from support.waiting import eventually
from support.workerpools import pools, share


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_turn_is_one_requests_and_others_are_refused_at_once(tmp_path: Path) -> None:
    async with pools(tmp_path, workers=2) as world:
        turns = Turns(world.pool)
        await eventually(lambda: all(turns.free(lane) for lane in world.pool.lanes), what="both lanes")
        key = world.pool.know(world.artifact, {})
        with turns.taken("w0", now(), Call()) as call:
            with pytest.raises(LaneBusy), turns.taken("w0", now(), Call()):
                pass
            assert turns.since("w0") is not None
            await world.pool.embed(key, share([1]), call=call)
            with turns.taken("w1", now(), Call()) as other:
                await world.pool.embed(key, share([2]), call=other)
        assert turns.since("w0") is None
        assert [sorted(lane.refs) for lane in world.pool.lanes] == [[key], [key]]
        with pytest.raises(BadRequest, match="there are w0, w1"):
            turns.check("w9")


async def test_a_lane_that_works_for_nobody_any_more_or_is_down_is_refused(tmp_path: Path) -> None:
    async with pools(tmp_path) as world:
        turns = Turns(world.pool)
        key = world.pool.know(world.artifact, {"slow_ms": "500", "abort_on_item": "6"})
        with (
            pytest.raises(Exception, match="were over"),
            turns.taken("w0", now(), Call(within_s=0.1)) as call,
        ):
            await world.pool.embed(key, share([1]), call=call)
        with pytest.raises(LaneBusy):
            turns.check("w0")
        await eventually(lambda: turns.free(world.pool.lanes[0]), what="the lane free")
        with pytest.raises(EngineCrashed), turns.taken("w0", now(), Call(attempt=1)) as call:
            await world.pool.embed(key, share([6]), call=call)
        with pytest.raises(WorkerUnavailable):
            turns.check("w0")


async def test_where_somebody_upstream_repeats_a_batch_is_run_apart_on_its_lane_and_nothing_else_is(
    tmp_path: Path,
) -> None:
    async with pools(tmp_path, redispatch=False) as world:
        turns = Turns(world.pool)
        key = world.pool.know(world.artifact, {"abort_on_item": "6"})
        with turns.taken("w0", now(), Call()) as call:
            found = await world.pool.embed_batch(key, [share([1]), share([6]), share([2])], call=call)
        assert isinstance(found[0], Vectors)
        assert isinstance(found[1], RequestPoisoned)
        assert isinstance(found[2], Vectors)
        await eventually(lambda: turns.free(world.pool.lanes[0]), what="the lane up")
        with pytest.raises(EngineCrashed) as crash, turns.taken("w0", now(), Call()) as call:
            await world.pool.embed(key, share([6, 1]), call=call)
        assert not isinstance(crash.value, RequestPoisoned)  # it was run once


async def test_closed_turns_are_given_to_nobody_and_the_last_one_is_waited_for(tmp_path: Path) -> None:
    async with pools(tmp_path) as world:
        turns = Turns(world.pool)
        assert await turns.idle(0)
        with turns.taken("w0", now(), Call()):
            turns.close()
            assert not await turns.idle(0.01)
            waiting = asyncio.create_task(turns.idle(60))
            await asyncio.sleep(0)
        assert await waiting
        with pytest.raises(LaneBusy, match="ending"):
            turns.check("w0")


async def test_changes_are_told_and_unload_of_one_lane_is_of_one_lane(tmp_path: Path) -> None:
    async with pools(tmp_path, workers=2) as world:
        told: list[frozenset[str]] = []
        pool = world.pool

        def changed() -> None:
            told.append(frozenset(lane.name for lane in pool.lanes if lane.refs))

        pool.watch(changed)
        loaded = await world.load()
        for name in ("w0", "w1"):
            await pool.load(world.artifact, {}, Call(lane=name))
        await eventually(lambda: told and told[-1] == {"w0", "w1"}, what="both told")
        await pool.unload(loaded.key, Call(lane="w0"))
        await eventually(lambda: told[-1] == {"w1"}, what="one told")
        assert pool.artifact(loaded.key) is not None
        assert list(pool.known()) == [loaded.key]
        await pool.unload(loaded.key)
        assert pool.artifact(loaded.key) is None
