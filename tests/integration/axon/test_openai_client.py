"""OpenAI's own client against the gateway and a mesh of fake-engine models."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

from bakemesh.axon.settings import Limits
from bakemesh.worker.engines import fake
from support.inference import world
from support.openaiedge import Edge, before, edge
from support.synapse import statuses
from support.waiting import eventually

TURNS: list[Any] = [{"role": "user", "content": "abc"}]
SAID = "97 98 99 "  # the fake engine's answer to "abc"
SLOW = {"chat": {"slow_ms": "30", "endless": "yes"}}


def rows_of(texts: list[str]) -> np.ndarray:
    return np.array([fake.vector(list(each.encode()), "mean", True, 16) for each in texts], np.float32)


def tokens_of(at: Edge, direction: str) -> float:
    counted = at.gateway.state.metrics.registry.get_sample_value
    return counted("bakemesh_axon_openai_tokens_total", {"who": "key:app", "direction": direction}) or 0.0


async def test_embeddings_in_both_encodings(tmp_path: Path) -> None:
    async with edge(tmp_path) as at, at.openai() as client:
        texts = [f"text {number}" for number in range(200)]
        found = await client.embeddings.create(model="mini", input=texts)  # base64, this client's default
        assert (np.array([each.embedding for each in found.data], np.float32) == rows_of(texts)).all()
        assert [each.index for each in found.data] == list(range(200))
        assert found.model == "mini"
        read = sum(len(each) for each in texts)
        assert (found.usage.prompt_tokens, found.usage.total_tokens) == (read, read)
        plain = await client.embeddings.create(model="mini", input="ab", encoding_format="float")
        assert (np.array(plain.data[0].embedding, np.float32) == rows_of(["ab"])[0]).all()
        for ids in ([97, 98], [[97, 98]]):
            by_ids = await client.embeddings.create(model="mini", input=ids, encoding_format="float")
            assert by_ids.data[0].embedding == plain.data[0].embedding
        assert tokens_of(at, "read") == read + 6
        same = await client.embeddings.create(model="mini", input="ab", dimensions=16)
        assert len(same.data[0].embedding) == 16
        with pytest.raises(openai.BadRequestError, match="16 numbers, which are not shortened") as error:
            await client.embeddings.create(model="mini", input="ab", dimensions=8)
        assert error.value.param == "dimensions"


async def test_chats_and_completions(tmp_path: Path) -> None:
    async with edge(tmp_path) as at, at.openai() as client:
        found = await client.chat.completions.create(model="chat", messages=TURNS, seed=0, temperature=0)
        (choice,) = found.choices
        assert (choice.message.content, choice.message.role, choice.finish_reason) == (
            SAID,
            "assistant",
            "stop",
        )
        assert found.usage is not None
        assert (found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.total_tokens) == (
            3,
            3,
            6,
        )
        assert found.id.startswith("chatcmpl-")
        cut = await client.chat.completions.create(model="chat", messages=TURNS, max_completion_tokens=2)
        assert (cut.choices[0].message.content, cut.choices[0].finish_reason) == ("97 98 ", "length")
        stopped = await client.chat.completions.create(model="chat", messages=TURNS, stop=["98"])
        assert stopped.choices[0].message.content == "97 "
        shifted = await client.chat.completions.create(model="chat", messages=TURNS, seed=-1)
        assert shifted.choices[0].message.content != SAID
        several = await client.completions.create(model="chat", prompt=["ab", "c"])
        assert [(each.index, each.text) for each in several.choices] == [(0, "97 98 "), (1, "99 ")]
        assert several.usage is not None
        assert (several.usage.prompt_tokens, several.usage.completion_tokens) == (3, 3)
        by_ids = await client.completions.create(model="chat", prompt=[5, 6])
        assert by_ids.choices[0].text == "5 6 "
        assert tokens_of(at, "made") == 3 + 2 + 1 + 3 + 3 + 2


async def test_streams(tmp_path: Path) -> None:
    async with edge(tmp_path) as at, at.openai() as client:
        stream = await client.chat.completions.create(
            model="chat", messages=TURNS, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        assert chunks[0].choices[0].delta.role == "assistant"
        assert "".join(each.choices[0].delta.content or "" for each in chunks if each.choices) == SAID
        assert sum(bool(each.choices and each.choices[0].delta.content) for each in chunks) == 3
        assert [each.choices[0].finish_reason for each in chunks if each.choices][-1] == "stop"
        assert chunks[-1].choices == []
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.total_tokens == 6
        assert len({each.id for each in chunks}) == 1
        plain = await client.completions.create(model="chat", prompt="ab", stream=True)
        pieces = [piece async for piece in plain]
        assert "".join(piece.choices[0].text for piece in pieces) == "97 98 "
        assert pieces[-1].choices[0].finish_reason == "stop"
        assert all(piece.usage is None for piece in pieces)
        assert tokens_of(at, "made") == 5
        with pytest.raises(openai.BadRequestError, match="one prompt"):
            await client.completions.create(model="chat", prompt=["a", "b"], stream=True)


async def test_the_bytes_of_a_stream(tmp_path: Path) -> None:
    async with edge(tmp_path) as at:
        body = {"model": "chat", "messages": TURNS, "stream": True}
        url = f"{at.gateway.url}/v1/chat/completions"
        async with at.gateway.session.post(url, json=body, headers=at.headers) as answer:
            assert answer.content_type == "text/event-stream"
            events = (await answer.text()).split("\n\n")
        assert events[-2:] == ["data: [DONE]", ""]
        assert all(event.startswith("data: {") for event in events[:-2])


async def test_models(tmp_path: Path) -> None:
    async with edge(tmp_path) as at, at.openai() as client:
        found = [each async for each in client.models.list()]
        assert [each.id for each in found] == ["chat", "mini", "ranker"]
        assert (await client.models.retrieve("mini")).id == "mini"
        for name in ("nothing", "org/model"):
            with pytest.raises(openai.NotFoundError) as error:
                await client.models.retrieve(name)
            assert error.value.code == "model_not_found"


async def test_errors_are_the_clients_own_kinds(tmp_path: Path) -> None:
    async with edge(tmp_path) as at, at.openai() as client:
        for name in ("nothing", "gpt-4.1"):
            with pytest.raises(openai.NotFoundError) as error:
                await client.chat.completions.create(model=name, messages=TURNS)
            assert (error.value.code, error.value.param) == ("model_not_found", "model")
            assert "alpha" not in str(error.value)  # no node's name goes outside
        with pytest.raises(openai.BadRequestError) as bad:
            await client.chat.completions.create(model="chat", messages=TURNS, n=2)
        assert (bad.value.code, bad.value.param) == ("unsupported_parameter", "n")
        with pytest.raises(openai.BadRequestError) as long:
            await client.embeddings.create(model="mini", input="x" * 65)
        assert long.value.code == "context_length_exceeded"
        assert "65 tokens" in str(long.value)
        with pytest.raises(openai.BadRequestError):
            await client.embeddings.create(model="chat", input="x")
        with pytest.raises(openai.BadRequestError):  # told before the stream begins
            await client.chat.completions.create(
                model="chat", messages=TURNS, stream=True, response_format={"type": "json_object"}
            )
        assert at.gateway.counted(route="/v1/chat/completions", verdict="bad_body", profile="openai") == 2


async def test_keys(tmp_path: Path) -> None:
    from bakemesh.apikeys import revoke

    async with edge(tmp_path) as at:
        async with at.openai() as client:
            await client.models.list()
            revoke(at.keys, "app")

            async def refused() -> bool:
                try:
                    await client.models.list()
                except openai.AuthenticationError as error:
                    return error.code == "invalid_api_key"
                return False

            await eventually(refused, what="the key that was revoked is refused")
        async with at.openai("bm-" + "x" * 43) as client:
            with pytest.raises(openai.AuthenticationError):
                await client.embeddings.create(model="mini", input="x")
        status, headers, body = await at.post("embeddings", {"model": "mini", "input": "x"}, headers={})
        assert (status, body["error"]["code"]) == (401, "invalid_api_key")
        assert headers["www-authenticate"] == "Bearer"


async def test_an_open_gateway_asks_for_no_key(tmp_path: Path) -> None:
    async with edge(tmp_path, is_open=True) as at:
        status, _, body = await at.post("embeddings", {"model": "mini", "input": "x"}, headers={})
        assert (status, body["model"]) == (200, "mini")


async def test_what_a_key_may_have_at_once(tmp_path: Path) -> None:
    limits = Limits(hotkey_requests=1, hotkey_rate=0)
    async with edge(tmp_path, config=SLOW, limits=limits) as at, at.openai() as client:
        stream = await client.chat.completions.create(
            model="chat", messages=TURNS, stream=True, max_tokens=10_000
        )
        await anext(aiter(stream))
        with pytest.raises(openai.RateLimitError) as error:
            await client.models.list()
        assert error.value.code == "rate_limit_exceeded"
        assert int(error.value.response.headers["retry-after"]) >= 1
        await stream.close()

        async def again() -> bool:
            try:
                await client.models.list()
            except openai.RateLimitError:
                return False
            return True

        await eventually(again, what="the place of a stream that was left")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_goes_away_ends_its_work_in_the_mesh(tmp_path: Path, stream: bool) -> None:
    async with (
        edge(tmp_path, config=SLOW) as at,
        at.openai() as client,
        statuses(at.inference.bus) as heard,
    ):
        body: Any = {"model": "chat", "messages": TURNS, "max_tokens": 100_000, "stream": stream}
        if stream:
            found = await client.chat.completions.create(**body)
            await anext(aiter(found))
            await eventually(lambda: heard and heard[-1].busy, what="a lane works")
            await found.close()
        else:
            asking = asyncio.create_task(client.chat.completions.create(**body))
            await eventually(lambda: heard and heard[-1].busy, what="a lane works")
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        await eventually(lambda: not heard[-1].busy, what="the lane is free again")
        await eventually(lambda: at.gateway.state.gate.running == 0, what="nothing runs at the gateway")


async def test_what_takes_longer_than_it_may_is_408(tmp_path: Path) -> None:
    limits = Limits(request_s=0.5)
    async with edge(tmp_path, config=SLOW, limits=limits) as at, at.openai() as client:
        with pytest.raises(openai.APIStatusError) as error:
            await client.chat.completions.create(model="chat", messages=TURNS, max_tokens=100_000)
        assert (error.value.status_code, error.value.code) == (408, "deadline_exceeded")
        stream = await client.chat.completions.create(
            model="chat", messages=TURNS, max_tokens=100_000, stream=True
        )
        with pytest.raises(openai.APIError, match="longer than the request may take"):
            async for _ in stream:
                pass


async def test_a_mesh_that_is_gone_is_503_and_comes_back(tmp_path: Path) -> None:
    async with edge(tmp_path, limits=Limits(request_s=10.0)) as at, at.openai() as client:
        assert at.module is not None
        await client.embeddings.create(model="mini", input="x")
        await at.module.kill9()

        async def gone() -> bool:
            try:
                await client.embeddings.create(model="mini", input="x")
            except openai.InternalServerError as error:
                told.append(error)
            return bool(told)

        told: list[openai.InternalServerError] = []
        await eventually(gone, what="503")
        assert told[0].status_code == 503
        assert int(told[0].response.headers["retry-after"]) >= 1
        assert (await at.gateway.get("/readyz")).status == 503
        await at.module.start()

        async def back() -> bool:
            try:
                await client.embeddings.create(model="mini", input="x")
            except openai.InternalServerError:
                return False
            return True

        await eventually(back, what="embeddings again")
        await eventually(lambda: at.mesh.problem() is None, what="the gateway hears of the module")
        assert (await at.gateway.get("/readyz")).status == 200


async def test_a_mesh_that_has_too_much_is_503_long_before_the_deadline(tmp_path: Path) -> None:
    full = {
        "code": "queue_full",
        "class": "transient",
        "safe_to_retry_same_request": 1,
        "message": "full",
        "retry_after_ms": 6200,
    }
    async with world(tmp_path) as mesh, before(mesh.nats.url, tmp_path) as at, asyncio.timeout(60):
        await mesh.module.say()
        await eventually(lambda: at.mesh.problem() is None, what="the gateway hears of the module")
        mesh.module.faults.always = full
        for path, body in (
            ("embeddings", {"model": "mini", "input": "x"}),
            ("chat/completions", {"model": "echo", "messages": TURNS, "stream": True}),
        ):
            status, headers, told = await at.post(path, body)
            assert (status, headers["retry-after"], told["error"]["code"]) == (503, "7", "queue_full")
