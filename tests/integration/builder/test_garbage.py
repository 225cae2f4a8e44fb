"""Bytes that nobody should send, on every subject that a Builder reads: it lives, counts, and bakes on."""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack

from bakemesh.bus import Sealed
from bakemesh.protocol import subjects
from bakemesh.protocol.builder.messages import BakeSuccess
from bakemesh.protocol.identity import Identity
from bakemesh.supervisor import NodeUnreachable
from support.controls import control, entries_of
from support.house import House, output_of, running_house
from support.letters import letter, recipe_letter, send
from support.waiting import eventually

VERBS = ("Pause", "Start", "Cancel", "Terminate", "SkipStep", "RetryStep", "Explode")
# What a msgpack reader must not believe: lengths of 4 GiB, keys that cannot be keys, no end of nesting.
HOSTILE: tuple[bytes, ...] = (
    b"",
    b"\xc1",
    b"\xdf\xff\xff\xff\xff",
    b"\xdd\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xff",
    b"\xc9\xff\xff\xff\xff\x00",
    b"\x91" * 100_000,
    b"\x81" * 100_000,
    b"\x81\x91\x01\x01",
    b"\x81\x81\x01\x01\x01",
    b"\x81\xc0\x01",
    b"\xa3\xff\xfe\xfd",
    b"\xd6\xff\x00\x00\x00\x00",
    msgpack.packb({i: i for i in range(300_000)}),
    msgpack.packb([None] * 1_000_000),
)


def huge(kind: str, identity: Identity) -> list[Sealed]:
    """Whole messages with entries that are no longer funny."""
    own = entries_of(identity)
    return [
        letter(kind, {**own, **{f"k{i}": i for i in range(200_000)}}),
        letter(kind, {i: i for i in range(200_000)}),
        letter(kind, {**own, "RecipeSpec": "<" * 2**20, "request": "x" * 2**20, "data": b"x"}),
        letter(kind, {**own, "params": {f"p{i}": "v" * 10 for i in range(100_000)}, "RecipeSpec": "<r/>"}),
        letter(kind, {**own, "RecipeSpec": "<recipe>" + "<cli/>" * 150_000 + "</recipe>"}),
        letter(kind, {**own, "RecipeSpec": "<recipe " + " ".join(f'a{i}="1"' for i in range(80_000)) + "/>"}),
        letter(kind, {**own, "RecipeSpec": "<r>" * 300_000}),
        letter(kind, {**own, "ctrlseq": 2**64 - 1, "issuedby": "x" * 7_000_000}),
        letter(kind, {**own, "ctrlseq": float("nan"), "issuedby": None, "part": -(2**63)}),
        letter(kind, dict.fromkeys(own, "\x00" * 100)),
        letter(kind, {name.upper(): value for name, value in own.items()} | own),
    ]


def mutated(payload: bytes, chance: random.Random) -> bytes:
    """A valid message with a few bytes changed, cut or doubled."""
    raw = bytearray(payload)
    match chance.randrange(4):
        case 0:
            for _ in range(chance.randint(1, 8)):
                raw[chance.randrange(len(raw))] = chance.randrange(256)
        case 1:
            del raw[chance.randrange(len(raw)) :]
        case 2:
            raw += raw[: chance.randrange(len(raw))]
        case _:
            at = chance.randrange(len(raw))
            raw[at:at] = chance.randbytes(chance.randint(1, 30))
    return bytes(raw)


def random_object(chance: random.Random, depth: int = 0) -> Any:
    """Anything that msgpack can write."""
    kinds: list[Callable[[], Any]] = [
        lambda: chance.choice([None, True, False]),
        lambda: chance.randint(-(2**63), 2**64 - 1),
        lambda: chance.random(),
        lambda: chance.randbytes(chance.randint(0, 40)),
        lambda: "".join(chance.choice("aé\0 \u202e<&$") for _ in range(chance.randint(0, 40))),
    ]
    if depth < 4:
        kinds += [
            lambda: [random_object(chance, depth + 1) for _ in range(chance.randint(0, 6))],
            lambda: {
                chance.choice(["v", "type", "id", "entries", 1, None, b"k"]): random_object(chance, depth + 1)
                for _ in range(chance.randint(0, 6))
            },
        ]
    return chance.choice(kinds)()


async def still_bakes(house: House) -> None:
    secret = house.canary()
    bake = await house.bake(f'<recipe name="well"><cli command="echo {secret}"/></recipe>')
    await house.story(bake)
    assert await output_of(bake) == {(0, "stdout"): f"{secret}\n".encode()}


def counted(house: House) -> dict[str, int]:
    """What the Builder says at its end of the messages that it did not take."""
    found = re.search(r"messages that were not taken: ([^\"\n]*)", house.log)
    assert found, house.log[-2000:]
    pairs = (part.split() for part in found[1].split(", "))
    return {reason: int(count) for count, reason in pairs}


async def test_garbage_in_the_inbox(tmp_path: Path) -> None:
    chance = random.Random(1)
    identity = Identity("writer", "bad", "writer-bad-1", "alpha", "alpha")
    kinds = (subjects.RECIPE, subjects.BAKE_DATA_PUSH)
    large = [(kind, sealed.payload) for kind in kinds for sealed in huge(kind, identity)]
    async with running_house(tmp_path) as house:
        number = 0

        async def store(payload: bytes, kind: str = subjects.RECIPE, headers: Any = None) -> None:
            nonlocal number
            number += 1
            subject = f"{house.bus.mesh}.alpha.writer.writer-bad-{number}.{kind}"
            await house.bus.publish_stored(subject, Sealed(payload, os.urandom(16).hex()), headers=headers)

        for kind, payload in large:
            await store(payload, kind)
        for kind in kinds:
            for payload in HOSTILE:
                await store(payload, kind)
            await store(letter("Psyclone.Other", entries_of(identity)).payload, kind)
        good = recipe_letter(identity, '<recipe name="bad"><cli command="false"/></recipe>').payload
        for _ in range(150):
            await store(mutated(good, chance), chance.choice(kinds))
            await store(chance.randbytes(chance.randint(0, 200)), chance.choice(kinds))
            await store(msgpack.packb(random_object(chance)), chance.choice(kinds))
            entries = random_object(chance)
            await store(letter(subjects.RECIPE, entries if isinstance(entries, dict) else {}).payload)
        # Asks for an answer where none may go: so a stranger would speak as the Builder.
        stolen = f"{house.bus.mesh}.alpha.boss.boss-x-1.Psyclone.Builder.Bake.Success"
        await store(good, headers={"Bakemesh-Reply": stolen})
        await store(good, headers={"Nats-Stream": "x"})
        # What has no envelope is answered all the same where somebody waits at an inbox.
        result = await send(
            house.bus,
            f"{house.bus.mesh}.alpha.writer.writer-bad-0.{subjects.RECIPE}",
            Sealed(b"\xc1", os.urandom(16).hex()),
        )
        assert (result.accepted, result.code, result.verb) == (False, "malformed_message", "Recipe")
        await still_bakes(house)
        assert not [s for s in house.tap.statuses if s.recipe_id == "boss-x-1"]
        assert await house.node.stop() == 0
        counts = counted(house)
        assert counts["undecodable"] >= 2 * len(HOSTILE) + 150
        assert counts["other_type"] >= 2
        assert counts["foreign_reply"] == 1
        assert counts["replayed"] == 1
        await house.node.start()
        await still_bakes(house)


async def test_a_flood_that_cuts_the_link(tmp_path: Path) -> None:
    """More than the server holds for a client that lags: it cuts the Builder off, which comes back."""
    async with running_house(tmp_path) as house:
        gate = house.gate()
        bake = await house.bake(f'<recipe name="run">{house.held_at(gate, "slow")}</recipe>')
        await house.reached(bake, 0)
        kind = f"{subjects.CONTROL}.Pause"
        subject = subjects.build(house.bus.mesh, "alpha", "boss", bake.recipe_id, kind)
        own = {**entries_of(bake.identity), "ctrlseq": 1, "issuedby": "x"}
        big = letter(kind, {**own, **{f"k{i}": i for i in range(200_000)}}).payload
        while "link down" not in house.log:
            for _ in range(20):
                await house.bus.link.send(subject, big, "_INBOX.nobody.1")
            await house.bus.link.barrier()

        async def answers() -> bool:
            try:
                return (await bake.start()).accepted
            except NodeUnreachable:
                return False

        await eventually(answers, what="a Builder that is back")
        await still_bakes(house)
        gate.open()
        assert isinstance((await house.story(bake))[-1], BakeSuccess)


async def test_garbage_as_controls(tmp_path: Path) -> None:
    # All made before there is a link that would miss its pings meanwhile.
    chance = random.Random(7)
    identity = Identity("boss", "run", "boss-run-1", "alpha", "alpha")
    payloads = list(HOSTILE)
    for verb in VERBS:
        payloads += [each.payload for each in huge(f"{subjects.CONTROL}.{verb}", identity)[:2]]
    payloads += [each.payload for each in huge(f"{subjects.CONTROL}.Cancel", identity)]
    cancel = letter(f"{subjects.CONTROL}.Cancel", {**entries_of(identity), "ctrlseq": 1, "issuedby": "boss"})
    payloads += [cancel.payload[:at] for at in range(0, len(cancel.payload), 3)]
    payloads += [chance.randbytes(chance.randint(0, 300)) for _ in range(300)]
    payloads += [msgpack.packb(random_object(chance)) for _ in range(300)]
    async with running_house(tmp_path) as house:
        gate = house.gate()
        bake = await house.bake(f'<recipe name="run">{house.held_at(gate, "slow")}</recipe>')
        await house.reached(bake, 0)
        assert bake.identity == identity
        link, mesh = house.bus.link, house.bus.mesh

        def subject(verb: str) -> str:
            return f"{mesh}.alpha.boss.{identity.recipe_id}.{subjects.CONTROL}.{verb}"

        answers = await asyncio.gather(
            *(link.ask(subject("Pause"), payload, 60) for payload in HOSTILE), return_exceptions=True
        )
        assert not [each for each in answers if isinstance(each, BaseException)]
        pressure = 0
        for payload in payloads:
            for verb in chance.sample(VERBS, 2):
                await link.send(subject(verb), payload, "_INBOX.nobody.1")
            pressure += 2 * len(payload)
            if pressure > 16 * 2**20:  # a server cuts off a client that lags by 64 MiB: let it follow
                pressure = 0
                assert (await control(house.bus, bake.identity, "Explode")).code == "malformed_verb"
        # A Cancel whose subject says Pause, one that nobody waits for, one that wants its answer on a stream.
        await link.send(subject("Pause"), cancel.payload, "_INBOX.nobody.1")
        await link.send(subject("Cancel"), cancel.payload)
        await link.send(
            subject("Cancel"), cancel.payload, f"{mesh}.alpha.boss.boss-x-1.{subjects.BAKE}.Success"
        )
        for kind in ("Status", "Success", "Data"):
            for payload in HOSTILE[:12]:
                await link.send(
                    f"{mesh}.alpha.builder-alpha.builder-alpha-x-1.{subjects.BAKE}.{kind}", payload
                )
        await still_bakes(house)
        assert bake.terminal is None, "nothing of it has ended the bake"
        gate.open()
        assert isinstance((await house.story(bake))[-1], BakeSuccess)
        assert await house.node.stop() == 0
        counts = counted(house)
        assert counts["undecodable"] > 600
        assert counts["no_reply"] >= 1
        assert counts["foreign_reply"] >= 1
        assert counts["other_type"] >= 1
        await house.node.start()
        await still_bakes(house)
