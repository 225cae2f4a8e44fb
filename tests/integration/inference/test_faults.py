"""Modules that decline, die, repeat themselves, leave things out: each call has one result or typed error."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import pytest

from bakemesh.bus.events import Disconnected, Reconnected
from bakemesh.inference import (
    AnswerBroken,
    BadRequest,
    CapabilityAbsent,
    DeadlineExceeded,
    EngineCrashed,
    Inference,
    InferenceError,
    InferenceFailed,
    ModuleRestarted,
    NodeGone,
    NoNode,
    ProbeRequired,
    QueueFull,
    Text,
    Token,
    blocking,
    nodes,
)
from support.inference import World, vectors_of, world
from support.nats import TcpLink, server
from support.stranger_module import lone_stranger, stranger
from support.waiting import eventually

FULL = {"code": "queue_full", "class": "transient", "safe_to_retry_same_request": 1, "message": "full"}
CRASHED = {
    "code": "engine_crashed",
    "class": "transient",
    "safe_to_retry_same_request": 1,
    "message": "the worker died",
    "details": {"stage": "embed", "signal": 9},
}
TEXTS = [f"text {n}" for n in range(200)]


# -- declined


async def test_a_full_node_is_left_for_another_one_without_a_pause(tmp_path: Path) -> None:
    async with world(tmp_path, "alpha", "beta") as mesh:
        mesh.modules["alpha"].faults.always = {**FULL, "retry_after_ms": 60_000}
        for _ in range(20):
            assert (await mesh.client.embed(["x"], model="mini") == vectors_of(["x"])).all()
        assert all(asked.entries["attempt"] == 0 for asked in mesh.modules["beta"].asked)
        assert len(mesh.modules["beta"].asked) == 20


async def test_where_all_are_full_it_is_tried_again_when_they_say(tmp_path: Path) -> None:
    async with world(tmp_path, "alpha", "beta") as mesh:
        for module in mesh.modules.values():
            module.faults.refuse = [{**FULL, "retry_after_ms": 50}, {**FULL, "retry_after_ms": 50}]
        assert (await mesh.client.embed(["x"], model="mini") == vectors_of(["x"])).all()
        assert mesh.asked().count("Embed") == 5


async def test_who_would_have_to_wait_past_the_deadline_is_told_at_once(tmp_path: Path) -> None:
    async with world(tmp_path, "alpha", "beta") as mesh:
        for module in mesh.modules.values():
            module.faults.always = {**FULL, "retry_after_ms": 60_000}
        with pytest.raises(QueueFull, match="full") as refused:
            await mesh.client.embed(["x"], model="mini", deadline_s=30)
        assert refused.value.retry_after_s == 60
        assert refused.value.node_id in mesh.modules
        assert mesh.asked() == ["Embed", "Embed"]


async def test_a_client_with_little_patience_is_told_long_before_its_deadline(tmp_path: Path) -> None:
    client = {"patience_s": 0.2, "deadline_s": 1000}
    async with world(tmp_path, "alpha", "beta", client=client) as mesh, asyncio.timeout(30):
        for module in mesh.modules.values():
            module.faults.always = {**FULL, "retry_after_ms": 20}
        with pytest.raises(QueueFull):
            await mesh.client.embed(["x"], model="mini")
        asked = [len(module.asked) for module in mesh.modules.values()]
        assert min(asked) >= 1  # both were tried, one more than once
        assert max(asked) >= 2


async def test_without_retry_the_first_refusal_is_told(tmp_path: Path) -> None:
    async with world(tmp_path, "alpha", "beta", client={"retry": False}) as mesh:
        for module in mesh.modules.values():
            module.faults.always = FULL
        with pytest.raises(QueueFull):
            await mesh.client.embed(["x"], model="mini")
        assert mesh.asked() == ["Embed"]


async def test_a_named_node_is_the_only_one_asked(tmp_path: Path) -> None:
    async with world(tmp_path, "alpha", "beta") as mesh:
        for _ in range(10):
            await mesh.client.embed(["x"], model="mini", node="beta")
        assert not mesh.modules["alpha"].asked
        mesh.modules["beta"].faults.always = {**FULL, "retry_after_ms": 60_000}
        with pytest.raises(QueueFull):
            await mesh.client.embed(["x"], model="mini", node="beta")
        assert not mesh.modules["alpha"].asked


async def test_a_quarantined_model_is_asked_for_elsewhere(tmp_path: Path) -> None:
    quarantined = {**FULL, "code": "probe_required", "class": "permanent"}
    async with world(tmp_path, "alpha", "beta") as mesh:
        mesh.modules["alpha"].faults.always = quarantined
        for _ in range(10):
            await mesh.client.rerank("a", ["b"], "ranker")
        mesh.modules["beta"].faults.always = quarantined
        with pytest.raises(ProbeRequired):
            await mesh.client.rerank("a", ["b"], "ranker")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (CRASHED, EngineCrashed),
        ({**FULL, "code": "inference_failed"}, InferenceFailed),
        ({**FULL, "code": "capability_absent", "class": "permanent"}, CapabilityAbsent),
        ({**FULL, "code": "bad_request", "class": "permanent"}, BadRequest),
    ],
)
async def test_what_was_begun_there_is_not_done_twice(
    tmp_path: Path, error: dict[str, Any], kind: type[InferenceError]
) -> None:
    async with world(tmp_path, "alpha", "beta") as mesh:
        for module in mesh.modules.values():
            module.faults.always = error
        with pytest.raises(kind) as raised:
            await mesh.client.generate("x", "echo")
        assert mesh.asked() == ["Generate"]
        assert raised.value.details == error.get("details", {})


# -- a node dies under it


async def test_a_module_that_nobody_hears_any_more_is_left(tmp_path: Path) -> None:
    """Its Status is fresh, but nobody listens: the server says so."""
    async with world(tmp_path, "alpha", "beta") as mesh:
        await mesh.modules["alpha"].stop()
        for _ in range(10):
            assert (await mesh.client.embed(["x"], model="mini")).shape == (1, 8)
        assert all(asked.entries["attempt"] == 0 for asked in mesh.modules["beta"].asked)
        with pytest.raises(NodeGone, match="node alpha: nobody answers there"):
            await mesh.client.embed(["x"], model="mini", node="alpha")


Work = Callable[[Inference], Awaitable[Any]]
REPEATABLE: list[Work] = [
    lambda client: client.embed(TEXTS, model="mini"),
    lambda client: client.rerank("a", ["b"], "ranker"),
    lambda client: client.generate("a b", "echo"),
]


@pytest.mark.parametrize("work", REPEATABLE)
async def test_a_module_that_was_started_anew_gets_it_once_more_and_marked(
    tmp_path: Path, work: Work
) -> None:
    async with world(tmp_path) as mesh:
        mesh.module.faults.deaf = True
        call = asyncio.create_task(_done(work(mesh.client)))
        await eventually(lambda: mesh.module.asked)
        await mesh.module.restart()
        await call
        assert [asked.entries["attempt"] for asked in mesh.module.asked] == [0, 1]


async def _done(work: Awaitable[Any]) -> Any:
    return await work


async def test_it_is_repeated_once_and_never_again(tmp_path: Path) -> None:
    async with world(tmp_path) as mesh:
        mesh.module.faults.deaf = True
        call = asyncio.create_task(mesh.client.embed(["x"], model="mini"))
        for n in (1, 2):
            await eventually(lambda n=n: len(mesh.module.asked) == n)
            await mesh.module.stop()
            mesh.module.run += "+"
            await mesh.module.start()
        with pytest.raises(ModuleRestarted, match="node alpha: its module was started anew"):
            await call
        assert [asked.entries["attempt"] for asked in mesh.module.asked] == [0, 1]


async def test_a_repetition_that_a_module_would_repeat_is_not(tmp_path: Path) -> None:
    async with world(tmp_path) as mesh:
        mesh.module.faults.deaf = True
        call = asyncio.create_task(mesh.client.embed(["x"], model="mini"))
        await eventually(lambda: mesh.module.asked)
        await mesh.module.stop()
        mesh.module.faults.deaf = False
        mesh.module.faults.always = CRASHED
        mesh.module.run = "other"
        await mesh.module.start()
        with pytest.raises(EngineCrashed):
            await call
        assert [asked.entries["attempt"] for asked in mesh.module.asked] == [0, 1]


async def test_a_process_killed_under_it_is_silent_and_another_node_does_it(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, AsyncExitStack() as stack:
        alpha = await stack.enter_async_context(lone_stranger(nats.url, "alpha", gate="closed"))
        client = await stack.enter_async_context(Inference.connect(nats.url, "app"))
        await eventually(lambda: client.nodes)
        calls = [asyncio.create_task(client.embed([f"x{n}"], model="mini")) for n in range(5)]
        text = asyncio.create_task(client.generate("a b", "echo"))
        parts: list[Token | Text] = []
        stream = asyncio.create_task(_collect(client, parts))
        await eventually(lambda: client._running.in_flight == 7)
        beta = await stack.enter_async_context(stranger(nats.url, "beta"))
        await alpha.kill()
        for n, call in enumerate(calls):
            assert (await call == vectors_of([f"x{n}"])).all()
        assert (await text).node_id == "beta"
        await stream
        assert [str(part.text) for part in parts] == ["a", " b", "a b"]
        assert [asked.entries["attempt"] for asked in beta.asked] == [1] * 7
        assert client._running.in_flight == 0


async def _collect(client: Inference, parts: list[Token | Text]) -> None:
    async for part in client.stream("a b", "echo"):
        parts.append(part)  # noqa: PERF401 - what comes before an error counts too


async def test_a_client_that_did_not_run_for_long_takes_its_own_silence_for_nobodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "SILENT_S", 5.0)  # a busy machine may be seconds late with a Status

    async def blocked() -> None:
        # Longer than SILENT_S, shorter than three pings of the server, which would cut the link.
        time.sleep(5.5)  # noqa: ASYNC251 - what is tried here; in the client's own thread

    async with world(tmp_path) as mesh:
        mesh.module.faults.hold_after = 1
        loop = asyncio.get_running_loop()

        def script() -> tuple[list[str], int]:
            with blocking.Inference(mesh.nats.url, "script", deadline_s=60) as client:
                client._loop.call(eventually(lambda: client.nodes))  # else there is nobody to take for silent
                parts = client.stream("a b", "echo")
                texts = [str(next(parts).text)]
                client._loop.call(blocked())
                left = len(client.nodes)
                loop.call_soon_threadsafe(mesh.module.gate.set)
                return texts + [str(part.text) for part in parts], left

        assert await asyncio.to_thread(script) == (["a", " b", "a b"], 1)
        assert mesh.asked() == ["Generate"]


async def test_where_the_last_node_fell_silent_there_is_a_moment_for_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "SILENT_S", 2.5)
    async with server(tmp_path) as nats, AsyncExitStack() as stack:
        alpha = await stack.enter_async_context(lone_stranger(nats.url, "alpha"))
        client = await stack.enter_async_context(Inference.connect(nats.url, "app"))
        await eventually(lambda: client.nodes)
        await asyncio.sleep(nodes.SETTLED_S)  # what a client that has just begun may wait for is over
        await alpha.kill()
        await eventually(lambda: not client.nodes)
        call = asyncio.create_task(client.embed(["x"], model="mini"))
        await asyncio.sleep(0.2)
        assert not call.done()
        beta = await stack.enter_async_context(stranger(nats.url, "beta"))
        assert (await call == vectors_of(["x"])).all()
        assert [asked.entries["attempt"] for asked in beta.asked] == [0]


async def test_a_module_that_starts_anew_is_waited_for_though_it_has_no_lane_yet(tmp_path: Path) -> None:
    async with world(tmp_path) as mesh:
        await asyncio.sleep(nodes.SETTLED_S)
        mesh.module.faults.deaf = True
        call = asyncio.create_task(mesh.client.embed(["x"], model="mini"))
        await eventually(lambda: mesh.module.asked)
        mesh.module.said["state"] = "down"
        await mesh.module.restart()
        await asyncio.sleep(0.2)
        assert not call.done()
        await mesh.module.say(state="ok")
        assert (await call == vectors_of(["x"])).all()
        assert [asked.entries["attempt"] for asked in mesh.module.asked] == [0, 1]


async def test_where_no_node_takes_work_any_more_that_is_told_after_a_moment(tmp_path: Path) -> None:
    async with world(tmp_path) as mesh:
        await asyncio.sleep(nodes.SETTLED_S)
        await mesh.module.say(state="down")
        await eventually(lambda: mesh.client.nodes[0].state == "down")
        took, clock = list[float](), asyncio.get_running_loop().time
        for _ in range(2):
            began = clock()
            with pytest.raises(NoNode, match="alpha is down"):
                await mesh.client.embed(["x"], model="mini")
            took.append(clock() - began)
        assert took[0] > 1.0  # a moment for another node, once
        assert took[1] < took[0]
        assert not mesh.asked()


async def test_a_stream_that_has_begun_is_never_repeated(tmp_path: Path) -> None:
    async with world(tmp_path, "alpha") as mesh, stranger(mesh.nats.url, "beta", models={}) as beta:
        mesh.module.faults.crash_after = 2
        parts: list[Token | Text] = []
        with pytest.raises(NodeGone, match="it says nothing any more"):
            await _collect(mesh.client, parts)
        assert parts == [Token(0, "a"), Token(1, " b")]
        assert not beta.asked


# -- answers that are wrong


async def test_answers_that_are_late_doubled_or_of_others_change_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as mesh:
        mesh.module.faults.twice = mesh.module.faults.late = mesh.module.faults.foreign = True
        for _ in range(3):
            assert (await mesh.client.embed(TEXTS, model="mini") == vectors_of(TEXTS)).all()
            assert (await mesh.client.rerank("a", ["a", "b"], "ranker")).tolist() == [1, 0]
            parts: list[Token | Text] = []
            await _collect(mesh.client, parts)
            assert [part.text for part in parts] == ["a", " b", "a b"]
        assert mesh.client.usage.requests == 9
        assert mesh.client.usage.prompt == 3 * (600 + 10 + 2)


async def _raises(mesh: World, work: Work, what: str) -> None:
    with pytest.raises(AnswerBroken, match=what):
        await work(mesh.client)
    assert mesh.client._running.in_flight == 0


async def test_answers_that_make_no_whole_are_an_error(tmp_path: Path) -> None:
    async with world(tmp_path) as mesh:
        faults = mesh.module.faults
        faults.skip = 1
        await _raises(mesh, REPEATABLE[0], "64 of 200 rows did not come")
        faults.skip = 0
        with pytest.raises(AnswerBroken, match="token 0 of the stream did not come, 1 did"):
            await _collect(mesh.client, [])
        faults.skip, faults.short = None, True
        await _raises(mesh, REPEATABLE[0], "64 rows of 8 numbers in 2044 bytes")
        await _raises(mesh, REPEATABLE[1], "0 scores in 0 bytes for 1 documents")
        faults.short, faults.garbage = False, b"rubbish"
        await _raises(mesh, REPEATABLE[0], "is no message")
        faults.garbage = None
        assert (await mesh.client.embed(TEXTS, model="mini")).shape == (200, 8)


async def test_rows_of_unlike_width_from_two_nodes_are_an_error(tmp_path: Path) -> None:
    async with world(tmp_path, "alpha", "beta") as mesh:
        mesh.modules["beta"].faults.wide = 4
        texts = [f"t{n}" for n in range(40_000)]
        with pytest.raises(AnswerBroken, match="the alias names different models"):
            await mesh.client.embed(texts, model="mini")
        await eventually(lambda: mesh.client._running.in_flight == 0)


# -- time, and those who do not wait


async def test_a_deadline_ends_the_call_and_the_request(tmp_path: Path) -> None:
    async with world(tmp_path) as mesh:
        mesh.module.faults.deaf = True
        with pytest.raises(DeadlineExceeded, match=r"no answer from node alpha within the 0\.2 s"):
            await mesh.client.embed(["x"], model="mini", deadline_s=0.2)
        await eventually(lambda: mesh.module.cancelled == [mesh.module.asked[0].id])
        await eventually(lambda: mesh.module.open_now == 0)
        for wrong in (0, -1, float("inf"), float("nan")):
            with pytest.raises(ValueError, match="deadline_s"):
                await mesh.client.embed(["x"], model="mini", deadline_s=wrong)


async def test_cancelling_the_task_cancels_the_request(tmp_path: Path) -> None:
    async with world(tmp_path) as mesh:
        mesh.module.gate.clear()
        calls = [asyncio.create_task(_done(work(mesh.client))) for work in REPEATABLE]
        await eventually(lambda: len(mesh.module.asked) == 3)
        for call in calls:
            call.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await call
        await eventually(
            lambda: sorted(mesh.module.cancelled) == sorted(each.id for each in mesh.module.asked)
        )
        await eventually(lambda: mesh.module.open_now == 0)
        assert mesh.client._running.in_flight == 0


async def test_leaving_a_stream_cancels_it(tmp_path: Path) -> None:
    async with world(tmp_path) as mesh:
        mesh.module.faults.hold_after = 1
        async with aclosing(mesh.client.stream("a b c d", "echo")) as parts:
            async for part in parts:
                assert part == Token(0, "a")
                break
        await eventually(lambda: mesh.module.cancelled == [mesh.module.asked[0].id])


async def test_one_failed_part_of_a_large_call_cancels_the_others(tmp_path: Path) -> None:
    async with world(tmp_path) as mesh:
        mesh.module.gate.clear()
        call = asyncio.create_task(mesh.client.embed([f"t{n}" for n in range(5000)], model="mini"))
        await eventually(lambda: len(mesh.module.asked) == 5)
        mesh.module.faults.refuse = [CRASHED]
        mesh.module.faults.deaf = False
        first = mesh.module.asked[0]
        mesh.module._cancels[first.id].set()  # ends as cancelled, while the others wait
        with pytest.raises(InferenceError):
            await call
        await eventually(lambda: len(mesh.module.cancelled) == 4)
        assert first.id not in mesh.module.cancelled


# -- the link


async def test_a_link_that_was_down_loses_nothing_that_can_be_repeated(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, stranger(nats.url) as module:
        link = TcpLink(("127.0.0.1", nats.config.port))
        await link.start()
        try:
            async with Inference.connect(link.url, "app") as client:
                await eventually(lambda: client.nodes)
                seen: list[Any] = []
                client.bus.on_event(seen.append)
                module.gate.clear()
                before = asyncio.create_task(client.embed(["x"], model="mini"))
                await eventually(lambda: module.asked)
                await link.cut()
                await eventually(lambda: any(isinstance(each, Disconnected) for each in seen))
                meanwhile = asyncio.create_task(client.embed(["y"], model="mini"))
                late = asyncio.create_task(client.embed(["z"], model="mini", deadline_s=0.3))
                with pytest.raises(DeadlineExceeded, match="not sent: no link"):
                    await late
                module.gate.set()
                await eventually(lambda: module.open_now == 0)
                await link.heal()
                assert (await before == vectors_of(["x"])).all()
                assert (await meanwhile == vectors_of(["y"])).all()
                assert any(isinstance(each, Reconnected) for each in seen)
                by_text = {(a.entries["texts"][0], a.entries["attempt"]) for a in module.asked}
                assert by_text == {("x", 0), ("x", 1), ("y", 0)}
        finally:
            await link.close()
