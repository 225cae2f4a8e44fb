"""Controls that a real Builder refuses, by code and in order; a Builder that is gone, and a storm."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from bakemesh.protocol.builder.codes import Verb
from bakemesh.protocol.builder.messages import (
    BakeFailed,
    Result,
)
from bakemesh.supervisor import NodeUnreachable
from support.controls import AFTER, at_rest, control, ok
from support.house import (
    House,
    acks,
    house_fixture,
    output_of,
    python,
    running_house,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
house = house_fixture("--operator", "ops", "--kill-grace-ms", "300")


# -- refusals


async def test_every_refusal_in_its_order(house: House) -> None:
    """Each message has all the later faults too: the first code that applies is the answer. Nothing of it
    shows on the owner's Status, and none uses a ctrlseq up.
    """
    gate = house.gate()
    bake = await house.bake(f'<recipe name="steer">{house.held_at(gate, "slow")}</recipe>')
    ended = await house.bake('<recipe name="over"><cli command="true"/></recipe>')
    await ended.outcome()
    await house.reached(bake, 0)
    identity, bus = bake.identity, house.bus
    nobody = replace(identity, recipe_id="boss-steer-999999")
    await ok(control(bus, identity, "Start", 100))

    async def code(*args: object, **more: object) -> tuple[str, str, int | None]:
        result = await control(bus, *args, **more)  # type: ignore[arg-type]
        assert not result.accepted
        assert result.summary
        return result.code, result.verb, result.ctrlseq

    for missing in ("Supervisor", "Recipe", "RecipeID", "Node", "NodeID", "ctrlseq", "issuedby"):
        assert await code(nobody, "Explode", 1, without=(missing,), party="thief") == (
            "malformed_message",
            "Explode",
            None,
        ), missing
    assert (await code(nobody, "Explode", "one"))[0] == "malformed_message"
    assert (await code(nobody, "Explode", -1))[0] == "malformed_message"
    assert (await code(nobody, "Explode", 2**63))[0] == "malformed_message"
    assert (await code(identity, "Explode", 1, key="boss-other-1"))[0] == "malformed_message"
    assert await code(nobody, "Explode", 1, party="thief") == ("malformed_verb", "Explode", 1)
    assert await code(identity, "pause", 101) == ("malformed_verb", "pause", 101), "verbs have their case"
    assert await code(nobody, "Pause", 1, party="thief", issuedby="boss") == ("unknown_recipe", "Pause", 1)
    assert await code(identity, "Pause", 101, party="thief", issuedby="boss") == (
        "unauthorised",
        "Pause",
        101,
    )
    assert await code(identity, "Pause", 101, party="boss", issuedby="ops") == ("unauthorised", "Pause", 101)
    assert await code(identity, "Pause", 101, party="thief") == ("unauthorised", "Pause", 101)
    assert await code(identity, "RetryStep", 100) == ("stale_ctrlseq", "RetryStep", 100), "the same again"
    assert await code(identity, "RetryStep", 99) == ("stale_ctrlseq", "RetryStep", 99)
    assert await code(identity, "RetryStep", 5000) == ("not_retryable", "RetryStep", 5000)
    await ok(control(bus, identity, "Start", 101))  # 5000 was not used up

    ended_as = ended.identity
    assert await code(ended_as, "RetryStep", 1, party="thief") == ("unauthorised", "RetryStep", 1)
    assert await code(ended_as, "RetryStep", 1) == ("terminal", "RetryStep", 1)

    held = await house.bake('<recipe name="held"><cli command="false" on-failure="hold"/></recipe>')
    await at_rest(held)
    await ok(control(bus, held.identity, "Pause", 7))
    assert await code(held.identity, "Start", 7) == ("stale_ctrlseq", "Start", 7)
    assert await code(held.identity, "Start", 8) == ("held", "Start", 8)
    await ok(control(bus, held.identity, "Cancel", 8))
    await held.outcome()
    assert await code(held.identity, "Start", 8) == ("stale_ctrlseq", "Start", 8), (
        "stale comes before terminal"
    )
    assert await code(held.identity, "Start", 9) == ("terminal", "Start", 9)

    gate.open()
    assert acks(await house.story(bake)) == [("Start", "restarted"), ("Start", "restarted")]
    assert acks(await house.story(held)) == [("Pause", "paused"), ("Cancel", "cancelled")]


async def test_an_operator_steers_with_a_sequence_of_its_own(house: House) -> None:
    gate = house.gate()
    bake = await house.bake(f'<recipe name="run">{house.held_at(gate, "slow")}{AFTER}</recipe>')
    await house.reached(bake, 0)
    await ok(bake.start())  # milliseconds since the epoch
    await ok(control(house.bus, bake.identity, "Pause", 1, party="ops"))
    assert (await control(house.bus, bake.identity, "Pause", 1, party="ops")).code == "stale_ctrlseq"
    gate.open()
    await at_rest(bake)
    await ok(control(house.bus, bake.identity, "Terminate", 2, party="ops"))
    story = await house.story(bake)
    assert [(s.verb, s.ctrlseq, s.issuedby) for s in story if s.kind == "ack"][1:] == [
        ("Pause", 1, "ops"),
        ("Terminate", 2, "ops"),
    ]


async def test_entry_keys_have_no_case(house: House) -> None:
    gate = house.gate()
    bake = await house.bake(f'<recipe name="case">{house.held_at(gate, "slow")}</recipe>')
    await house.reached(bake, 0)
    await ok(
        control(
            house.bus,
            bake.identity,
            "Start",
            without=("RecipeID", "ctrlseq"),
            RECIPEID=bake.recipe_id,
            CtrlSeq=3,
        )
    )
    twice = await control(house.bus, bake.identity, "Start", 4, CTRLSEQ=5)
    assert twice.code == "malformed_message"
    gate.open()
    await house.story(bake)


async def test_a_refusal_never_sends_back_more_than_names(house: House) -> None:
    """Long entries are refused in a few hundred bytes: the Builder is nobody's amplifier."""
    bake = await house.bake(f'<recipe name="short"><cli command="echo {house.canary()}"/></recipe>')
    await bake.outcome()
    for size, code in ((20_000, "unknown_recipe"), (2**20, "malformed_message")):  # a control has 64 KiB
        long = {"Supervisor": "x" * size, "issuedby": "y" * size}
        result = await control(house.bus, bake.identity, "Pause", 1, **long)
        assert (result.code, result.supervisor) == (code, None)
        assert len(house.bus.seal(result).payload) < 2048


# -- a Builder that is gone, and a storm


async def test_a_control_for_a_dead_builder_fails_at_once(tmp_path: Path) -> None:
    async with running_house(tmp_path) as own:
        bake = await own.bake('<recipe name="long" on-failure="hold"><cli command="false"/></recipe>')
        await at_rest(bake)
        await own.node.kill9()
        with pytest.raises(NodeUnreachable):
            await bake.cancel()
        await own.node.start()
        await ok(bake.cancel())
        await own.story(bake)


async def test_a_storm_of_controls(tmp_path: Path) -> None:
    """10,000 controls at once: every one is answered, the Builder lives, a bake beside it loses nothing, and
    every accepted one is acknowledged exactly once.
    """
    storm = 10_000
    async with running_house(
        tmp_path, "--operator", "ops", "--operator", "calm", "--control-rate", "20"
    ) as own:
        gate, other = own.gate(), own.gate()
        victim = await own.bake(f'<recipe name="victim">{own.held_at(gate, "slow")}{AFTER}</recipe>')
        secret = own.canary()
        chatty = python(
            f"import os, time\ni = 0\nwhile not os.path.exists({str(other.path)!r}):\n"
            f"    i += 1\n    print(i, {secret!r}, flush=True)\n    time.sleep(0.001)\n"
        )
        beside = await own.bake(f'<recipe name="beside" data-interval-ms="50"><cli>{chatty}</cli></recipe>')
        await own.reached(victim, 0)
        await own.reached(beside, 0)

        async def one(number: int) -> Result:
            verb = ("Pause", "Start", "Pause", "SkipStop")[number % 4]
            return await control(own.bus, victim.identity, verb, number + 1, party="ops", timeout=100)

        results = await asyncio.gather(*(one(number) for number in range(storm)))
        counts = {code: sum(r.code == code for r in results) for code in {r.code for r in results}}
        assert set(counts) == {"ok", "malformed_verb", "rate_limited"}, counts
        assert counts["malformed_verb"] == storm // 4
        assert counts["ok"] >= 100
        assert all(r.retryms and r.retryms > 0 for r in results if r.code == "rate_limited")
        # Another issuer is not held up, and the bake beside runs on.
        await ok(control(own.bus, victim.identity, "Start", 1, party="calm"))
        gate.open()
        other.open()
        story = await own.story(victim)
        told = [s.ctrlseq for s in story if s.kind == "ack" and s.issuedby == "ops"]
        assert sorted(told) == sorted(r.ctrlseq for r in results if r.accepted)
        await own.story(beside)
        lines = (await output_of(beside))[0, "stdout"].decode().splitlines()
        assert lines == [f"{i} {secret}" for i in range(1, len(lines) + 1)]


async def test_pauses_that_wait_are_bounded(house: House) -> None:
    """Of many pending Pauses the oldest is superseded by the newest: a bake's state stays small."""
    gate = house.gate()
    bake = await house.bake(f'<recipe name="many">{house.held_at(gate, "slow")}{AFTER}</recipe>')
    await house.reached(bake, 0)
    for number in range(1, 101):
        await ok(control(house.bus, bake.identity, "Pause", number))
    gate.open()
    await at_rest(bake)
    await ok(bake.cancel())
    told = [(s.ctrlseq, s.outcome) for s in await house.story(bake) if s.verb == "Pause"]
    assert sorted(seq for seq, _ in told if seq) == list(range(1, 101)), "one each"
    assert [seq for seq, outcome in told if outcome == "paused"] == list(range(69, 101))


async def test_a_failed_bake_takes_no_control(house: House) -> None:
    bake = await house.bake('<recipe name="fails"><cli command="false"/></recipe>')
    assert isinstance(await bake.outcome(), BakeFailed)
    for verb in Verb:
        refused = await bake.control(verb)
        assert (refused.accepted, refused.code, refused.verb) == (False, "terminal", verb)
