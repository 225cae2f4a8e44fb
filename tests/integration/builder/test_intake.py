"""Recipes as they come in: taken once, refused by type, queued, limited; each refusal ends the waiting."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from bakemesh.bus.errors import MessageTooLarge as BusTooLarge
from bakemesh.protocol import subjects
from bakemesh.protocol.builder.messages import BakeFailed, BakeStatus, BakeSuccess
from bakemesh.protocol.identity import Identity
from bakemesh.supervisor import MessageTooLarge, RecipeRejected
from support.house import House, acks, house_fixture, output_of, running_house, said, tale
from support.letters import again, inbox_subject, letter, recipe_letter, send
from support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
house = house_fixture()

GOOD = '<recipe name="good"><cli command="true"/></recipe>'
_numbers = count(1)


def stranger(recipe: str = "good", *, supervisor: str = "writer") -> Identity:
    """The identity of a recipe that nobody has sent yet."""
    return Identity(supervisor, recipe, f"{supervisor}-{recipe}-{next(_numbers)}", "alpha", "alpha")


def heard_of(house: House, party: str, key: str) -> list[BakeStatus]:
    """Every Status and outcome on the subjects of (party, key) so far."""
    return [s for s in house.tap.statuses if (s.supervisor, s.recipe_id) == (party, key)]


async def the_failed(house: House, party: str, key: str) -> BakeFailed:
    """The one message that a refused recipe leaves on Status."""
    await eventually(lambda: heard_of(house, party, key), what=f"the Bake.Failed of {key}")
    (only,) = heard_of(house, party, key)
    assert isinstance(only, BakeFailed)
    assert (only.kind, only.serial, only.final, only.outcome, only.lastseq, only.pct) == (
        "outcome",
        1,
        True,
        "failed",
        0,
        -1,
    )
    return only


async def flushed(house: House) -> None:
    """Returns when everything that was sent before has been worked on, and its Status heard."""
    identity = stranger()
    await send(house.bus, inbox_subject(house.bus, identity), recipe_letter(identity, GOOD))
    await eventually(
        lambda: any(s.final for s in heard_of(house, identity.supervisor, identity.recipe_id)),
        what="the last recipe's end",
    )


# -- once


async def test_the_same_message_again_gets_the_same_result_and_bakes_nothing(house: House) -> None:
    identity = stranger()
    subject, sealed = inbox_subject(house.bus, identity), recipe_letter(identity, GOOD)
    first = await send(house.bus, subject, sealed)
    assert (first.accepted, first.code, first.verb) == (True, "ok", "Recipe")
    async with house.net.supervisor("ops") as ops:
        bake = await ops.attach(identity.recipe_id, supervisor="writer", node_id="alpha")
        await bake.outcome()
    second = await send(house.bus, subject, again(sealed))
    assert second.entries() == first.entries()
    other = await send(house.bus, subject, recipe_letter(identity, GOOD))
    assert (other.accepted, other.code) == (False, "duplicate_recipe_id")
    assert other.recipe_id == identity.recipe_id
    await flushed(house)
    told = heard_of(house, "writer", identity.recipe_id)
    assert tale(told) == ["start", "0 begins", "0 ok", "Success"], "a duplicate says nothing on a known bake"


async def test_a_refused_recipe_is_idempotent_too_and_uses_its_id_up(house: House) -> None:
    identity = stranger()
    subject, sealed = inbox_subject(house.bus, identity), recipe_letter(identity, "<recipe name='good'/>")
    first = await send(house.bus, subject, sealed)
    assert first.code == "invalid_recipe"
    assert (await send(house.bus, subject, again(sealed))).entries() == first.entries()
    assert (await send(house.bus, subject, recipe_letter(identity, GOOD))).code == "duplicate_recipe_id"
    await flushed(house)
    assert (await the_failed(house, "writer", identity.recipe_id)).code == "invalid_recipe"


async def test_a_bad_message_on_a_known_bakes_subject_changes_nothing(house: House) -> None:
    gate = house.gate()
    bake = await house.bake(f'<recipe name="known">{house.held_at(gate, "slow")}</recipe>')
    await house.reached(bake, 0)
    subject = inbox_subject(house.bus, bake.identity)
    for bad in (
        recipe_letter(bake.identity, 7),
        recipe_letter(bake.identity, "<recipe", without=("Node",)),
        recipe_letter(bake.identity, '<recipe name="known"><cli command="true"/></recipe>'),
    ):
        assert not (await send(house.bus, subject, bad)).accepted
    gate.open()
    assert tale(await house.story(bake)) == ["start", "0 begins", "0 ok", "Success"]


# -- identity


@pytest.mark.parametrize("missing", ["Supervisor", "Recipe", "RecipeID", "Node", "NodeID"])
async def test_an_identity_entry_that_is_missing(house: House, missing: str) -> None:
    identity = stranger()
    result = await send(
        house.bus, inbox_subject(house.bus, identity), recipe_letter(identity, GOOD, without=(missing,))
    )
    assert (result.accepted, result.code) == (False, "wrong_identity")
    assert missing in result.summary
    failed = await the_failed(house, "writer", identity.recipe_id)
    assert failed.code == "wrong_identity"
    assert failed.recipe == ("-" if missing == "Recipe" else "good")
    assert (failed.node, failed.node_id) == ("alpha", "alpha")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"RecipeID": "writer-good-9999"}, "subject's key"),
        ({"Recipe": "other"}, "must be writer-other-N"),
        ({"Supervisor": "x" * 33}, "at most 32"),
        ({"Node": "no de"}, "' '"),
        ({"Node": ""}, "empty"),
        ({"NodeID": "n" * 25}, "at most 24"),
        ({"NodeID": "any"}, "is no node's"),
        ({"NodeID": "hub"}, "is no node's"),
    ],
)
async def test_an_identity_that_is_wrong(house: House, changed: dict[str, str], says: str) -> None:
    identity = stranger()
    result = await send(
        house.bus, inbox_subject(house.bus, identity), recipe_letter(identity, GOOD, **changed)
    )
    assert (result.code, result.recipe_id) == ("wrong_identity", identity.recipe_id)
    assert says in result.summary
    assert (await the_failed(house, "writer", identity.recipe_id)).code == "wrong_identity"


@pytest.mark.parametrize(
    "key", ["writer-good-0", "writer-good-01", "writer-good-x", "writer-good-", "other-good-1"]
)
async def test_a_recipe_id_that_follows_no_pattern(house: House, key: str) -> None:
    identity = replace(stranger(), recipe_id=key)
    result = await send(house.bus, inbox_subject(house.bus, identity), recipe_letter(identity, GOOD))
    assert result.code == "wrong_identity"
    assert "writer-good-N" in result.summary


@pytest.mark.parametrize(
    ("name", "xml", "expected"),
    [("other", GOOD, "good"), ("good", '<recipe><cli command="true"/></recipe>', "writer")],
)
async def test_recipe_must_be_the_roots_name(house: House, name: str, xml: str, expected: str) -> None:
    identity = stranger(name)
    result = await send(house.bus, inbox_subject(house.bus, identity), recipe_letter(identity, xml))
    assert result.code == "wrong_identity"
    assert result.summary == f"Recipe is {name}, but the recipe's name is {expected}"
    taken = stranger(expected)
    assert (await send(house.bus, inbox_subject(house.bus, taken), recipe_letter(taken, xml))).accepted


async def test_somebody_elses_name_is_unauthorised_and_uses_nothing_up(house: House) -> None:
    identity = stranger()
    subject = inbox_subject(house.bus, identity, party="thief")
    result = await send(house.bus, subject, recipe_letter(identity, GOOD))
    assert (result.code, result.supervisor) == ("unauthorised", "thief")
    failed = await the_failed(house, "thief", identity.recipe_id)
    assert (failed.code, failed.supervisor) == ("unauthorised", "thief")
    own = await send(house.bus, inbox_subject(house.bus, identity), recipe_letter(identity, GOOD))
    assert own.accepted, "the owner's own message is not hurt by it"


# -- form


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"without": ("RecipeSpec",)}, "RecipeSpec"),
        ({"xml": None}, "RecipeSpec"),
        ({"xml": b"<recipe/>"}, "RecipeSpec"),
        ({"xml": 7}, "RecipeSpec"),
        ({"xml": ["<recipe/>"]}, "RecipeSpec"),
        ({"params": "no"}, "params"),
        ({"params": {1: 2}}, "params"),
        ({"expires": -1}, "expires"),
        ({"expires": 2**63}, "expires"),
        ({"expires": 1.5}, "expires"),
        ({"recipespec": "<recipe/>"}, "differ only in case"),
        ({"Recipe": 7}, "Recipe"),
    ],
)
async def test_an_entry_of_the_wrong_kind(house: House, how: dict[str, Any], says: str) -> None:
    identity = stranger()
    sealed = recipe_letter(identity, **{"xml": GOOD, **how})
    result = await send(house.bus, inbox_subject(house.bus, identity), sealed)
    assert (result.accepted, result.code) == (False, "malformed_message")
    assert says in result.summary
    failed = await the_failed(house, "writer", identity.recipe_id)
    assert (failed.code, failed.summary) == ("malformed_message", result.summary)


async def test_entry_keys_have_no_case_and_unknown_ones_do_no_harm(house: House) -> None:
    identity = stranger()
    entries = {
        "SUPERVISOR": identity.supervisor,
        "recipe": identity.recipe,
        "recipeid": identity.recipe_id,
        "node": identity.node,
        "nodeId": identity.node_id,
        "RECIPESPEC": GOOD,
        "Further": {"deep": [1, {2: b"x"}]},
    }
    result = await send(house.bus, inbox_subject(house.bus, identity), letter(subjects.RECIPE, entries))
    assert result.accepted, result


BOMB = (
    '<!DOCTYPE recipe [<!ENTITY a "aaaaaaaaaa">'
    + "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefghi", "bcdefghij", strict=True))
    + ']><recipe name="good"><cli command="echo &j;"/></recipe>'
)


@pytest.mark.parametrize(
    ("xml", "line", "element", "says"),
    [
        ('<recipe name="good">\n<cli command="true"></recipe>', 2, None, "mismatched tag"),
        ("", 1, None, ""),
        ("\0", 1, None, ""),
        ("not xml at all", 1, None, ""),
        (BOMB, 1, None, ""),
        ('<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]><recipe>&x;</recipe>', 1, None, ""),
        ('<recipe name="good">\n\n<clli command="true"/></recipe>', 3, "clli", "did you mean"),
        ('<recipe name="good"><cli command="true" retyable="yes"/></recipe>', 1, "cli", "retryable"),
        ('<recipe name="good"/>', 1, "recipe", "no step"),
        ('<psySpec name="good"/>', 1, "psyspec", "recipe"),
        ('<recipe name="good"><cli command="echo ${entry:nope}"/></recipe>', 1, "cli", "nope"),
        ('<recipe name="good"><cli command="echo ${param:nope}"/></recipe>', 1, "cli", "nope"),
    ],
)
async def test_a_recipe_that_is_none(
    house: House, xml: str, line: int, element: str | None, says: str
) -> None:
    identity = stranger("writer" if xml.startswith("<!DOCTYPE r ") else "good")
    result = await send(house.bus, inbox_subject(house.bus, identity), recipe_letter(identity, xml))
    assert (result.accepted, result.code) == (False, "invalid_recipe"), result
    assert result.problems
    first = result.problems[0]
    assert (first["line"], first.get("element")) == (line, element), first
    assert says in first["message"]
    failed = await the_failed(house, "writer", identity.recipe_id)
    assert failed.code == "invalid_recipe"
    assert failed.summary == result.summary
    assert f"line {line}: " in failed.summary


async def test_all_problems_come_at_once(house: House) -> None:
    lines = "\n".join(f'<cli name="s{i}" comand="true"/>' for i in range(150))
    with pytest.raises(RecipeRejected) as caught:
        await house.bake(f'<recipe name="wrong">\n{lines}\n</recipe>')
    assert len(caught.value.problems) == 100
    lines_said = [problem["line"] for problem in caught.value.problems]
    assert lines_said[0] == 2
    assert lines_said == sorted(lines_said)


# -- size


async def test_a_recipe_that_is_too_large(house: House) -> None:
    """The SDK refuses what no Builder takes, the bus what no server takes, the Builder the rest."""
    ten = f'<recipe name="good"><cli command="true"/><!--{"x" * (10 * 2**20)}--></recipe>'
    with pytest.raises(MessageTooLarge) as caught:
        await house.bake(ten)
    assert (caught.value.limit, caught.value.size) == (2**20, len(ten))
    identity = stranger()
    subject = inbox_subject(house.bus, identity)
    with pytest.raises(BusTooLarge):
        await house.bus.publish_stored(subject, recipe_letter(identity, ten))
    two = f'<recipe name="good"><cli command="true"/><!--{"x" * (2 * 2**20)}--></recipe>'
    result = await send(house.bus, subject, recipe_letter(identity, two))
    assert (result.accepted, result.code) == (False, "too_large")
    assert (await the_failed(house, "writer", identity.recipe_id)).code == "too_large"


async def test_a_recipe_of_just_a_mebibyte_is_taken(house: House) -> None:
    frame = '<recipe name="good"><cli command="true"/><!--{}--></recipe>'
    xml = frame.format("x" * (2**20 - len(frame) + 2))
    assert len(xml) == 2**20
    identity = stranger()
    result = await send(house.bus, inbox_subject(house.bus, identity), recipe_letter(identity, xml))
    assert result.accepted, result


# -- expiry and parameters


async def test_what_came_too_late_is_not_baked(house: House) -> None:
    now = time.time_ns() // 1000
    late = stranger()
    result = await send(
        house.bus, inbox_subject(house.bus, late), recipe_letter(late, GOOD, expires=now - 1_000_000)
    )
    assert result.code == "expired"
    assert (await the_failed(house, "writer", late.recipe_id)).code == "expired"
    own = '<recipe name="good" expires-ms="1000"><cli command="true"/></recipe>'
    old = stranger()
    sealed = recipe_letter(old, own, created=now - 5_000_000)
    assert (await send(house.bus, inbox_subject(house.bus, old), sealed)).code == "expired"
    fresh = stranger()
    sealed = recipe_letter(fresh, own, expires=now + 3_600_000_000)
    assert (await send(house.bus, inbox_subject(house.bus, fresh), sealed)).accepted
    future = stranger()
    sealed = recipe_letter(future, own, created=2**63 - 1, expires=2**63 - 1)
    assert (await send(house.bus, inbox_subject(house.bus, future), sealed)).accepted
    ahead = stranger()
    sealed = recipe_letter(ahead, own, created=2**63 - 1)
    assert (await send(house.bus, inbox_subject(house.bus, ahead), sealed)).accepted, "a clock far ahead"


async def test_params(house: House) -> None:
    secret = house.canary()
    bake = await house.bake(
        '<recipe name="given"><cli><arg>printf</arg><arg>%s|</arg>'
        "<arg>${param:text}</arg><arg>${param:raw}</arg>"
        "<arg>${param:number}</arg><arg>${param:flag}</arg></cli></recipe>",
        params={
            "text": f"{secret} $(id) ${{node}}",
            "raw": secret.encode(),
            "number": 7,
            "flag": True,
            "deep": {"unused": [1, {2: 3}]},
        },
    )
    await house.story(bake)
    expected = f"{secret} $(id) ${{node}}|{secret}|7|yes|"
    assert (await output_of(bake))[0, "stdout"] == expected.encode(), "put in as it is, read once"
    shown = await house.bake(
        '<recipe name="given"><cli><arg>${param:text}</arg></cli></recipe>', params={"text": secret}
    )
    assert isinstance(await shown.outcome(), BakeFailed), "a program by a parameter's name: shown as written"


async def test_params_as_deep_as_they_can_be_read_are_kept(house: House) -> None:
    identity = stranger()
    # 0x91 is an array of one: nested by hand, up to what an envelope of msgpack can be read with
    plain = recipe_letter(identity, GOOD, params={"deep": "HERE"})
    payload = plain.payload.replace(b"\xa4HERE", b"\x91" * 1020 + b"\x01")
    sealed = plain._replace(payload=payload)
    assert (await send(house.bus, inbox_subject(house.bus, identity), sealed)).accepted
    deeper = stranger()
    plain = recipe_letter(deeper, GOOD, params={"deep": "HERE"})
    payload = plain.payload.replace(b"\xa4HERE", b"\x91" * 5000 + b"\x01")
    result = await send(house.bus, inbox_subject(house.bus, deeper), plain._replace(payload=payload))
    assert (result.accepted, result.code) == (False, "malformed_message"), "it does not decode at all"
    await flushed(house)
    assert not heard_of(house, "writer", deeper.recipe_id)


# -- the queue, and rates


@pytest.fixture(scope="module")
def small() -> Callable[[Path], Any]:
    return lambda folder: running_house(folder, "--max-bakes", "1", "--recipe-rate", "1")


async def test_bakes_queue_and_say_so(small: Callable[[Path], Any], tmp_path: Path) -> None:
    """One place: the next ones wait in order, take controls, expire; a silent heartbeat hides no queueing."""
    async with small(tmp_path) as here:
        gate = here.gate()
        first = await here.bake(f'<recipe name="first">{here.held_at(gate, "slow")}</recipe>')
        await here.reached(first, 0)
        quiet = 'status-interval-ms="0"'
        resting = await here.bake(f'<recipe name="r" {quiet}><cli command="true"/></recipe>')
        cancelled = await here.bake(f'<recipe name="c" {quiet}><cli command="true"/></recipe>')
        beating = await here.bake('<recipe name="b" status-interval-ms="50"><cli command="true"/></recipe>')
        for bake in (resting, cancelled, beating):
            queued = await said(bake, lambda s: s.kind == "interim")
            assert queued.serial == 1
            assert "queued" in queued.summary
            assert queued.pct == -1
        await said(beating, lambda s: s.kind == "interim" and s.serial == 3)
        assert (await resting.retry_step()).code == "no_step"
        assert (await resting.pause()).accepted
        assert (await cancelled.cancel()).accepted
        assert tale(await here.story(cancelled)) == ["ack Cancel cancelled", "Cancelled"]
        gate.open()
        await said(resting, lambda s: s.outcome == "paused" and s.kind == "outcome")
        assert beating.terminal is None
        assert not [s for s in here.tap.statuses if s.recipe_id == beating.recipe_id and s.kind == "start"]
        assert (await resting.start()).accepted
        assert tale(await here.story(resting)) == [
            *("start", "ack Pause paused", "Paused", "ack Start restarted", "Restarted"),
            *("0 begins", "0 ok", "Success"),
        ]
        story = await here.story(beating)
        assert isinstance(story[-1], BakeSuccess)
        assert "start" in tale(story)
        assert acks(story) == []


async def test_a_queued_bake_that_expires_never_begins(small: Callable[[Path], Any], tmp_path: Path) -> None:
    async with small(tmp_path) as here:
        gate, mark = here.gate(), tmp_path / "ran"
        first = await here.bake(f'<recipe name="first">{here.held_at(gate, "slow")}</recipe>')
        await here.reached(first, 0)
        late = await here.bake(
            f'<recipe name="late"><cli><arg>touch</arg><arg>{mark}</arg></cli></recipe>', expires_s=0.3
        )
        later = await here.bake(GOOD, expires_s=3600)
        story = await here.story(late)
        assert first.terminal is None, "it ends when its time is over, not when a place is free"
        end = story[-1]
        assert isinstance(end, BakeFailed)
        assert (end.code, end.stepindex) == ("expired", None)
        assert tale(story) == ["Failed"]
        gate.open()
        assert isinstance((await here.story(later))[-1], BakeSuccess)
        assert not mark.exists()


async def test_too_many_recipes_at_once(small: Callable[[Path], Any], tmp_path: Path) -> None:
    """Beyond the burst: a Result that says when, no Bake.Failed, and the same message is taken later."""
    async with small(tmp_path) as here:
        sent = []
        for _ in range(8):
            identity = stranger(supervisor="hasty")
            subject, sealed = inbox_subject(here.bus, identity), recipe_letter(identity, GOOD)
            sent.append((identity, subject, sealed, await send(here.bus, subject, sealed)))
        limited = [each for each in sent if not each[3].accepted]
        assert len(limited) >= 2
        assert {result.code for *_, result in limited} == {"rate_limited"}
        assert all(result.retryms and 0 < result.retryms <= 1001 for *_, result in limited)
        calm = stranger(supervisor="calm")
        assert (await send(here.bus, inbox_subject(here.bus, calm), recipe_letter(calm, GOOD))).accepted
        identity, subject, sealed, _ = limited[0]

        async def taken() -> bool:
            return (await send(here.bus, subject, again(sealed))).accepted

        await eventually(taken, what="the same message taken later")
        others = [each[0].recipe_id for each in limited[1:]]
        assert not [s for s in here.tap.statuses if s.recipe_id in others], (
            "a limited one says nothing on Status"
        )
        # The SDK waits by itself and sends again.
        for _ in range(5):
            await here.bake(GOOD)


async def test_too_many_refused_recipes(small: Callable[[Path], Any], tmp_path: Path) -> None:
    """Beyond the burst nothing of them is kept or told; a good one is taken all the same."""
    async with small(tmp_path) as here:
        results = {}
        for _ in range(12):
            identity = stranger(supervisor="flood")
            sealed = recipe_letter(identity, "<nope/>")
            results[identity.recipe_id] = await send(here.bus, inbox_subject(here.bus, identity), sealed)
        limited = [key for key, result in results.items() if result.code == "rate_limited"]
        refused = [key for key, result in results.items() if result.code == "invalid_recipe"]
        assert len(limited) + len(refused) == 12
        assert len(refused) >= 4
        assert len(limited) >= 2
        assert all(0 < (results[key].retryms or 0) <= 1001 for key in limited)
        again_later = Identity("flood", "good", limited[0], "alpha", "alpha")
        good = await send(here.bus, inbox_subject(here.bus, again_later), recipe_letter(again_later, GOOD))
        assert good.accepted, "a limited refusal uses no RecipeID up"
        await eventually(
            lambda: {s.recipe_id for s in here.tap.statuses if s.final} >= {*refused, limited[0]},
            what="all ends",
        )
        assert not {s.recipe_id for s in here.tap.statuses} & set(limited[1:])
        with sqlite3.connect(f"file:{here.node.state}/journal.db?mode=ro", uri=True) as journal:
            kept = {key for (key,) in journal.execute("SELECT key FROM bakes WHERE party='flood'")}
            answers = journal.execute("SELECT count(*) FROM answers WHERE party='flood'").fetchone()[0]
        journal.close()
        assert (kept, answers) == ({*refused, limited[0]}, len(refused) + 1)
