"""Every verb that asks for work, at a real module with fake-engine workers, over a real server."""

from __future__ import annotations

import struct
from array import array
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bakemesh.protocol.inference.answers import HealthStamp, ModelList, Scores, Text, Token, Vectors
from bakemesh.protocol.inference.requests import Embed, Generate, Health, Models, Rerank
from bakemesh.worker.engines.fake import score, vector
from support.nats import server
from support.synapse import Asked, Caller, calling, synapse

MODELS = {
    "mini": {"kind": "embed", "dims": 16, "context": 300},
    "rank": {"kind": "rerank", "context": 300},
    "chat": {"kind": "generate", "context": 300},
    "unused": {"kind": "generate"},
}


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def caller(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Caller]:
    folder = tmp_path_factory.mktemp("answers")
    async with server(folder) as nats, synapse(folder, nats.url, MODELS), calling(nats.url) as made:
        yield made


def ids(*tokens: int) -> bytes:
    return array("i", tokens).tobytes()


def rows(asked: Asked) -> list[list[float]]:
    """All vectors: a module may tell those that are done before the others."""
    found: list[list[float]] = []
    for answer in asked.messages:
        assert isinstance(answer, Vectors)
        assert answer.first == len(found)
        flat = struct.unpack(f"<{answer.n * answer.dims}f", answer.data)
        found += [list(flat[at : at + answer.dims]) for at in range(0, len(flat), answer.dims)]
    return found


def near(text: str, pooling: str = "mean", normalize: bool = True) -> object:
    return pytest.approx(list(vector(list(text.encode()), pooling, normalize, 16)), abs=1e-6)


async def test_embed_gives_a_vector_a_text(caller: Caller) -> None:
    asked = await caller.ask("Embed", "mini", Embed(texts=["hello", "wide world"]))
    assert {answer.dims for answer in asked.messages if isinstance(answer, Vectors)} == {16}
    assert sum(answer.ntokens for answer in asked.messages if isinstance(answer, Vectors)) == 15
    assert asked.last.final
    assert rows(asked) == [near("hello"), near("wide world")]
    assert asked.got[0].sender == "synapse@alpha"  # it names the node that answered


async def test_embed_takes_pooling_and_bare_vectors(caller: Caller) -> None:
    asked = await caller.ask("Embed", "mini", Embed(texts=["hello"], pooling="last", normalize=False))
    assert rows(asked) == [near("hello", "last", normalize=False)]


async def test_embed_takes_ids_as_they_come(caller: Caller) -> None:
    asked = await caller.ask("Embed", "mini", Embed(data=ids(104, 105, 106, 107), counts=[2, 2]))
    assert rows(asked) == [near("hi"), near("jk")]


async def test_embed_cuts_what_is_too_long_only_where_asked(caller: Caller) -> None:
    long = "x" * 301
    error = await caller.refused("Embed", "mini", Embed(texts=["short", long]))
    assert (error.code, error.error_class) == ("too_many_tokens", "permanent")
    assert error.details == {"have": 301, "most": 300, "item": 1}
    asked = await caller.ask("Embed", "mini", Embed(texts=["short", long], truncate=True))
    assert rows(asked) == [near("short"), near(long[:300])]
    given = Embed(data=ids(*long.encode()), counts=[301])
    assert (await caller.refused("Embed", "mini", given)).code == "too_many_tokens"
    asked = await caller.ask("Embed", "mini", Embed(data=ids(*long.encode()), counts=[301], truncate=True))
    assert rows(asked) == [near(long[:300])]


async def test_long_texts_are_read_beside_the_loop_and_answered_the_same(caller: Caller) -> None:
    texts = [f"text {number} " * 20 for number in range(400)]
    asked = await caller.ask("Embed", "mini", Embed(texts=texts))
    assert rows(asked) == [near(text) for text in texts]  # type: ignore[arg-type]
    assert asked.ends() == 1


async def test_rerank_gives_a_score_a_document(caller: Caller) -> None:
    documents = ["first", "second one", "third"]
    asked = await caller.ask("Rerank", "rank", Rerank(query="which", documents=documents))
    (answer,) = asked.messages
    assert isinstance(answer, Scores)
    assert answer.n == 3
    assert struct.unpack("<3f", answer.data) == pytest.approx(
        [score(list(b"which"), list(each.encode())) for each in documents], abs=1e-5
    )
    assert answer.ntokens == 3 * len("which") + sum(map(len, documents))


async def test_rerank_names_the_document_that_is_too_long(caller: Caller) -> None:
    error = await caller.refused("Rerank", "rank", Rerank(query="q", documents=["a", "x" * 400]))
    assert error.code == "too_many_tokens"
    assert error.details is not None
    assert error.details["item"] == 1
    asked = await caller.ask("Rerank", "rank", Rerank(query="q", documents=["x" * 400], truncate=True))
    assert struct.unpack("<f", asked.last.data)[0] == pytest.approx(score(list(b"q"), [120] * 299), abs=1e-5)


async def test_generate_gives_the_whole_text(caller: Caller) -> None:
    asked = await caller.ask("Generate", "chat", Generate(data=ids(7, 8, 9)))
    (answer,) = asked.messages
    assert isinstance(answer, Text)
    assert (answer.text, answer.finishreason, answer.nprompt, answer.ngen) == ("7 8 9 ", "stop", 3, 3)


async def test_generate_reads_prompts_and_chats(caller: Caller) -> None:
    prompt = await caller.ask("Generate", "chat", Generate(prompt="AB"))
    assert prompt.last.text == "65 66 "
    turns = [{"role": "user", "content": "A"}, {"role": "assistant", "content": "B"}]
    chat = await caller.ask("Generate", "chat", Generate(messages=turns))
    assert chat.last.text == "65 66 "


async def test_generate_stops_where_it_is_told(caller: Caller) -> None:
    short = await caller.ask("Generate", "chat", Generate(data=ids(7, 8, 9), maxtokens=2))
    assert (short.last.text, short.last.finishreason) == ("7 8 ", "length")
    stopped = await caller.ask("Generate", "chat", Generate(data=ids(7, 8, 9), stop=["9"]))
    assert (stopped.last.text, stopped.last.finishreason) == ("7 8 ", "stop")


async def test_sampling_reaches_the_worker(caller: Caller) -> None:
    asked = await caller.ask("Generate", "chat", Generate(data=ids(7, 8), temperature=0.8, seed=100))
    assert asked.last.text == "107 108 "  # the fake engine adds the seed


async def test_what_no_engine_here_can_do_is_refused(caller: Caller) -> None:
    bound = await caller.refused("Generate", "chat", Generate(prompt="A", grammar='root ::= "a"'))
    assert bound.code in ("bad_request", "capability_absent")


async def test_a_stream_has_every_token_in_order_and_the_whole_text(caller: Caller) -> None:
    asked = await caller.ask("Generate", "chat", Generate(data=ids(*range(1, 41)), stream=True))
    tokens = [each for each in asked.messages if isinstance(each, Token)]
    assert [each.index for each in tokens] == list(range(40))
    assert "".join(each.text for each in tokens) == asked.last.text
    assert asked.last.ngen == 40
    assert asked.ends() == 1


async def test_models_and_health_say_what_is_here(caller: Caller) -> None:
    await caller.ask("Embed", "mini", Embed(texts=["loads it"]))
    listed = (await caller.ask("Models", "-", Models())).last
    assert isinstance(listed, ModelList)
    by_alias = {each["alias"]: each for each in listed.models}
    assert by_alias.keys() == MODELS.keys()
    mini = by_alias["mini"]
    assert (mini["kind"], mini["dims"], mini["context"], mini["state"], mini["lanes"]) == (
        "embed",
        16,
        300,
        "loaded",
        1,
    )
    assert (by_alias["unused"]["state"], by_alias["unused"]["lanes"]) == ("ready", 0)
    stamp = (await caller.ask("Health", "-", Health())).last
    assert isinstance(stamp, HealthStamp)
    assert (stamp.state, stamp.queued, stamp.bytesinflight, stamp.problem) == ("ok", 0, 0, None)
    (lane,) = stamp.lanes
    assert lane["up"] == 1
    assert lane["age_ms"] >= 0


@pytest.mark.parametrize(
    ("verb", "alias", "message", "code", "said"),
    [
        ("Embed", "minni", Embed(texts=["x"]), "model_unknown", "mini"),
        ("Embed", "rank", Embed(texts=["x"]), "bad_request", "rerank"),
        ("Embed", "mini", Embed(), "bad_request", "texts"),
        ("Embed", "mini", Embed(texts=["x"], data=b"1234", counts=[1]), "bad_request", "not both"),
        ("Embed", "mini", Embed(data=b"1234"), "bad_request", "counts"),
        ("Embed", "mini", Embed(data=b"12345", counts=[1]), "bad_request", "5 bytes"),
        ("Embed", "mini", Embed(texts=["ok", ""]), "bad_request", "item 1"),
        ("Generate", "chat", Generate(), "bad_request", "one of"),
        ("Generate", "chat", Generate(prompt="x", data=b"1234"), "bad_request", "one of"),
        ("Generate", "chat", Generate(data=b"123"), "bad_request", "3 bytes"),
        ("Generate", "chat", Generate(prompt="x", grammar="g", jsonschema="{}"), "bad_request", "at once"),
        ("Generate", "chat", Generate(prompt="x" * 300), "too_many_tokens", "300"),
    ],
)
async def test_what_contradicts_itself_is_refused_in_words(
    caller: Caller, verb: str, alias: str, message: object, code: str, said: str
) -> None:
    error = await caller.refused(verb, alias, message)  # type: ignore[arg-type]
    assert error.code == code
    assert said in error.message
