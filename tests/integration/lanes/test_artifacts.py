"""An artifact that a lane host lacks is pulled from the module that has it, piece by piece, and verified."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bakemesh.artifacts import Cache
from bakemesh.bus.errors import BusError
from bakemesh.protocol.inference.errors import Code
from bakemesh.synapse.lanes.base import LaneFailed
from bakemesh.workerpool import Call
from support.lanehosts import Module, embed, lanehost, module
from support.nats import server
from support.waiting import eventually

BIG = random.Random(5).randbytes(3_000_001)  # several pieces, the last one short


@asynccontextmanager
async def hosted(folder: Path, *flags: str, workers: int = 1) -> AsyncIterator[Module]:
    async with (
        server(folder) as nats,
        lanehost(folder, nats.url, "gamma", *flags, workers=workers),
        module(folder, nats.url) as made,
    ):
        yield made


async def test_the_file_comes_in_pieces_and_is_the_same(tmp_path: Path) -> None:
    async with hosted(tmp_path) as mine:
        key = mine.know(BIG)
        (lane,) = await mine.idle()
        await embed(mine.lanes, lane, key, [1])
        kept = Cache(tmp_path / "state-gamma" / "lanes" / "cache").path(f"sha256:{key.digest}")
        assert kept is not None
        assert kept.read_bytes() == BIG
        half = mine.bus.max_payload // 2
        assert sorted(each.offset for each in mine.served) == list(range(0, len(BIG), half))


async def test_what_is_there_is_not_pulled_again_even_by_another_host_of_the_same_cache(
    tmp_path: Path,
) -> None:
    async with server(tmp_path) as nats, module(tmp_path, nats.url) as mine:
        key = mine.know()
        for node_id in ("gamma", "delta"):
            async with lanehost(tmp_path, nats.url, node_id, f"--cache={tmp_path / 'shared'}"):
                await embed(mine.lanes, (await mine.idle())[0], key, [1])
            assert len(mine.served) == 1
            await eventually(lambda: not mine.lanes.views(), what="the end of the host")


async def test_two_lanes_that_need_one_artifact_pull_it_once(tmp_path: Path) -> None:
    async with hosted(tmp_path, workers=2) as mine:
        key = mine.know(BIG)
        lanes = await mine.idle(2)
        await asyncio.gather(*(embed(mine.lanes, lane, key, [1]) for lane in lanes))
        assert len(mine.served) == len({each.offset for each in mine.served})


async def test_a_broken_artifact_reaches_no_worker_and_is_not_kept(tmp_path: Path) -> None:
    async with hosted(tmp_path) as mine:
        key = mine.know(BIG)
        (lane,) = await mine.idle()
        mine.tamper = lambda data: bytes([data[0] ^ 1]) + data[1:]
        with pytest.raises(LaneFailed) as refused:
            await embed(mine.lanes, lane, key, [1])
        assert refused.value.error.code == Code.ARTIFACT_INVALID
        assert not refused.value.begun
        folder = tmp_path / "state-gamma" / "lanes" / "cache"
        assert [each for each in folder.rglob("*") if each.is_file()] == []
        mine.tamper = None  # a later request has it whole
        assert (await embed(mine.lanes, lane, key, [1])).n == 1


async def test_a_deadline_during_the_pull_is_model_loading_and_the_pull_goes_on(tmp_path: Path) -> None:
    async with hosted(tmp_path) as mine:
        key = mine.know(BIG)
        (lane,) = await mine.idle()
        given: list[Any] = []
        release = asyncio.Event()
        serve = mine.serve

        async def slow(delivery: Any) -> Any:
            given.append(delivery)
            await release.wait()
            return await serve(delivery)

        await _serve_instead(mine, slow)
        with pytest.raises(LaneFailed) as late:
            await embed(mine.lanes, lane, key, [1], within_s=0.5)
        assert late.value.error.code in (Code.MODEL_LOADING, Code.DEADLINE_EXCEEDED)
        call = Call()
        second = asyncio.create_task(mine.lanes.load(await _again(mine, lane), key, call))
        release.set()
        await second
        assert sum(each.received.message.offset == 0 for each in given) == 1


async def _again(mine: Module, lane: str) -> str:
    assert lane in await mine.idle()
    return lane


async def _serve_instead(mine: Module, handler: Any) -> None:
    """Puts another one in the place of who gives the pieces."""
    await mine.serving.stop()
    mine.serving = await mine.bus.serve(mine.serving.pattern, handler)


async def test_a_node_that_has_no_artifacts_to_give_is_named(tmp_path: Path) -> None:
    async with hosted(tmp_path) as mine:
        key = mine.know()
        (lane,) = await mine.idle()
        await mine.serving.stop()
        with pytest.raises(LaneFailed) as refused:
            await embed(mine.lanes, lane, key, [1])
        assert refused.value.error.code == Code.MODEL_LOADING
        assert "from node alpha" in refused.value.error.message
        assert not refused.value.begun


async def test_a_cancel_during_the_pull_frees_the_lane(tmp_path: Path) -> None:
    async with hosted(tmp_path) as mine:
        key = mine.know()
        (lane,) = await mine.idle()
        begun = asyncio.Event()

        async def never(delivery: Any) -> Any:
            begun.set()
            await asyncio.Event().wait()

        await _serve_instead(mine, never)
        call = Call()
        asking = asyncio.create_task(mine.lanes.load(lane, key, call))
        await begun.wait()
        call.cancel()
        with pytest.raises(LaneFailed) as cancelled:
            await asking
        assert cancelled.value.error.code == Code.CANCELLED
        assert lane in await mine.idle()
        assert not isinstance(cancelled.value.__cause__, BusError)
