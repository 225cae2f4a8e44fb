"""Cohort messages at a Builder: to the components that ask for them, and to nobody of a stranger's cohort."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bakemesh.bus import Bus
from bakemesh.bus.kv import Bucket
from bakemesh.protocol import storage, subjects
from bakemesh.protocol.admit import Delivery
from bakemesh.protocol.builder.messages import BakeSuccess, CohortMessage, Result
from bakemesh.protocol.builder.node import ComponentDeliver
from support.mesh import Mesh, mesh

TRIGGER = f'<trigger name="All" type="{CohortMessage.TYPE}"/>'


def module(name: str, inside: str = TRIGGER) -> str:
    """A component whose messages this test takes."""
    return f'<module name="{name}" ready-ms="0">{inside}<crank command="sleep 600"/></module>'


@asynccontextmanager
async def taking(bus: Bus, name: str, accepted: bool = True) -> AsyncIterator[list[ComponentDeliver]]:
    """What the component `name` is given."""
    found: list[ComponentDeliver] = []

    def take(delivery: Delivery) -> Result:
        assert delivery.subject.party == "builder-alpha"
        message = delivery.received.message
        assert isinstance(message, ComponentDeliver)
        found.append(message)
        return Result(
            verb="Deliver", accepted=accepted, code="ok" if accepted else "terminal", summary="full"
        )

    serving = await bus.serve(
        subjects.pattern(bus.mesh, ComponentDeliver.TYPE, node_id="alpha", key=name), take
    )
    try:
        yield found
    finally:
        await serving.stop()


async def ask(bus: Bus, sender: str, cohort: str, key: str | None = None) -> Result:
    subject = subjects.build(bus.mesh, "alpha", sender, key or cohort, CohortMessage.TYPE)
    answer = (
        await bus.request(subject, CohortMessage(cohort=cohort, verb="Flush", payload={"n": 3}), 10)
    ).message
    assert isinstance(answer, Result)
    return answer


@asynccontextmanager
async def with_cohorts(folder: Path) -> AsyncIterator[tuple[Mesh, Bus]]:
    """A guarded mesh with a cohort of alpha, and one of another node."""
    async with (
        mesh(folder, "--operator", "ops", "--on-stop", "stop", witnesses=("witness",)) as net,
        net.connect("ops") as ops,
        net.connect("witness") as witness,
    ):
        bucket = Bucket(ops, storage.cohorts_bucket(ops.mesh))
        await bucket.put("web", json.dumps(["alpha", "beta"]).encode())
        await bucket.put("other", json.dumps(["beta"]).encode())
        yield net, witness


async def test_it_goes_to_the_components_that_ask_for_it(tmp_path: Path) -> None:
    async with with_cohorts(tmp_path) as (net, witness), net.supervisor("boss") as boss:
        empty = await ask(boss.bus, "boss", "web")
        assert (empty.accepted, empty.summary) == (True, "no component here asks for cohort messages")
        steps = module("one") + module("two") + module("deaf", "") + module("three")
        bake = await boss.bake(f'<recipe name="up">{steps}</recipe>')
        outcome = await bake.outcome()
        assert isinstance(outcome, BakeSuccess), outcome.summary
        async with taking(witness, "one") as one, taking(witness, "two", accepted=False) as two:
            async with taking(witness, "deaf") as deaf:
                result = await ask(boss.bus, "boss", "web")
            assert (result.accepted, result.verb, result.node_id) == (True, "Cohort", "alpha")
            assert result.summary == "taken by 1 of 3 components; two: full, three: silent"
            assert (len(one), len(two), len(deaf)) == (1, 1, 0)
            message = one[0]
            assert (message.component, message.trigger, message.sender) == ("one", "All", "boss")
            assert message.type_ == CohortMessage.TYPE
            assert message.payload == {"cohort": "web", "verb": "Flush", "entries": {"n": 3}}


async def test_refusals(tmp_path: Path) -> None:
    async with with_cohorts(tmp_path) as (net, _), net.supervisor("boss") as boss:
        for cohort, key, code in (
            ("other", "other", "unknown_cohort"),
            ("nothing", "nothing", "unknown_cohort"),
            ("other", "web", "malformed_message"),
        ):
            result = await ask(boss.bus, "boss", cohort, key)
            assert (result.accepted, result.code) == (False, code), result.summary
