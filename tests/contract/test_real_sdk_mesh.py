"""A text that the mesh generates, through the gateway, to the real SDK's dendrite and to ours.

A nats-server, a synapse module with fake-engine workers, the gateway: what a user has.
"""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest

from bakemesh.dendrite import Dendrite, Target
from bakemesh.protocol.axon import Embedding, Profile, Rerank, TextPrompt
from bakemesh.worker.engines import fake
from support.openaiedge import edge
from support.realsdk import real_dendrite, real_sdk
from support.recorded import ALICE, BOB

pytestmark = pytest.mark.timeout(1000)  # it may install the SDK


async def test_the_real_dendrite_gets_a_generated_text(tmp_path: Path) -> None:
    async with edge(tmp_path) as at, real_dendrite(real_sdk(), tmp_path / "home") as theirs:
        port = at.gateway.port
        whole = await theirs.call("WholeTextPrompt", port, prompt="abc", temperature=0.0)
        parts = await theirs.call("TextPrompt", port, prompt="abc", max_tokens=2, stream=True)
        served = at.gateway.counted(route="TextPrompt", verdict="ok", profile="sdk")

    assert whole["status_code"] == 200, whole["status_message"]
    assert whole["flags"]["is_success"]
    assert whole["fields"]["completion"] == "97 98 99 "
    assert parts["status_code"] == 200, parts["status_message"]
    assert "".join(parts["chunks"]) == parts["fields"]["completion"] == "97 98 "
    assert served == 2


@pytest.mark.parametrize("profile", list(Profile))
async def test_our_dendrite_gets_all_that_the_mesh_does(tmp_path: Path, profile: Profile) -> None:
    async with edge(tmp_path) as at, Dendrite(BOB, profile=profile) as dendrite:
        axon = Target(at.gateway.host, at.gateway.port, ALICE.address)
        text = await dendrite.query(axon, TextPrompt(prompt="abc", temperature=0))
        stream = dendrite.stream(axon, TextPrompt(prompt="abc", stream=True, max_tokens=2))
        parts = [part async for part in stream]
        vectors = await dendrite.query(axon, Embedding(texts=["ab", "c"]))
        scores = await dendrite.query(axon, Rerank(query="ab", documents=["c", "de"]), deserialize=True)
        served = at.gateway.counted(verdict="ok", profile=str(profile))

    assert text.completion == "97 98 99 ", text.dendrite
    assert "".join(parts) == "97 98 "
    assert stream.synapse.is_success
    assert vectors.embeddings is not None, vectors.dendrite
    expected = [fake.vector(list(each), "mean", True, 16) for each in (b"ab", b"c")]
    assert numpy.array_equal(vectors.embeddings.numpy(), numpy.array(expected, numpy.float32))
    assert scores.scores == pytest.approx([fake.score(b"ab", each) for each in (b"c", b"de")])
    assert served == 4
