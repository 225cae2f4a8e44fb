"""Our dendrite calls the real SDK's axon: its classes are ours with another base."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy
import pytest

from bakemesh.dendrite import CallFailed, Dendrite, Target
from bakemesh.protocol.axon import Hotkey, Profile, Tensor
from support.realsdk import real_axon, real_sdk
from support.recorded import ALICE, BOB, CHARLIE
from support.sdkclasses import Role, Turn
from support.sdkserved import KINDS

pytestmark = pytest.mark.timeout(1000)  # the first of these tests installs the SDK


@asynccontextmanager
async def both(folder: Path, **options: Any) -> AsyncIterator[tuple[Dendrite, Target]]:
    async with (
        real_axon(real_sdk(), folder / "home") as port,
        Dendrite(BOB, profile=Profile.SDK, **options) as dendrite,
    ):
        yield dendrite, Target("127.0.0.1", port, ALICE.address)


async def test_it_answers(tmp_path: Path) -> None:
    async with both(tmp_path) as (dendrite, axon):
        found = await dendrite.query(axon, KINDS["Echo"](text="héllo wörld", n=3))
        unhashed = await dendrite.query(axon, KINDS["Unhashed"](text="a"))
        required = await dendrite.query(
            axon,
            KINDS["Required"](prompt="hi", roles=["user"], n=2, temperature=0.7, flags={"a": True}),
        )

    assert found.is_success, found.dendrite
    assert found.dendrite.status_message == "Success"
    assert found.reply == "héllo wörld"
    assert found.axon.status_code == 200
    assert unhashed.reply == "a"
    assert required.reply == "hi"


async def test_a_class_of_everything_survives_the_way_there_and_back(tmp_path: Path) -> None:
    turns = [
        Turn(role=Role.USER, content="héllo", weight=0.1, source={"url": "http://a/?b=c", "rank": 3}),
        Turn(role=Role.ASSISTANT, content='quote " and \\', weight=1e-7),
        Turn(role=Role.USER, content="", weight=1e22),
    ]
    given = {
        "turns": turns,
        "mode": "fast",
        "extra": [{"a": 1, "b": [1.5, None, True, "x"]}, {}],
        "options": {"top_k": 5, "nested": {"deep": ["ü"]}},
        "role": Role.ASSISTANT,
        "limit": 0.30000000000000004,
        "tags": ("a", "b"),
    }
    async with both(tmp_path) as (dendrite, axon):
        found = await dendrite.query(axon, KINDS["Chat"](**given))
        number = await dendrite.query(axon, KINDS["Chat"](**{**given, "mode": 3, "options": None}))

    assert found.is_success, found.dendrite
    assert found.best == turns[2]
    assert found.all_of_them == turns[::-1]
    assert found.seed == 7
    assert {name: getattr(found, name) for name in given} == given
    assert number.is_success, number.dendrite


async def test_tensors_go_both_ways(tmp_path: Path) -> None:
    async with both(tmp_path) as (dendrite, axon):
        for dtype in ("float16", "float32", "float64", "int8", "int64", "uint8"):
            array = numpy.arange(6, dtype=dtype).reshape(2, 3)
            found = await dendrite.query(axon, KINDS["Array"](given=Tensor.from_numpy(array)))

            assert found.is_success, found.dendrite
            doubled = found.doubled.numpy()
            assert doubled.dtype == dtype
            assert numpy.array_equal(doubled, array * 2)


async def test_a_stream_arrives_in_its_parts(tmp_path: Path) -> None:
    async with both(tmp_path) as (dendrite, axon):
        stream = dendrite.stream(axon, KINDS["Tok"](prompt="q"))
        found = [part async for part in stream]
        refused = dendrite.stream(axon, KINDS["TextPrompt"](prompt="q"))
        with pytest.raises(CallFailed) as failed:
            await anext(refused)

    assert found == ["hel", "lö ", "wor", "ld"]
    assert stream.synapse.is_success
    assert failed.value.status_code == 404


async def test_what_is_refused_is_told_as_it_says(tmp_path: Path) -> None:
    async with both(tmp_path) as (dendrite, axon):
        private = await dendrite.query(axon, KINDS["Private"](text="a"))
        nowhere = await dendrite.query(axon, KINDS["Nowhere"](text="a"))
        boom = await dendrite.query(axon, KINDS["Boom"](text="a"))
        late = await dendrite.query(axon, KINDS["Slow"](seconds=30), 0.5)
        again = await dendrite.query(axon, KINDS["Echo"](text="a"))

    assert private.is_blacklist
    assert private.dendrite.status_message == "Forbidden. Key is blacklisted: not registered."
    assert nowhere.dendrite.status_code == 404
    assert (nowhere.dendrite.status_message or "").startswith("Synapse name 'Nowhere' not found.")
    assert boom.dendrite.status_code == 500
    assert late.is_timeout
    assert again.is_success


async def test_it_verifies_who_asks_whom_and_when(tmp_path: Path) -> None:
    """So what it takes from us, it takes for what we signed."""
    liar = Hotkey(CHARLIE.public_key, CHARLIE.secret_key, BOB.address)
    async with both(tmp_path) as (_, axon):
        other = Target(axon.host, axon.port, CHARLIE.address)
        for hotkey, target, now_ns in (
            (liar, axon, time.time_ns),
            (BOB, other, time.time_ns),
            (BOB, axon, lambda: time.time_ns() - 60 * 10**9),
        ):
            async with Dendrite(hotkey, profile=Profile.SDK, now_ns=now_ns) as dendrite:
                found = await dendrite.query(target, KINDS["Echo"](text="a"))
            # For another axon it answers with a signature of its own, which is not that other's.
            assert found.failed_verification or found.dendrite.status_code == 422, found.dendrite
            assert found.reply is None


async def test_many_at_once_are_all_taken(tmp_path: Path) -> None:
    """Their nonces rise for each uuid as it demands, and it remembers no more uuids than there are lanes."""
    async with both(tmp_path, connections_an_axon=32) as (dendrite, axon):
        asked = [dendrite.query(axon, KINDS["Echo"](text=str(n)), 60) for n in range(150)]
        found = await asyncio.gather(*asked)

    assert [each.dendrite.status_code for each in found] == [200] * 150
    assert [each.reply for each in found] == [str(n) for n in range(150)]
    assert len({each.dendrite.uuid for each in found}) <= 32
