"""Calls and what they give, against a module of a stranger's hand on a real server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from bakemesh.inference import (
    ArtifactInvalid,
    BadRequest,
    Closed,
    Inference,
    ModelUnknown,
    NoNode,
    Text,
    Token,
    Usage,
)
from bakemesh.inference.results import Ingested, IngestProgress
from support.inference import vectors_of, world
from support.nats import connect, server
from support.stranger_module import ids_of, score_of
from support.waiting import eventually

TEXTS = [f"text number {n}" for n in range(300)]


async def test_embedding_texts_and_ids(tmp_path: Path) -> None:
    async with world(tmp_path) as mesh:
        usage = Usage()
        found = await mesh.client.embed(TEXTS, model="mini", usage=usage)
        assert found.dtype == np.float32
        assert found.shape == (300, 8)
        assert (found == vectors_of(TEXTS)).all()
        assert (usage.prompt, usage.generated, usage.requests, usage.total) == (900, 0, 1, 900)
        assert usage.nodes == {"alpha": 1}
        ids = [[1, 2, 3], np.array([7], np.int32)]
        assert (await mesh.client.embed(ids, model="mini") == vectors_of([[1, 2, 3], [7]])).all()
        assert (await mesh.client.embed("one", model="mini") == vectors_of(["one"])).all()
        assert (await mesh.client.embed([], model="mini")).shape == (0, 0)
        assert mesh.client.usage.requests == 3
        options = {
            "pooling": "cls",
            "normalize": False,
            "truncate": True,
            "work_class": "bulk",
            "priority": 7,
        }
        await mesh.client.embed(["x"], model="mini", deadline_s=5, **options)  # type: ignore[arg-type]
        said = mesh.module.asked[-1].entries
        assert 4000 < said.pop("deadlinems") <= 5000
        assert said == {
            "texts": ["x"],
            "pooling": "cls",
            "normalize": 0,
            "truncate": 1,
            "class": "bulk",
            "priority": 7,
            "attempt": 0,
        }


async def test_large_calls_are_cut_to_half_of_max_payload_and_put_together(tmp_path: Path) -> None:
    async with world(tmp_path, max_payload=8192) as mesh:
        texts = [f"{n} " * 40 for n in range(200)]
        assert (await mesh.client.embed(texts, model="mini") == vectors_of(texts)).all()
        assert len(mesh.module.asked) > 4
        assert sorted(t for asked in mesh.module.asked for t in asked.entries["texts"]) == sorted(texts)
        documents = [f"a {n} b " * 30 for n in range(100)]
        scores = await mesh.client.rerank("a 3", documents, "ranker")
        assert scores.tolist() == [score_of("a 3", each) for each in documents]
        before = len(mesh.module.asked)
        for wrong in (
            lambda: mesh.client.embed(["fine", "x" * 4096], model="mini"),
            lambda: mesh.client.rerank("q" * 4096, ["d"], "ranker"),
            lambda: mesh.client.generate("x" * 4096, "echo"),
            lambda: mesh.client.embed(["fine", "\ud800"], model="mini"),
        ):
            with pytest.raises(BadRequest):
                await wrong()
        assert len(mesh.module.asked) == before, "nothing of it was sent"


async def test_reranking(tmp_path: Path) -> None:
    async with world(tmp_path) as mesh:
        usage = Usage()
        scores = await mesh.client.rerank("a b", ["a", "b a", "c"], "ranker", usage=usage)
        assert scores.dtype == np.float32
        assert scores.tolist() == [1.0, 2.0, 0.0]
        assert usage.prompt == 15
        assert (await mesh.client.rerank("a", [], "ranker")).shape == (0,)
        with pytest.raises(BadRequest, match="several texts"):
            await mesh.client.rerank("a", "b", "ranker")


async def test_text_whole_and_token_by_token(tmp_path: Path) -> None:
    async with world(tmp_path) as mesh:
        usage = Usage()
        whole = await mesh.client.generate("one two three", "echo", max_tokens=2, usage=usage)
        assert whole == Text("one two", "length", 3, 2, "alpha")
        assert str(whole) == "one two"
        assert (usage.prompt, usage.generated) == (3, 2)
        parts = [
            part async for part in mesh.client.stream("one two", "echo", temperature=1, seed=3, stop="x")
        ]
        assert parts == [Token(0, "one"), Token(1, " two"), Text("one two", "stop", 2, 2, "alpha")]
        said = mesh.module.asked[-1].entries
        assert (said["stream"], said["temperature"], said["seed"], said["stop"]) == (1, 1.0, 3, ["x"])
        assert (await mesh.client.generate([4, 5], "echo")).text == "t4 t5"
        assert ids_of(mesh.module.asked[-1].entries["data"]) == [4, 5]
        turns = [("system", "be kind"), {"role": "user", "content": "hi"}]
        assert (await mesh.client.chat(turns, "echo")).text == "be kind hi"
        said = [part.text async for part in mesh.client.chat_stream(turns, "echo")]
        assert "".join(said[:-1]) == said[-1] == "be kind hi"
        with pytest.raises(TypeError, match="'max_token'"):
            await mesh.client.generate("x", "echo", max_token=3)  # type: ignore[call-arg]


async def test_models_health_probe_and_ingest(tmp_path: Path) -> None:
    async with world(tmp_path, "alpha", "beta", name="") as mesh:
        models = await mesh.client.models()
        assert [(each.alias, each.node_id) for each in models[:3]] == [
            ("echo", "alpha"),
            ("echo", "beta"),
            ("mini", "alpha"),
        ]
        assert (models[2].kind, models[2].dims, models[2].context, models[2].entries["weights"]) == (
            "embed",
            8,
            512,
            "f16",
        )
        assert {each.node_id for each in await mesh.client.models("beta")} == {"beta"}
        assert [(each.node_id, each.state) for each in await mesh.client.health()] == [
            ("alpha", "ok"),
            ("beta", "ok"),
        ]
        assert (await mesh.client.health("beta"))[0].lanes[0]["agems"] == 12
        assert await mesh.client.probe("mini", node="beta") == "ok"
        with pytest.raises(BadRequest, match="name one of them: alpha, beta"):
            await mesh.client.probe("mini")
        seen: list[IngestProgress] = []
        done = await mesh.client.ingest(
            "/models/x.gguf", "new", node="alpha", config={"ctx_size": "512"}, progress=seen.append
        )
        assert isinstance(done, Ingested)
        assert (done.node_id, done.alias, done.manifest["config"]) == ("alpha", "new", {"ctx_size": "512"})
        assert [(each.stage, each.done, each.total) for each in seen] == [
            ("hash", 0, 100),
            ("hash", 50, 100),
            ("hash", 100, 100),
        ]
        with pytest.raises(ArtifactInvalid):
            await mesh.client.ingest("/models/x.bad", "new", node="alpha")
        with pytest.raises(BadRequest, match="expected an absolute one"):
            await mesh.client.ingest("x.gguf", "new", node="alpha")


async def test_the_first_call_waits_for_no_status(tmp_path: Path) -> None:
    async with server(tmp_path) as nats:
        async with Inference.connect(nats.url, "app") as client:
            with pytest.raises(NoNode, match="no synapse module is heard of"):
                await client.embed(["x"], model="mini")
        async with world(tmp_path / "b", heard=False) as mesh:
            mesh.module.faults.mute = True
            assert (await mesh.client.embed(["x"], model="mini") == vectors_of(["x"])).all()
            assert mesh.module.asked[0].node == "any"


async def test_an_unknown_model_lists_what_there_is_and_a_new_node_with_it_is_found(tmp_path: Path) -> None:
    async with world(tmp_path, "alpha", "beta") as mesh:
        with pytest.raises(
            ModelUnknown, match="no node has a model 'nope'; on alpha, beta there are: echo, mini"
        ):
            await mesh.client.embed(["x"], model="nope")
        with pytest.raises(BadRequest, match="model"):
            await mesh.client.embed(["x"], model="a.b")
        with pytest.raises(BadRequest, match="'-' stands for none"):
            await mesh.client.embed(["x"], model="-")
        with pytest.raises(ModelUnknown):
            await mesh.client.embed(["x"], model="nope", node="beta")
        mesh.modules["beta"].models["nope"] = "embed"
        assert (await mesh.client.embed(["x"], model="nope", node="beta")).shape == (1, 8)


async def test_on_a_bus_that_exists_which_stays_open(tmp_path: Path) -> None:
    async with world(tmp_path) as mesh, connect(mesh.nats.url, name="svc") as bus:
        async with Inference(bus) as client:
            assert (await client.embed(["x"], model="mini")).shape == (1, 8)
            assert mesh.module.asked[-1].party == "svc"
        assert bus.connected
        with pytest.raises(Closed):
            await client.embed(["x"], model="mini")
        with pytest.raises(Closed):
            await client.open()
        with pytest.raises(Closed, match="not open yet"):
            Inference(bus).nodes  # noqa: B018


async def test_closing_ends_what_runs(tmp_path: Path) -> None:
    async with world(tmp_path) as mesh, connect(mesh.nats.url, name="svc") as bus:
        mesh.module.gate.clear()
        client = await Inference(bus).open()
        call = asyncio.create_task(client.embed(["x"], model="mini"))
        await eventually(lambda: mesh.module.asked)
        await client.close()
        with pytest.raises(Closed, match="the client was closed"):
            await call
        await bus.link.barrier()
        assert mesh.module.cancelled == [mesh.module.asked[0].id]
