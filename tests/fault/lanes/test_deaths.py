"""Lane hosts, workers, links and modules that die under load: each request has exactly one end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bakemesh.protocol.inference import lanes as m
from bakemesh.protocol.inference.errors import Code
from bakemesh.protocol.subjects import build
from bakemesh.synapse.lanes.base import LaneFailed
from bakemesh.worker.engines.fake import vector
from bakemesh.workerpool import Call, Sampling, Token
from support.lanehosts import Module, embed, lanehost, module, numbers
from support.nats import TcpLink, server
from support.processes import gone
from support.waiting import eventually
from support.workerpools import ids

WITHIN_S = 60.0  # for what is bounded by the silence of a lane


async def pid_of(mine: Module, lane: str) -> int:
    """The lane's worker."""
    node_id, _, key = lane.partition("/")
    subject = build(mine.bus.mesh, node_id, mine.bus.settings.party, key, m.LaneAsked.TYPE)
    answer: Any = (await mine.bus.request(subject, m.LaneAsked(), 20)).message
    return int(answer.lane["pid"])


class Load:
    """Requests without a pause on every idle lane; counts how each ended."""

    def __init__(self, mine: Module, key: Any) -> None:
        self.mine, self.key = mine, key
        self.ends: Counter[str] = Counter()
        self.asked = 0
        self.wrong: list[Any] = []
        self.failures: list[LaneFailed] = []
        self._stop = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until `stop`."""
        while not self._stop:
            for view in self.mine.lanes.views():
                if view.idle:
                    task = asyncio.create_task(self._one(view.name, self.asked))
                    self.asked += 1
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(0)

    async def _one(self, lane: str, number: int) -> None:
        item = [number % 1000 + 1, 5]
        try:
            found = await embed(self.mine.lanes, lane, self.key, item, within_s=WITHIN_S)
        except LaneFailed as error:
            self.ends[error.error.code] += 1
            self.failures.append(error)
            return
        self.ends["answered"] += 1
        if numbers(found) != pytest.approx(list(vector(item, "mean", False))):
            self.wrong.append(item)

    async def stop(self) -> None:
        """Returns when every request has its end."""
        self._stop = True
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=WITHIN_S)

    def judge(self) -> None:
        """One end each, and no answer of another one's."""
        assert not self._tasks, "requests without an end"
        assert sum(self.ends.values()) == self.asked
        assert self.wrong == []


async def test_a_host_that_is_killed_under_load_ends_each_request_once_and_comes_back(tmp_path: Path) -> None:
    async with (
        server(tmp_path) as nats,
        lanehost(tmp_path, nats.url, "gamma", workers=2) as host,
        lanehost(tmp_path, nats.url, "delta") as other,
        module(tmp_path, nats.url) as mine,
    ):
        key = mine.know(slow_ms="5")
        await mine.idle(3)
        load = Load(mine, key)
        running = asyncio.create_task(load.run())
        await eventually(lambda: load.ends["answered"] > 20, what="some answers")
        pids = [await pid_of(mine, f"gamma/lanes-w{number}") for number in (0, 1)]
        await host.kill9()
        await eventually(lambda: all(gone(pid) for pid in pids), what="the death of its workers")
        done = load.ends["answered"]
        await eventually(lambda: load.ends["answered"] > done + 20, what="work on the other node")
        await eventually(
            lambda: not [each for each in mine.lanes.views() if each.node_id == "gamma"],
            what="the lanes that nobody answers for are forgotten",
        )
        await host.start()
        await eventually(lambda: len(mine.lanes.views()) == 3, what="its lanes again")
        await load.stop()
        await running
        load.judge()
        assert set(load.ends) <= {"answered", Code.MODULE_RESTARTED, Code.LANE_BUSY}
        for failure in load.failures:
            if failure.error.code == Code.MODULE_RESTARTED:
                assert failure.crashed  # it may be run once more
            else:
                assert not failure.begun
        assert other.process is not None


async def test_a_request_on_a_host_that_dies_is_given_up_when_it_is_silent(tmp_path: Path) -> None:
    async with (
        server(tmp_path) as nats,
        lanehost(tmp_path, nats.url) as host,
        module(tmp_path, nats.url) as mine,
    ):
        key = mine.know(hang_on_item="9")
        (lane,) = await mine.idle()
        asking = asyncio.create_task(embed(mine.lanes, lane, key, [9]))
        await eventually(lambda: mine.view(lane).state == "busy" and mine.served, what="the request there")
        await host.kill9()
        with pytest.raises(LaneFailed, match="has been silent") as lost:
            await asking
        assert lost.value.error.code == Code.MODULE_RESTARTED
        assert lost.value.crashed
        assert mine.lanes.views() == []


async def test_a_host_that_is_started_anew_gives_its_requests_up_at_once(tmp_path: Path) -> None:
    async with (
        server(tmp_path) as nats,
        lanehost(tmp_path, nats.url) as host,
        module(tmp_path, nats.url) as mine,
    ):
        key = mine.know(hang_on_item="9")
        (lane,) = await mine.idle()
        asking = asyncio.create_task(embed(mine.lanes, lane, key, [9]))
        await eventually(lambda: mine.view(lane).state == "busy" and mine.served, what="the request there")
        await host.kill9()
        await host.start()
        with pytest.raises(LaneFailed, match=r"started anew|silent"):
            await asking
        assert (await embed(mine.lanes, (await mine.idle())[0], key, [1])).n == 1


async def test_a_worker_that_is_killed_is_told_with_its_signal_and_the_lane_comes_back(
    tmp_path: Path,
) -> None:
    async with (
        server(tmp_path) as nats,
        lanehost(tmp_path, nats.url),
        module(tmp_path, nats.url) as mine,
    ):
        key = mine.know(endless="yes", slow_ms="10")
        (lane,) = await mine.idle()
        stream: Any = mine.lanes.generate_stream(lane, key, ids(7), 100_000, Sampling(), Call())
        assert await anext(stream) == Token(0, "7 ")
        os.kill(await pid_of(mine, lane), signal.SIGKILL)
        with pytest.raises(LaneFailed) as crash:
            async for _ in stream:
                pass
        assert crash.value.error.code == Code.ENGINE_CRASHED
        assert crash.value.error.details["signal"] == 9
        assert crash.value.error.details["stage"] == "generate"
        assert not crash.value.error.safe_to_retry  # a part of its text was given
        (again,) = await mine.idle()
        assert (await mine.lanes.generate(again, key, ids(5), 1, Call())).text == "5 "


async def test_a_link_that_is_cut_loses_no_request_and_the_lanes_come_back(tmp_path: Path) -> None:
    async with server(tmp_path) as nats:
        link = TcpLink(("127.0.0.1", int(nats.url.rpartition(":")[2])))
        await link.start()
        try:
            async with lanehost(tmp_path, link.url), module(tmp_path, nats.url) as mine:
                key = mine.know(slow_ms="5")
                await mine.idle()
                load = Load(mine, key)
                running = asyncio.create_task(load.run())
                await eventually(lambda: load.ends["answered"] > 20, what="some answers")
                await link.cut()
                await eventually(lambda: not mine.lanes.views(), what="the lane forgotten", within=WITHIN_S)
                await link.heal()
                done = load.ends["answered"]
                await eventually(lambda: load.ends["answered"] > done + 20, what="answers again")
                await load.stop()
                await running
                load.judge()
        finally:
            await link.close()


async def test_an_answer_that_the_link_lost_is_given_up_by_what_the_lane_says(tmp_path: Path) -> None:
    async with server(tmp_path) as nats:
        link = TcpLink(("127.0.0.1", int(nats.url.rpartition(":")[2])))
        await link.start()
        try:
            async with lanehost(tmp_path, nats.url), module(tmp_path, link.url) as mine:
                key = mine.know(slow_ms="300")
                (lane,) = await mine.idle()
                await mine.lanes.load(lane, key, Call())
                asking = asyncio.create_task(embed(mine.lanes, lane, key, [9]))
                await eventually(lambda: mine.view(lane).state == "busy", what="the request there")
                await link.cut()
                await asyncio.wait([asking], timeout=1)  # its answer goes to nobody
                await link.heal()
                with pytest.raises(LaneFailed) as lost:
                    await asking
                assert lost.value.error.code == Code.MODULE_RESTARTED
                assert lost.value.crashed
                (again,) = await mine.idle()
                assert (await embed(mine.lanes, again, key, [1])).n == 1
        finally:
            await link.close()


async def test_a_module_that_dies_frees_the_lane_of_its_stream(tmp_path: Path) -> None:
    async with server(tmp_path) as nats:
        link = TcpLink(("127.0.0.1", int(nats.url.rpartition(":")[2])))
        await link.start()
        try:
            async with (
                lanehost(tmp_path, nats.url),
                module(tmp_path, nats.url) as mine,
                module(tmp_path, link.url, "beta", name="other") as yours,
            ):
                key = yours.know(endless="yes", slow_ms="20")
                (lane,) = await yours.idle()
                stream: Any = yours.lanes.generate_stream(lane, key, ids(7), 100_000, Sampling(), Call())
                await anext(stream)
                await eventually(lambda: mine.view(lane).state == "busy", what="the lane at work")
                await link.cut()  # as a process that is killed: without a word
                await eventually(lambda: mine.view(lane).idle, what="the lane free again")
                with contextlib.suppress(LaneFailed):
                    await stream.aclose()
        finally:
            await link.close()


async def test_a_host_that_is_told_to_end_answers_what_it_has_and_says_closed(tmp_path: Path) -> None:
    async with (
        server(tmp_path) as nats,
        lanehost(tmp_path, nats.url, workers=2) as host,
        module(tmp_path, nats.url) as mine,
    ):
        key = mine.know(slow_ms="1500")
        lane, other = await mine.idle(2)
        await mine.lanes.load(lane, key, Call())
        asking = asyncio.create_task(embed(mine.lanes, lane, key, [9]))
        await eventually(lambda: mine.view(lane).state == "busy", what="the request there")
        stopping = asyncio.create_task(host.stop())
        await eventually(
            lambda: [each.name for each in mine.lanes.views()] == [lane], what="the idle lane closed"
        )
        with pytest.raises(LaneFailed) as refused:
            await embed(mine.lanes, other, key, [1])
        assert not refused.value.begun
        assert numbers(await asking) == pytest.approx(list(vector([9], "mean", False)))
        assert await stopping == 0
        await eventually(lambda: not mine.lanes.views(), what="the last lane closed")


async def test_a_quarantine_is_kept_over_a_restart_of_the_host(tmp_path: Path) -> None:
    async with (
        server(tmp_path) as nats,
        lanehost(tmp_path, nats.url) as host,
        module(tmp_path, nats.url) as mine,
    ):
        key = mine.know(abort_on_item="load")
        (lane,) = await mine.idle()
        for _ in range(3):
            with pytest.raises(LaneFailed) as crash:
                await mine.lanes.load(lane, key, Call())
            assert crash.value.error.code == Code.ENGINE_CRASHED
            await eventually(lambda: mine.view(lane).idle, what="the lane up again")
        await host.kill9()
        await host.start()
        (lane,) = await mine.idle()
        with pytest.raises(LaneFailed) as refused:
            await mine.lanes.load(lane, key, Call())
        assert refused.value.error.code == Code.PROBE_REQUIRED
