"""What a lane may do wrong on the bus, played by hand: no answer is believed that is not the request's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bakemesh.bus import Bus
from bakemesh.protocol.admit import Delivery
from bakemesh.protocol.inference import lanes as m
from bakemesh.protocol.inference.errors import Code
from bakemesh.protocol.message import Message
from bakemesh.protocol.subjects import WORKER, build, pattern
from bakemesh.synapse.lanes.base import LaneFailed
from bakemesh.workerpool import Call, Sampling, Text, Token
from support.lanehosts import Module, embed, module
from support.nats import connect, server
from support.waiting import eventually
from support.workerpools import ids

LANE = "gamma/l-w0"


@dataclass
class Scripted:
    """A lane by hand. `plan`: what it does with a request; it gets the delivery and a way to answer."""

    bus: Bus
    plan: Callable[[Delivery, Callable[[Message], None]], None] = lambda asked, say: None
    cancelled: list[bytes] = field(default_factory=list)
    asked: list[Delivery] = field(default_factory=list)
    serial: int = 0

    async def status(self, *models: dict[str, Any]) -> None:
        """Says that it is idle."""
        self.serial += 1
        told = m.LaneStatus(
            node="G",
            node_id="gamma",
            lane="l-w0",
            run="one",
            serial=self.serial,
            state="idle",
            models=list(models),
        )
        await self.bus.publish(build(self.bus.mesh, "gamma", "l", "l-w0", told.TYPE), told)

    def take(self, delivery: Delivery) -> None:
        message = delivery.received.message
        if isinstance(message, m.LaneCancel):
            self.cancelled.append(message.request)
        if isinstance(message, m.LaneCancel | m.LaneStatus):  # its own is heard too
            return
        self.asked.append(delivery)
        reply = delivery.reply
        assert reply is not None
        self.plan(delivery, lambda answer: self.bus.link.post(reply, self.bus.seal(answer).payload))


@asynccontextmanager
async def scripted(folder: Path) -> AsyncIterator[tuple[Scripted, Module, Any]]:
    async with (
        server(folder) as nats,
        connect(nats.url, name="l", node_id="gamma") as bus,
        module(folder, nats.url) as mine,
    ):
        lane = Scripted(bus)
        wanted = pattern(bus.mesh, f"{WORKER}.*", node_id="gamma", key="l-w0")
        heard = await bus.subscribe(wanted, lane.take)
        await lane.status()
        await mine.idle()
        yield lane, mine, mine.know()
        await heard.stop()


def request_of(asked: Delivery) -> bytes:
    return asked.received.id


async def test_a_gap_in_a_stream_is_no_text(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (lane, mine, key):

        def plan(asked: Delivery, say: Callable[[Message], None]) -> None:
            for index in (0, 1, 3):
                say(m.LaneToken(request=request_of(asked), index=index, text=f"{index} "))
            say(
                m.LaneText(
                    request=request_of(asked), text="0 1 2 3 ", n_prompt=1, n_gen=4, finish_reason="stop"
                )
            )

        lane.plan = plan
        stream: Any = mine.lanes.generate_stream(LANE, key, ids(1), 9, Sampling(), Call())
        assert [await anext(stream), await anext(stream)] == [Token(0, "0 "), Token(1, "1 ")]
        with pytest.raises(LaneFailed, match="tokens 2 to 2") as lost:
            await anext(stream)
        assert not lost.value.error.safe_to_retry
        await eventually(lambda: lane.cancelled == [request_of(lane.asked[0])], what="the Cancel")


async def test_a_second_last_answer_and_one_of_another_request_are_dropped(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (lane, mine, key):

        def plan(asked: Delivery, say: Callable[[Message], None]) -> None:
            def text(request: bytes, said: str) -> m.LaneText:
                return m.LaneText(request=request, text=said, n_prompt=1, n_gen=1, finish_reason="stop")

            say(text(bytes(16), "of another request"))
            say(text(request_of(asked), "right"))
            say(text(request_of(asked), "too late"))

        lane.plan = plan
        assert await mine.lanes.generate(LANE, key, ids(1), 1, Call()) == Text("right", 1, 1, "stop")
        assert (await mine.lanes.generate(LANE, key, ids(1), 1, Call())).text == "right"


async def test_an_answer_of_another_type_is_the_lanes_fault(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (lane, mine, key):
        lane.plan = lambda asked, say: say(m.LaneUnloaded(request=request_of(asked)))
        with pytest.raises(LaneFailed, match=r"answered with Psyclone\.Worker\.Unloaded") as wrong:
            await embed(mine.lanes, LANE, key, [1])
        assert wrong.value.error.code == Code.INFERENCE_FAILED
        with pytest.raises(LaneFailed, match="answered with"):
            await mine.lanes.rerank(LANE, key, 1, [1], ids(1, 2), Call())


async def test_an_answer_after_the_deadline_is_dropped_and_the_lane_is_told(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (lane, mine, key):
        with pytest.raises(LaneFailed) as late:
            await embed(mine.lanes, LANE, key, [1], within_s=0.05)
        assert late.value.error.code == Code.DEADLINE_EXCEEDED
        await eventually(lambda: lane.cancelled == [request_of(lane.asked[0])], what="the Cancel")
        message: Any = lane.asked[0].received.message
        assert 1 <= message.deadlinems <= 50
        assert not mine.view(LANE).idle  # until it says so: it may be at work still
        reply = lane.asked[0].reply
        assert reply is not None
        answer = m.LaneVectors(request=request_of(lane.asked[0]), n=1, dims=1, data=bytes(4))
        lane.bus.link.post(reply, lane.bus.seal(answer).payload)
        await lane.status()
        await eventually(lambda: mine.view(LANE).idle, what="the lane idle again")


async def test_a_cancel_of_what_is_no_generation_ends_it_at_once(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (lane, mine, key):
        call = Call()
        asking = asyncio.create_task(mine.lanes.load(LANE, key, call))
        await eventually(lambda: lane.asked, what="the request there")
        call.cancel()
        with pytest.raises(LaneFailed) as cancelled:
            await asking
        assert cancelled.value.error.code == Code.CANCELLED
        await eventually(lambda: lane.cancelled, what="the Cancel")


async def test_a_request_that_a_lane_says_nothing_of_is_given_up(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (lane, mine, key):
        asking = asyncio.create_task(embed(mine.lanes, LANE, key, [1]))
        await eventually(lambda: lane.asked, what="the request there")

        async def told() -> bool:
            await lane.status()  # idle, again and again: it does not have the request
            return asking.done()

        await eventually(told, what="the request given up")
        with pytest.raises(LaneFailed, match="its answer was lost") as lost:
            await asking
        assert lost.value.crashed
        assert mine.view(LANE).idle


async def test_a_message_that_the_lane_could_not_read_is_a_bad_request(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (lane, mine, key):

        def plan(asked: Delivery, say: Callable[[Message], None]) -> None:
            assert asked.reply is not None
            headers = {"Nats-Service-Error-Code": "malformed_message", "Nats-Service-Error": "no such entry"}
            task = asyncio.ensure_future(lane.bus.link.send(asked.reply, b"", headers=headers))
            task.add_done_callback(lambda done: done.result())

        lane.plan = plan
        with pytest.raises(LaneFailed, match="no such entry") as refused:
            await embed(mine.lanes, LANE, key, [1])
        assert refused.value.error.code == Code.BAD_REQUEST


async def test_closing_gives_up_what_is_on_its_way_after_its_grace(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (lane, mine, key):
        asking = asyncio.create_task(embed(mine.lanes, LANE, key, [1]))
        await eventually(lambda: lane.asked, what="the request there")
        await mine.lanes.close(0.05)
        with pytest.raises(LaneFailed, match="module is ending") as ended:
            await asking
        assert ended.value.error.code == Code.MODULE_RESTARTED
        with pytest.raises(LaneFailed):
            await embed(mine.lanes, LANE, key, [1])
        assert len(lane.asked) == 1


async def test_a_probe_asks_one_lane_of_each_host_that_refuses(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (lane, mine, key):
        model = {"digest": f"sha256:{key.digest}", "format": "fake", "config": {}, "quarantined": 1}
        assert await mine.lanes.probe(key, Call())
        assert lane.asked == []
        await lane.status(model)
        await eventually(lambda: key in mine.view(LANE).refused, what="the quarantine")
        lane.plan = lambda asked, say: say(m.LaneProbed(request=request_of(asked), state="quarantined"))
        assert not await mine.lanes.probe(key, Call())
        assert key in mine.view(LANE).refused
        lane.plan = lambda asked, say: say(m.LaneProbed(request=request_of(asked), state="ok"))
        assert await mine.lanes.probe(key, Call())
        assert key not in mine.view(LANE).refused
