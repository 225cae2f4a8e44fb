"""Ingest, Artifact and Probe: what operators and lane hosts ask."""

from __future__ import annotations

import hashlib
from pathlib import Path

from bakemesh.protocol.inference.answers import Chunk, Ingested, Progress
from bakemesh.protocol.inference.requests import Artifact, Embed, Health, Ingest, Models, Probe
from support.nats import server
from support.synapse import calling, fake_model, synapse
from support.waiting import eventually


async def test_an_ingested_file_can_be_asked_for_at_once(tmp_path: Path) -> None:
    path = fake_model(tmp_path, "fresh", kind="embed", dims=24)
    async with server(tmp_path) as nats, synapse(tmp_path, nats.url, {}), calling(nats.url) as caller:
        assert (await caller.refused("Embed", "fresh", Embed(texts=["x"]))).code == "model_unknown"
        asked = await caller.ask("Ingest", "fresh", Ingest(path=str(path), config={"slow_ms": "1"}))
        assert isinstance(asked.last, Ingested)
        digest = "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
        assert (asked.last.digest, asked.last.alias) == (digest, "fresh")
        assert asked.last.manifest["dims"] == 24
        told = [each for each in asked.messages if isinstance(each, Progress)]
        assert {"hash"} <= {each.stage for each in told}
        assert all(each.done <= each.total for each in told)
        assert (await caller.ask("Embed", "fresh", Embed(texts=["x"]))).last.dims == 24


async def test_a_file_that_is_no_model_is_refused_and_harms_nobody(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + b"\xff" * 1000)
    async with (
        server(tmp_path) as nats,
        synapse(tmp_path, nats.url, {"mini": {}}),
        calling(nats.url) as caller,
    ):
        for path in ("bad.gguf", "absent.gguf"):
            error = await caller.refused("Ingest", "bad", Ingest(path=str(tmp_path / path)))
            assert error.code == "artifact_invalid"
        assert (await caller.refused("Embed", "bad", Embed(texts=["x"]))).code == "model_unknown"
        assert (await caller.ask("Embed", "mini", Embed(texts=["x"]))).last.n == 1


async def test_an_artifact_comes_in_pieces(tmp_path: Path) -> None:
    async with (
        server(tmp_path) as nats,
        synapse(tmp_path, nats.url, {"mini": {"kind": "embed"}}),
        calling(nats.url) as caller,
    ):
        (model,) = (await caller.ask("Models", "-", Models())).last.models
        whole, total = b"", 1
        while len(whole) < total:
            asked = Artifact(digest=model["digest"], offset=len(whole), length=7)
            chunk = (await caller.ask("Artifact", "-", asked)).last
            assert isinstance(chunk, Chunk)
            assert (chunk.offset, len(chunk.data) <= 7) == (len(whole), True)
            whole, total = whole + chunk.data, chunk.total
        assert "sha256:" + hashlib.sha256(whole).hexdigest() == model["digest"]
        absent = Artifact(digest="sha256:" + "0" * 64, offset=0, length=1)
        assert (await caller.refused("Artifact", "-", absent)).code == "model_unknown"
        beyond = Artifact(digest=model["digest"], offset=total + 1, length=1)
        assert (await caller.refused("Artifact", "-", beyond)).code == "bad_request"


async def test_a_quarantined_model_is_said_and_a_probe_tries_it(tmp_path: Path) -> None:
    config = {"mini": {"abort_on_item": "90"}}
    async with (
        server(tmp_path) as nats,
        synapse(tmp_path, nats.url, {"mini": {}, "other": {}}, config=config),
        calling(nats.url) as caller,
    ):
        codes = set()

        async def quarantined() -> bool:
            # Each text is another one: a request that killed a worker by itself is refused as such.
            error = await caller.refused("Embed", "mini", Embed(texts=["Z" * (len(codes) + 1)]))
            codes.add((error.code, len(codes)))
            return bool(error.code == "probe_required")

        await eventually(quarantined, what="a quarantine")
        stamp = (await caller.ask("Health", "-", Health())).last
        assert stamp.state == "degraded"
        assert {each["alias"]: each["state"] for each in stamp.models}["mini"] == "quarantined"
        assert (await caller.ask("Embed", "other", Embed(texts=["x"]))).last.n == 1
        assert (await caller.ask("Probe", "mini", Probe())).last.state == "ok"
        assert (await caller.ask("Embed", "mini", Embed(texts=["fine"]))).last.n == 1
