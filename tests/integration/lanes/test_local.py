"""Lanes of this process: the same promises as those on the bus, kept by a pool."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bakemesh.protocol.inference.errors import Code
from bakemesh.synapse.lanes.base import LaneFailed
from bakemesh.synapse.lanes.local import LocalLanes
from bakemesh.synapse.lanes.several import SeveralLanes
from bakemesh.worker.engines.fake import vector
from bakemesh.workerpool import Artifact, Call, Sampling, Settings, Text, Token, Vectors
from support.lanehosts import embed, lanehost, module, numbers
from support.nats import server
from support.waiting import eventually
from support.workerpools import FAKE, PATIENT, ids, share


def model(folder: Path) -> Artifact:
    file = folder / "model"
    file.write_bytes(b"any file")
    digest = "sha256:" + hashlib.sha256(b"any file").hexdigest()
    return Artifact(path=file, digest=digest, format="fake")


def settings(folder: Path, workers: int = 2) -> Settings:
    return Settings(runtime_dir=folder / "run", command=FAKE, workers=workers, **PATIENT)


@pytest.fixture
async def lanes(tmp_path: Path) -> AsyncIterator[LocalLanes]:
    made = LocalLanes(settings(tmp_path), "alpha")
    await made.start()
    try:
        await eventually(lambda: all(each.idle for each in made.views()), what="both lanes")
        yield made
    finally:
        await made.close()


async def test_every_verb(lanes: LocalLanes, tmp_path: Path) -> None:
    key = lanes.know(model(tmp_path), {}, 8)
    first, second = (each.name for each in lanes.views())
    assert (first, second) == ("alpha/w0", "alpha/w1")
    await lanes.load(first, key, Call())
    assert [each.loaded for each in lanes.views()] == [frozenset({key}), frozenset()]
    found = await lanes.embed_batch(first, key, [share([1, 2]), share([3])], "mean", False, Call())
    assert [numbers(each) for each in found if isinstance(each, Vectors)] == [
        pytest.approx(list(vector(each, "mean", False))) for each in ([1, 2], [3])
    ]
    assert len(await lanes.rerank(second, key, 1, [1, 1], ids(1, 2, 3), Call())) == 8
    assert await lanes.generate(first, key, ids(7), 5, Call()) == Text("7 ", 1, 1, "stop")
    stream = lanes.generate_stream(first, key, ids(7), 5, Sampling(), Call())
    assert [each async for each in stream] == [Token(0, "7 "), Text("7 ", 1, 1, "stop")]
    await lanes.unload(first, key, Call())
    assert [key in each.loaded for each in lanes.views()] == [False, True]
    assert await lanes.probe(key, Call())


async def test_an_occupied_lane_refuses_at_once_and_changes_are_told(
    lanes: LocalLanes, tmp_path: Path
) -> None:
    key = lanes.know(model(tmp_path), {"endless": "yes", "slow_ms": "20"}, 8)
    told: list[str] = []
    lanes.watch(lambda: told.append(lanes.views()[0].state))
    stream: Any = lanes.generate_stream("alpha/w0", key, ids(7), 100_000, Sampling(), Call())
    await anext(stream)
    assert not lanes.views()[0].idle
    with pytest.raises(LaneFailed) as refused:
        await lanes.embed_batch("alpha/w0", key, [share([1])], "mean", False, Call())
    assert refused.value.error.code == Code.LANE_BUSY
    assert not refused.value.begun
    await stream.aclose()
    await eventually(lambda: told[-1] == "idle", what="the lane told idle")
    assert "busy" in told


async def test_a_poison_share_is_told_and_the_others_are_answered(lanes: LocalLanes, tmp_path: Path) -> None:
    key = lanes.know(model(tmp_path), {"abort_on_item": "6"}, 8)
    found = await lanes.embed_batch("alpha/w0", key, [share([1]), share([6])], "mean", False, Call())
    assert isinstance(found[0], Vectors)
    assert isinstance(found[1], LaneFailed)
    assert not found[1].crashed
    assert not found[1].error.safe_to_retry


async def test_a_crash_may_be_run_once_more_by_the_module_and_is_not_run_here(
    lanes: LocalLanes, tmp_path: Path
) -> None:
    key = lanes.know(model(tmp_path), {"exit_code_after": "3:1"}, 8)
    with pytest.raises(LaneFailed) as crash:
        await embed(lanes, "alpha/w0", key, [1])
    assert crash.value.crashed
    assert crash.value.error.details["exit_code"] == 3


async def test_closing_ends_what_runs(tmp_path: Path) -> None:
    lanes = LocalLanes(settings(tmp_path, 1), "alpha")
    key = lanes.know(model(tmp_path), {"hang_on_item": "9"}, 8)  # before they are started
    await lanes.start()
    asking = asyncio.create_task(embed(lanes, "alpha/w0", key, [9]))
    await eventually(lambda: lanes.views()[0].state == "busy" and lanes.views()[0].loaded, what="it runs")
    await lanes.close()
    with pytest.raises(LaneFailed) as ended:
        await asking
    assert ended.value.error.code == Code.MODULE_RESTARTED


async def test_both_kinds_are_one(tmp_path: Path) -> None:
    async with (
        server(tmp_path) as nats,
        lanehost(tmp_path, nats.url),
        module(tmp_path, nats.url) as mine,
    ):
        local = LocalLanes(settings(tmp_path, 1), "alpha")
        both = SeveralLanes(local, mine.lanes)
        await local.start()
        try:
            key = both.know(mine.artifact(), {}, 8)
            wanted = ["alpha/w0", "gamma/lanes-w0"]

            def idle() -> list[str]:
                return sorted(each.name for each in both.views() if each.idle)

            await eventually(lambda: idle() == wanted, what="a lane of each kind")
            for name in wanted:
                assert (await embed(both, name, key, [1])).n == 1
            with pytest.raises(LaneFailed, match="no lane nowhere/x"):
                await embed(both, "nowhere/x", key, [1])
            assert await both.probe(key, Call())
        finally:
            await local.close()
