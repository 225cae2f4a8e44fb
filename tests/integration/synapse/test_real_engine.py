"""The whole way with llama.cpp: tiny real GGUFs are ingested, tokenized here, run there, and answered."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from bakemesh.protocol.inference.answers import Error, Ingested, Scores, Text, Token, Vectors
from bakemesh.protocol.inference.requests import Embed, Generate, Health, Ingest, Rerank
from support import models
from support.engine import need_engine
from support.nats import server
from support.startup import startup
from support.synapse import Caller, calling

MANY = 32  # texts of a request
pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def caller(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Caller]:
    need_engine()
    folder = tmp_path_factory.mktemp("real")
    mini = models.bert(folder / "mini.gguf")
    chat = models.alphabet(folder / "chat.gguf")
    rank = models.bert(folder / "rank.gguf", pooling="rank", segments=1)
    flags = [f"--model=mini={mini}", f"--model=chat={chat}", f"--model=rank={rank}", "--workers=1"]
    async with (
        server(folder) as nats,
        startup(folder, nats.url, "alpha", None, *flags, program="bakemesh.synapse"),
        calling(nats.url) as made,
    ):
        yield made


async def test_texts_and_their_ids_have_the_same_vectors(caller: Caller) -> None:
    texts = ["the cat eats fish", "red bird"]
    by_text = (await caller.ask("Embed", "mini", Embed(texts=texts))).last
    assert isinstance(by_text, Vectors)
    ids = [models.words(text) for text in texts]
    data = np.concatenate(ids).astype("<i4").tobytes()
    by_ids = (await caller.ask("Embed", "mini", Embed(data=data, counts=[len(each) for each in ids]))).last
    one, other = (np.frombuffer(each.data, "<f4").reshape(2, -1) for each in (by_text, by_ids))
    assert np.allclose(one, other, atol=1e-6)
    assert np.allclose(np.linalg.norm(one, axis=1), 1.0, atol=1e-4)
    assert by_text.ntokens == sum(map(len, ids))


async def test_many_callers_get_their_own_vectors(caller: Caller) -> None:
    texts = [f"{first} {second}" for first in models.WORDS[5:15] for second in models.WORDS[5:15]]
    alone = [
        np.frombuffer((await caller.ask("Embed", "mini", Embed(texts=[t]))).last.data, "<f4")
        for t in texts[:5]
    ]
    some = [await caller.send("Embed", "mini", Embed(texts=[text])) for text in texts]
    for each in some:
        await each.ended.wait()
    batched = np.stack([np.frombuffer(each.last.data, "<f4") for each in some])
    likeness = np.stack(alone) @ batched.T  # all have length 1; batches differ in the last digits
    assert likeness.argmax(axis=1).tolist() == list(range(5))
    assert likeness.max(axis=1).min() > 0.9999
    assert [each.ends() for each in some] == [1] * len(some)


async def test_overload_keeps_goodput_and_tells_the_rest_at_once(tmp_path: Path) -> None:
    """At 3 times what one lane does: each result is compared with the vector that its text has."""
    need_engine()
    loop, long = asyncio.get_running_loop(), 24
    firsts = [f"{one} {other} " for one in models.WORDS[5:] for other in models.WORDS[5:]]
    texts = [first + first * (long - 1) for first in firsts]
    flags = [f"--model=mini={models.bert(tmp_path / 'mini.gguf')}", "--workers=1", "--max-queue-ms=300"]
    async with (
        server(tmp_path) as nats,
        startup(tmp_path, nats.url, "alpha", None, *flags, program="bakemesh.synapse"),
        calling(nats.url) as caller,
    ):

        async def rows(some: list[str]) -> np.ndarray | Error:
            asked = await caller.ask("Embed", "mini", Embed(texts=some, deadlinems=5000))
            assert asked.ends() == 1
            if isinstance(asked.last, Error):
                return asked.last
            data = b"".join(each.data for each in asked.messages if isinstance(each, Vectors))
            return np.frombuffer(data, "<f4").reshape(len(some), -1)

        found = [await rows(texts[at : at + MANY]) for at in range(0, len(texts), MANY)]
        known = np.concatenate([each for each in found if isinstance(each, np.ndarray)])
        assert len(known) == len(texts)
        assert np.sort(known @ known.T, axis=1)[:, -2].max() < 0.9999, "texts that can be told apart"
        good, refused = 0, [("", 0.0)][:0]

        async def one(number: int) -> None:
            nonlocal good
            at, began = number * 7 % (len(texts) - MANY), loop.time()
            answer = await rows(texts[at : at + MANY])
            if isinstance(answer, Error):
                refused.append((answer.code, loop.time() - began))
                return
            assert (answer * known[at : at + MANY]).sum(axis=1).min() > 0.9999
            good += 1

        async def closed(seconds: float, callers: int) -> float:
            """A rate, of callers that wait for their answers."""
            nonlocal good
            good, began = 0, loop.time()

            async def ask(number: int) -> None:
                while loop.time() < began + seconds:
                    await one(number)
                    number += callers

            await asyncio.gather(*(ask(number) for number in range(callers)))
            return good / (loop.time() - began)

        async def offered(rate: float, seconds: float) -> float:
            """The rate of results where so many requests come."""
            nonlocal good
            good, began, number = 0, loop.time(), 0
            async with asyncio.TaskGroup() as group:
                while (now := loop.time()) < began + seconds:
                    while number < (now - began) * rate:
                        group.create_task(one(number))
                        number += 1
                    await asyncio.sleep(0.002)
            return good / (loop.time() - began)

        ratios: list[float] = []
        while len(ratios) < 4 and max(ratios, default=0) < 0.9:  # what else runs here may hit one of the two
            peak = await closed(2, 8)
            refused.clear()
            ratios.append(await offered(3 * peak, 3) / peak)
            assert {code for code, _ in refused} == {"queue_full"}
            waited = sorted(took for _, took in refused)
            assert waited[len(waited) // 2] < 0.1  # nobody sat in the queue for it: that is 0.3 s
        assert max(ratios) >= 0.9, ratios
        stamp = (await caller.ask("Health", "-", Health())).last
        assert (stamp.bytesinflight, stamp.queued) == (0, 0)


async def test_documents_get_their_scores(caller: Caller) -> None:
    asked = await caller.ask("Rerank", "rank", Rerank(query="red cat", documents=["red", "blue fish eats"]))
    assert isinstance(asked.last, Scores)
    scores = struct.unpack("<2f", asked.last.data)
    assert scores[0] != scores[1]
    swapped = await caller.ask("Rerank", "rank", Rerank(query="red cat", documents=["blue fish eats", "red"]))
    assert struct.unpack("<2f", swapped.last.data) == pytest.approx(scores[::-1], abs=1e-4)


async def test_a_stream_is_the_text_that_the_whole_is(caller: Caller) -> None:
    whole = (await caller.ask("Generate", "chat", Generate(prompt="xyz ab", maxtokens=64))).last
    assert isinstance(whole, Text)
    assert (whole.text, whole.finishreason) == ("cdefghijklmnopqrstuvwxyz", "stop")
    asked = await caller.ask("Generate", "chat", Generate(prompt="xyz ab", maxtokens=64, stream=True))
    tokens = [each for each in asked.messages if isinstance(each, Token)]
    assert "".join(each.text for each in tokens) == asked.last.text == whole.text
    assert (asked.last.nprompt, asked.last.ngen) == (whole.nprompt, whole.ngen)


async def test_a_seed_gives_the_same_text_again(caller: Caller) -> None:
    def drawn(seed: int) -> Generate:
        return Generate(prompt="ab", maxtokens=24, temperature=50.0, seed=seed)

    texts = [(await caller.ask("Generate", "chat", drawn(seed))).last.text for seed in (7, 7, 8)]
    assert texts[0] == texts[1]
    assert texts[0] != texts[2]


async def test_grammars_schemas_and_stops_are_honoured(caller: Caller) -> None:
    bound = Generate(prompt="ab", maxtokens=16, grammar='root ::= "77"')
    found = (await caller.ask("Generate", "chat", bound)).last
    assert (found.text, found.finishreason) == ("77", "grammar_complete")
    schema = json.dumps({"type": "boolean"})
    found = (
        await caller.ask("Generate", "chat", Generate(prompt="ab", maxtokens=32, jsonschema=schema))
    ).last
    assert json.loads(found.text) in (True, False)
    found = (await caller.ask("Generate", "chat", Generate(prompt="ab", maxtokens=64, stop=["gh"]))).last
    assert (found.text, found.finishreason) == ("cdef", "stop")


async def test_a_grammar_that_is_none_is_refused(caller: Caller) -> None:
    error = await caller.refused("Generate", "chat", Generate(prompt="ab", grammar="root ::= ("))
    assert error.error_class == "permanent"


async def test_another_file_can_be_ingested_and_a_broken_one_cannot(caller: Caller, tmp_path: Path) -> None:
    more = models.bert(tmp_path / "more.gguf", pooling="cls")
    asked = await caller.ask("Ingest", "more", Ingest(path=str(more)))
    assert isinstance(asked.last, Ingested)
    assert asked.last.manifest["pooling"] == "cls"
    assert (await caller.ask("Embed", "more", Embed(texts=["cat"]))).last.dims == models.BERT_SIZES["dims"]
    broken = models.cut_short(tmp_path / "broken.gguf", 4000)
    error = await caller.refused("Ingest", "broken", Ingest(path=str(broken)))
    assert error.code == "artifact_invalid"
