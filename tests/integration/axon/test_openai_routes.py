"""The OpenAI-style routes as HTTP: rerankings, what is nothing, what is too large, what is no JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from bakemesh.axon.mesh import Models
from bakemesh.axon.openai.whole import relevance
from bakemesh.axon.settings import Limits
from bakemesh.worker.engines import fake
from support.openaiedge import edge


async def test_rerank(tmp_path: Path) -> None:
    async with edge(tmp_path) as at:
        documents = ["c", {"text": "de"}, "f"]
        status, _, body = await at.post("rerank", {"query": "ab", "documents": documents})
        assert status == 200
        scores = {index: fake.score(b"ab", text) for index, text in enumerate((b"c", b"de", b"f"))}
        order = sorted(scores, key=lambda index: -scores[index])
        assert [each["index"] for each in body["results"]] == order
        for each in body["results"]:
            assert each["relevance_score"] == pytest.approx(relevance(scores[each["index"]]), abs=1e-6)
            assert "document" not in each
        assert body["model"] == "ranker"
        assert body["usage"]["prompt_tokens"] > 0
        more = {"model": "ranker", "top_n": 1, "return_documents": True}
        _, _, best = await at.post("rerank", {"query": "ab", "documents": documents, **more})
        (only,) = best["results"]
        assert only["index"] == order[0]
        assert only["document"] == {"text": ["c", "de", "f"][order[0]]}


async def test_what_is_nothing_is_told_as_openai_does(tmp_path: Path) -> None:
    async with edge(tmp_path) as at:
        status, _, body = await at.post("audio/speech", {})
        assert (status, body["error"]["code"]) == (404, "unknown_url")
        async with at.gateway.session.get(f"{at.gateway.url}/v1/embeddings") as answer:
            assert (answer.status, answer.headers["allow"]) == (405, "POST")
            assert (await answer.json())["error"]["code"] == "method_not_allowed"
        for raw in (b"", b"{", b"[1]", b"\xff"):
            status, _, body = await at.post("embeddings", raw)
            assert (status, body["error"]["type"]) == (400, "invalid_request_error")


async def test_a_body_above_the_limit_is_413(tmp_path: Path) -> None:
    async with edge(tmp_path, limits=Limits(body_bytes=1000)) as at:

        async def chunks():  # type: ignore[no-untyped-def]
            for _ in range(100):
                yield b"x" * 100

        status, _, body = await at.post("embeddings", b"", data=chunks())
        assert (status, body["error"]["code"]) == (413, "body_too_large")
        status, _, _ = await at.post("embeddings", b"x" * 2000)
        assert status == 413


async def test_settings_choose_where_a_request_names_no_model(tmp_path: Path) -> None:
    served = {"a-chat": {"kind": "generate"}, "b-chat": {"kind": "generate"}}
    asked = {"messages": [{"role": "user", "content": "x"}], "model": "b-chat"}
    async with edge(tmp_path, served=served, models=Models(rerank="a-chat")) as at:
        status, _, body = await at.post("chat/completions", asked)
        assert (status, body["model"]) == (200, "b-chat")
        status, _, body = await at.post("rerank", {"query": "q", "documents": ["d"]})
        assert status == 400  # the one that the settings name is no reranker


async def test_a_kind_of_which_the_mesh_has_none(tmp_path: Path) -> None:
    async with edge(tmp_path, served={"chat": {"kind": "generate"}}) as at:
        status, _, body = await at.post("rerank", {"query": "q", "documents": ["d"]})
        assert (status, body["error"]["code"]) == (404, "model_not_found")
