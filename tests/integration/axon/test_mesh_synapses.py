"""The built-in synapses: signed requests of every profile, answered by a mesh of fake-engine models."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bakemesh.axon.mesh import Models
from bakemesh.edge import Axon, Call
from bakemesh.protocol.axon import Embedding, Profile, Rerank, Synapse, Tensor, TextPrompt
from bakemesh.protocol.axon.sse import Decoder
from bakemesh.worker.engines import fake
from support.axon import ALICE, BOB
from support.inference import world
from support.nats import guarded, server
from support.openaiedge import MODELS, before, edge
from support.synapse import statuses, synapse
from support.waiting import eventually

SLOW = {"chat": {"slow_ms": "30", "endless": "yes"}}
ABOVE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize("profile", Profile)
async def test_vectors_scores_and_texts(tmp_path: Path, profile: Profile) -> None:
    async with edge(tmp_path) as at:
        answer = await at.gateway.post(Embedding(texts=["ab", "c"]), profile=profile)
        assert answer.status == 200, answer.body
        tensor = Tensor.model_validate(json.loads(answer.body)["embeddings"])
        expected = [fake.vector(list(text), "mean", True, 16) for text in (b"ab", b"c")]
        assert (tensor.numpy() == np.array(expected, np.float32)).all()
        answer = await at.gateway.post(Rerank(query="ab", documents=["c", "de"]), profile=profile)
        scores = [fake.score(b"ab", each) for each in (b"c", b"de")]
        assert json.loads(answer.body)["scores"] == pytest.approx(scores)
        answer = await at.gateway.post(TextPrompt(prompt="abc", temperature=0), profile=profile)
        assert json.loads(answer.body)["completion"] == "97 98 99 "
        answer = await at.gateway.post(TextPrompt(prompt="abc", stream=True, max_tokens=2), profile=profile)
        assert answer.status == 200
        if profile is Profile.SDK:
            assert answer.body == b"97 98 "
        else:
            events = Decoder().feed(answer.body)
            assert [each.data for each in events] == [b"97 ", b"98 ", b"[DONE]"]


async def test_nothing_of_nothing(tmp_path: Path) -> None:
    async with edge(tmp_path) as at:
        answer = await at.gateway.post(Embedding(texts=[]))
        assert json.loads(answer.body)["embeddings"]["shape"] == [0, 0]
        answer = await at.gateway.post(Rerank(query="a", documents=[]))
        assert json.loads(answer.body) == {"scores": []}


async def test_what_the_mesh_cannot_do_has_its_verdict(tmp_path: Path) -> None:
    async with edge(tmp_path) as at:
        answer = await at.gateway.post(Embedding(texts=["x" * 65]))
        assert (answer.status, "65 tokens" in answer.message) == (422, True)
        assert at.gateway.counted(route="Embedding", verdict="bad_body") == 1
    async with edge(tmp_path / "two", served={"mini": MODELS["mini"]}) as at:
        for stream in (False, True):
            answer = await at.gateway.post(TextPrompt(prompt="a", stream=stream))
            assert (answer.status, answer.message) == (503, "no node of the mesh has the model")
        assert at.gateway.counted(route="TextPrompt", verdict="overloaded") == 2


@pytest.mark.parametrize("stream", [True, False])
async def test_the_deadline_is_the_requests_own(tmp_path: Path, stream: bool) -> None:
    async with edge(tmp_path, config=SLOW) as at, statuses(at.inference.bus) as heard:
        assert (await at.gateway.post(TextPrompt(prompt="abc", max_tokens=1))).status == 200  # it is loaded
        asked = TextPrompt(prompt="abc", max_tokens=100_000, stream=stream)
        answer = await at.gateway.post(asked, timeout=1.5)
        if stream:
            assert Decoder().feed(answer.body)[-1].name == "error"
        else:
            assert answer.status == 408
        assert at.gateway.counted(verdict="timed_out") == 1
        await eventually(lambda: heard and not heard[-1].busy, what="the lane is free again")


async def test_priority_and_traceparent_reach_the_module(tmp_path: Path) -> None:
    """A module of a stranger's hand keeps what it was asked."""

    def urgent(synapse: Embedding, call: Call) -> float:
        return 1e9 if call.hotkey == BOB.address else -1e9

    async with world(tmp_path) as mesh:
        axon = Axon().guard(priority_fn=urgent)
        async with before(mesh.nats.url, tmp_path, models=Models(embed="mini"), axon=axon) as at:
            await mesh.module.say()
            await eventually(lambda: at.mesh.problem() is None, what="the gateway hears of the module")
            answer = await at.gateway.post(Embedding(texts=["a"]))
            assert answer.status == 200, answer.body
            first = mesh.module.asked[-1]
            assert first.entries["priority"] == 100
            assert 0 < first.entries["deadlinems"] <= 12_000
            await at.gateway.post(Embedding(texts=["a"]), by=ALICE)
            assert mesh.module.asked[-1].entries["priority"] == -100
            url = f"{at.gateway.url}/v1/embeddings"
            for sent, went in ((ABOVE, {"traceparent": ABOVE}), ("nonsense", {})):
                headers = at.headers | {"traceparent": sent}
                body = {"model": "mini", "input": "a"}
                async with at.gateway.session.post(url, json=body, headers=headers) as response:
                    assert response.status == 200
                assert mesh.module.asked[-1].headers == went


async def test_a_gateway_has_the_rights_that_it_needs(tmp_path: Path) -> None:
    """On a server with identities, the role `gateway` and nothing more."""
    async with guarded(tmp_path, gateways=("axon",), inference={"synapse": "alpha"}) as mesh:
        from bakemesh.bus import Credentials

        creds = tmp_path / "synapse.nk"
        creds.touch(mode=0o600)
        creds.write_text(mesh.keys["synapse"].seed)
        own = Credentials(nkey_seed=mesh.keys["axon"].seed)
        async with (
            synapse(tmp_path, mesh.server.url, MODELS, "--creds", str(creds)),
            before(mesh.server.url, tmp_path, credentials=own) as at,
            at.openai() as client,
        ):
            await eventually(lambda: at.mesh.problem() is None, what="the gateway hears of the module")
            assert [each.id async for each in client.models.list()] == ["chat", "mini", "ranker"]
            assert (await at.gateway.post(Embedding(texts=["a"]))).status == 200
            assert (await at.gateway.post(Rerank(query="a", documents=["b"]))).status == 200
            stream = await client.completions.create(model="chat", prompt="ab", stream=True)
            assert "".join([piece.choices[0].text async for piece in stream]) == "97 98 "


async def test_an_author_s_own_synapse_comes_first(tmp_path: Path) -> None:
    async def own(synapse: Embedding) -> Embedding:
        synapse.embeddings = Tensor.from_numpy(np.zeros((1, 1), np.float32))
        return synapse

    async with server(tmp_path) as nats, before(nats.url, tmp_path, axon=Axon().attach(own)) as at:
        answer = await at.gateway.post(Embedding(texts=["a"]))
        assert json.loads(answer.body)["embeddings"]["shape"] == [1, 1]
        assert {"/TextPrompt", "/Rerank"} <= set(
            json.loads((await at.gateway.get("/openapi.json")).body)["paths"]
        )
        answer = await at.gateway.get("/readyz")
        assert json.loads(answer.body)["missing"] == {"mesh": "no synapse module takes work"}
        assert (await at.gateway.get("/healthz")).status == 200


async def test_a_guard_stands_before_the_meshs_synapses_and_no_other(tmp_path: Path) -> None:
    async def known(synapse: Synapse, call: Call) -> tuple[bool, str]:
        return call.hotkey != BOB.address, f"no {synapse.name} for strangers"

    async with edge(tmp_path, axon=Axon().guard(known)) as at:
        for asked in (Embedding(texts=["a"]), Rerank(query="a", documents=["b"]), TextPrompt(prompt="a")):
            assert (await at.gateway.post(asked)).status == 200
            answer = await at.gateway.post(asked, by=ALICE)
            assert answer.status == 403
            assert f"no {asked.name} for strangers" in answer.message
        assert (await at.gateway.post(Synapse(), by=ALICE)).status == 200
