"""Every verb of a lane, over a real server, with a real lane host and fake-engine workers."""

from __future__ import annotations

import asyncio
import json
from array import array
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bakemesh.protocol.inference import lanes as m
from bakemesh.protocol.inference.errors import Code
from bakemesh.protocol.subjects import NO_KEY, WORKER_STATUS, build, pattern
from bakemesh.synapse.lanes.base import LaneFailed
from bakemesh.worker.engines.fake import score, vector
from bakemesh.workerpool import Call, Sampling, Share, Text, Token, Vectors
from support.lanehosts import Module, embed, lanehost, module, numbers
from support.nats import server
from support.waiting import eventually
from support.workerpools import ids, share


@pytest.fixture
async def mine(tmp_path: Path) -> AsyncIterator[Module]:
    async with (
        server(tmp_path) as nats,
        lanehost(tmp_path, nats.url, workers=2),
        module(tmp_path, nats.url) as made,
    ):
        yield made


async def asked(mine: Module, lane: str, message: Any) -> Any:
    """What a lane answers to one message, by the bus alone."""
    node_id, _, key = lane.partition("/")
    subject = build(mine.bus.mesh, node_id, mine.bus.settings.party, key, message.TYPE)
    return (await mine.bus.request(subject, message, 20)).message


async def test_lanes_are_found_by_their_status_and_named_after_node_and_host(mine: Module) -> None:
    assert await mine.idle(2) == ["gamma/lanes-w0", "gamma/lanes-w1"]
    view = mine.view("gamma/lanes-w0")
    assert (view.node_id, view.local, view.up) == ("gamma", False, True)
    assert "GENERATE_STREAM" in view.types
    assert view.engine is not None
    assert view.engine.startswith("fake")


async def test_a_model_is_loaded_when_it_is_first_asked_for_and_that_is_seen(mine: Module) -> None:
    key = mine.know()
    lane, other = await mine.idle(2)
    found = await embed(mine.lanes, lane, key, [7, 8, 9], [5])
    assert numbers(found) == pytest.approx([*vector([7, 8, 9], "mean", False), *vector([5], "mean", False)])
    assert key in mine.view(lane).loaded
    assert key not in mine.view(other).loaded
    served = len(mine.served)
    assert served == 1  # pulled once for both lanes
    await embed(mine.lanes, other, key, [1])
    assert len(mine.served) == served
    await eventually(lambda: key in mine.view(other).loaded, what="the other lane's model")


async def test_load_and_unload_of_one_lane_leave_the_other_alone(mine: Module) -> None:
    key = mine.know()
    lane, other = await mine.idle(2)
    for each in (lane, other):
        await mine.lanes.load(each, key, Call())
    await mine.lanes.unload(lane, key, Call())
    status = (await asked(mine, lane, m.LaneAsked())).lane
    assert [each["loaded"] for each in status["models"]] in ([], [0])
    status = (await asked(mine, other, m.LaneAsked())).lane
    assert [each["loaded"] for each in status["models"]] == [1]
    assert key not in mine.view(lane).loaded


async def test_a_batch_of_several_callers_comes_back_to_each(mine: Module) -> None:
    key = mine.know()
    (lane, *_) = await mine.idle()
    shares = [share([1, 2], [3]), share([4]), share([5, 6, 7])]
    found = await mine.lanes.embed_batch(lane, key, shares, "mean", False, Call())
    assert [each.n for each in found if isinstance(each, Vectors)] == [2, 1, 1]
    assert numbers(found[1]) == pytest.approx(list(vector([4], "mean", False)))  # type: ignore[arg-type]
    assert numbers(found[2]) == pytest.approx(list(vector([5, 6, 7], "mean", False)))  # type: ignore[arg-type]


async def test_rerank_gives_a_score_a_candidate(mine: Module) -> None:
    key = mine.know()
    (lane, *_) = await mine.idle()
    data = await mine.lanes.rerank(lane, key, 2, [1, 2], ids(1, 2, 9, 4, 5), Call())
    given = array("f", bytes(data)).tolist()
    query = memoryview(array("i", [1, 2]))
    wanted = [score(query, memoryview(array("i", each))) for each in ([9], [4, 5])]
    assert given == pytest.approx(wanted)


async def test_generate_gives_the_text(mine: Module) -> None:
    key = mine.know()
    (lane, *_) = await mine.idle()
    assert await mine.lanes.generate(lane, key, ids(7, 8, 9), 10, Call()) == Text("7 8 9 ", 3, 3, "stop")


async def test_a_stream_gives_its_tokens_in_order_and_the_text_at_last(mine: Module) -> None:
    key = mine.know()
    (lane, *_) = await mine.idle()
    stream = mine.lanes.generate_stream(lane, key, ids(7, 8, 9), 10, Sampling(seed=1, stop=("10",)), Call())
    found = [each async for each in stream]
    assert found == [Token(0, "8 "), Token(1, "9 "), Text("8 9 ", 3, 2, "stop")]
    assert mine.view(lane).idle


async def test_a_cancelled_stream_ends_with_what_there_is(mine: Module) -> None:
    key = mine.know(endless="yes", slow_ms="20")
    (lane, *_) = await mine.idle()
    call, found = Call(), []
    async for each in mine.lanes.generate_stream(lane, key, ids(7), 100_000, Sampling(), call):
        found.append(each)
        if len(found) == 2:
            call.cancel()
    last = found[-1]
    assert isinstance(last, Text)
    assert last.finish_reason == "cancelled"
    assert last.text.startswith("7 7 ")
    await eventually(lambda: mine.view(lane).idle, what="the lane idle again")


async def test_a_stream_that_is_closed_frees_its_lane(mine: Module) -> None:
    key = mine.know(endless="yes", slow_ms="20")
    (lane, *_) = await mine.idle()
    stream: Any = mine.lanes.generate_stream(lane, key, ids(7), 100_000, Sampling(), Call())
    assert await anext(stream) == Token(0, "7 ")
    await stream.aclose()
    await eventually(lambda: mine.view(lane).idle, what="the lane idle again")


async def test_an_occupied_lane_refuses_at_once_and_the_other_works(mine: Module) -> None:
    key = mine.know(endless="yes", slow_ms="20")
    lane, other = await mine.idle(2)
    stream: Any = mine.lanes.generate_stream(lane, key, ids(7), 100_000, Sampling(), Call())
    await anext(stream)
    with pytest.raises(LaneFailed) as refused:  # by what this module knows itself
        await embed(mine.lanes, lane, key, [1])
    assert refused.value.error.code == Code.LANE_BUSY
    request = m.LaneGenerate(
        digest=f"sha256:{key.digest}", format="fake", config=dict(key.config), max_tokens=1, data=ids(1)
    )
    answer = await asked(mine, lane, request)  # by the lane host
    assert isinstance(answer, m.LaneError)
    assert answer.code == Code.LANE_BUSY
    pong = await asked(mine, lane, m.LanePing())
    assert pong.state == "busy"
    assert (await mine.lanes.generate(other, key, ids(1), 1, Call())).text == "1 "
    await stream.aclose()


async def test_a_callers_deadline_ends_its_request_and_no_worker(mine: Module) -> None:
    key = mine.know(slow_ms="700")
    (lane, *_) = await mine.idle()
    await mine.lanes.load(lane, key, Call())
    pid = (await asked(mine, lane, m.LaneAsked())).lane["pid"]
    with pytest.raises(LaneFailed) as over:
        await embed(mine.lanes, lane, key, [1], within_s=0.2)
    assert over.value.error.code == Code.DEADLINE_EXCEEDED
    await eventually(lambda: mine.view(lane).idle, what="the lane idle again")
    assert (await asked(mine, lane, m.LaneAsked())).lane["pid"] == pid


async def test_a_share_that_kills_its_worker_is_told_so_and_the_others_get_their_vectors(
    mine: Module,
) -> None:
    key = mine.know(abort_on_item="666")
    (lane, *_) = await mine.idle()
    shares = [share([1]), share([666]), share([3])]
    found = await mine.lanes.embed_batch(lane, key, shares, "mean", False, Call())
    assert isinstance(found[0], Vectors)
    assert isinstance(found[2], Vectors)
    assert numbers(found[2]) == pytest.approx(list(vector([3], "mean", False)))
    poison = found[1]
    assert isinstance(poison, LaneFailed)
    assert poison.error.code == Code.ENGINE_CRASHED
    assert not poison.error.safe_to_retry
    assert not poison.crashed  # it is not to be run once more
    assert poison.error.details["signal"] == 6


async def test_what_the_worker_refuses_is_told_as_it_is(mine: Module) -> None:
    broken = mine.know(start_error="config_invalid")
    (lane, *_) = await mine.idle()
    with pytest.raises(LaneFailed) as refused:
        await mine.lanes.load(lane, broken, Call())
    assert refused.value.error.code == Code.CONFIG_INVALID
    assert not refused.value.begun
    assert mine.view(lane).idle
    key = mine.know()
    answer = await asked(
        mine,
        lane,
        m.EmbedBatch(digest=f"sha256:{key.digest}", format="fake", counts=[2], shares=[1, 1], data=ids(1, 2)),
    )
    assert answer.code == Code.BAD_REQUEST
    assert "shares of 2 items in all, in a batch of 1" in answer.message


async def test_model_info_and_probe_answer(mine: Module) -> None:
    key = mine.know(dims="16")
    (lane, *_) = await mine.idle()
    await mine.lanes.load(lane, key, Call())
    model = {"digest": f"sha256:{key.digest}", "format": "fake", "config": {"dims": "16"}}
    info = await asked(mine, lane, m.LaneModelInfo(**model))
    assert (info.dims, info.rank_head) == (16, True)
    assert (await asked(mine, lane, m.LaneProbe(**model))).state == "ok"
    assert await mine.lanes.probe(key, Call())


async def test_a_quarantined_model_is_seen_refused_and_a_probe_frees_it(mine: Module) -> None:
    key = mine.know(exit_code_after="3:1")
    lane, _ = await mine.idle(2)
    for _ in range(3):
        with pytest.raises(LaneFailed) as crash:
            await embed(mine.lanes, lane, key, [1, _])
        assert crash.value.crashed
        await eventually(lambda: mine.view(lane).idle, what="the lane up again")
    await eventually(lambda: key in mine.view(lane).refused, what="the quarantine in the Status")
    with pytest.raises(LaneFailed) as refused:
        await embed(mine.lanes, lane, key, [9])
    assert refused.value.error.code == Code.PROBE_REQUIRED
    assert refused.value.error.retry_after_ms
    assert not await mine.lanes.probe(key, Call())  # it crashes again


async def test_answers_that_the_server_would_not_take_are_refused_before_the_work(mine: Module) -> None:
    key = mine.know(dims=str(8 * (1 << 13)))
    (lane, *_) = await mine.idle()
    await mine.lanes.load(lane, key, Call())
    with pytest.raises(LaneFailed) as refused:
        await embed(mine.lanes, lane, key, *[[1]] * 256)
    assert refused.value.error.code == Code.BAD_REQUEST
    assert f"the server takes {mine.bus.max_payload}" in refused.value.error.message
    assert (await embed(mine.lanes, lane, key, [1])).n == 1


async def test_a_request_that_the_server_would_not_take_is_refused_with_both_sizes(mine: Module) -> None:
    key = mine.know()
    (lane, *_) = await mine.idle()
    tokens = mine.bus.max_payload // 4
    big = Share([tokens], bytes(4 * tokens))
    with pytest.raises(LaneFailed) as refused:
        await mine.lanes.embed_batch(lane, key, [big], "mean", False, Call())
    assert refused.value.error.code == Code.BAD_REQUEST
    assert not refused.value.begun
    assert str(mine.bus.max_payload) in refused.value.error.message


async def test_the_host_shows_itself_among_the_services_with_its_counts(mine: Module) -> None:
    key = mine.know()
    lane, _ = await mine.idle(2)
    for each in range(3):
        await embed(mine.lanes, lane, key, [each])
    answer = await mine.bus.link.ask("$SRV.STATS.lanes", b"", 5)
    stats = json.loads(answer.data)
    assert stats["metadata"]["nodeid"] == "gamma"
    counts = {each["subject"]: each for each in stats["endpoints"]}
    batch = counts[pattern(mine.bus.mesh, m.EmbedBatch.TYPE, node_id="gamma", key="lanes-w0")]
    assert batch["num_requests"] == 3
    assert batch["num_errors"] == 0
    assert batch["processing_time"] > 0


async def test_a_status_with_another_nodes_name_is_not_believed(mine: Module) -> None:
    lane, _ = await mine.idle(2)
    forged = m.LaneStatus(
        node="X", node_id="gamma", lane="lanes-w0", run="other", serial=1, state="closed", models=[]
    )
    subject = build(mine.bus.mesh, "delta", "liar", "lanes-w0", WORKER_STATUS)
    await mine.bus.publish(subject, forged)
    await mine.bus.link.barrier()
    assert mine.view(lane).up


async def test_two_modules_share_a_host_and_each_request_has_its_own_answer(
    tmp_path: Path, mine: Module
) -> None:
    async with module(tmp_path, mine.bus.link.url, "beta", name="other") as yours:
        keys = [mine.know(), yours.know()]
        await yours.idle(2)
        await mine.idle(2)

        async def work(side: Module, key: Any, first: int) -> int:
            done = busy = 0
            while done < 40:
                found = [view.name for view in side.lanes.views() if view.idle]
                if not found:
                    await asyncio.sleep(0)
                    continue
                try:
                    vectors = await embed(side.lanes, found[done % len(found)], key, [first, done])
                except LaneFailed as error:
                    if error.error.code != Code.LANE_BUSY or error.begun:
                        raise
                    busy += 1
                    continue
                assert numbers(vectors) == pytest.approx(list(vector([first, done], "mean", False)))
                done += 1
            return busy

        await asyncio.gather(work(mine, keys[0], 100), work(yours, keys[1], 200))
        assert yours.served == [] or mine.served == []  # one of them had to give it, and one only


async def test_a_lane_of_nowhere_is_refused(mine: Module) -> None:
    key = mine.know()
    with pytest.raises(LaneFailed) as refused:
        await embed(mine.lanes, "nowhere/lanes-w0", key, [1])
    assert not refused.value.begun
    answer = mine.bus.request(build(mine.bus.mesh, "gamma", "synapse", NO_KEY, m.LanePing.TYPE), m.LanePing())
    with pytest.raises(Exception, match="nobody answers"):
        await answer
