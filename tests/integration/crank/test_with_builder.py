"""Cranks under a real Builder: the example's PsySpec, a Supervisor's crank that bakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bakemesh.protocol.admit import Delivery
from bakemesh.protocol.builder.messages import BakeSuccess
from bakemesh.protocol.psyspec import PsySpec, bringup, groups, load_psyspec, read_psyspec
from bakemesh.protocol.subjects import pattern
from support.mesh import mesh
from support.nats import MESH
from support.waiting import eventually

EXAMPLE = Path(__file__).parents[3] / "examples/module"


def entries(posts: list[Delivery]) -> list[dict[str, Any]]:
    return [each.received.message.entries() for each in posts]


async def run(folder: Path, spec: PsySpec, type_: str, number: int) -> list[dict[str, Any]]:
    """Brings the PsySpec up on a Builder, and gives the first posts of `type_`."""
    async with (
        mesh(folder, "--on-stop", "stop", guard=False) as net,
        net.supervisor("boss") as boss,
        net.connect("witness") as bus,
    ):
        posts: list[Delivery] = []
        await bus.subscribe(pattern(MESH, type_), posts.append)
        (group,) = groups(spec, "alpha", "alpha")
        bake = await boss.bake(bringup(group), node_id="alpha")
        outcome = await bake.outcome()
        assert isinstance(outcome, BakeSuccess), outcome
        await eventually(lambda: len(posts) >= number, within=40, what=f"posts of {type_}")
        assert await net.node.stop() == 0
        return entries(posts)[:number]


async def test_the_example_runs_as_it_is(tmp_path: Path) -> None:
    spec = read_psyspec(
        (EXAMPLE / "greenhouse.xml").read_text("utf-8"),
        file="greenhouse.xml",
        read=lambda name: (EXAMPLE / name).read_text("utf-8"),
    )
    (fan,) = [entry.spec for entry in spec.modules if entry.spec.name == "fan"]
    assert fan.triggers[0].durable == ("Greenhouse.Temperature.north",)
    on, off = await run(tmp_path, spec, "Greenhouse.Fan", 2)
    assert (on["Running"], off["Running"]) == (True, False)
    assert on["Celsius"] > 25.0 >= off["Celsius"]


ASYNC = """
async def crank(api):
    bake = await api.supervisor.bake(
        '&lt;recipe name="r">&lt;cli command="echo from the crank"/>&lt;/recipe>', node_id=api.node_id)
    text = b"".join([chunk.data async for chunk in bake.data()])
    outcome, owner = await bake.outcome(), bake.identity.supervisor
    await api.post("Baked", {"text": text, "outcome": type(outcome).__name__, "owner": owner})
    await api.wait_for_message()
"""
PLAIN = """
def crank(api):
    bake = api.supervisor.bake(
        '&lt;recipe name="r">&lt;cli command="echo from the crank"/>&lt;/recipe>', node="alpha")
    text = b"".join(chunk.data for chunk in bake.data())
    outcome, owner = bake.outcome(), bake.identity.supervisor
    api.post("Baked", {"text": text, "outcome": type(outcome).__name__, "owner": owner})
    api.wait_for_message()
"""


@pytest.mark.parametrize("source", [ASYNC, PLAIN], ids=["async", "plain"])
async def test_a_supervisors_crank_bakes_with_the_sdk(tmp_path: Path, source: str) -> None:
    xml = f"""<psySpec name="p"><supervisor name="nightly">
      <crank script="nightly.py">{source}</crank><post name="Baked" type="Nightly.Baked"/>
    </supervisor></psySpec>"""
    (baked,) = await run(tmp_path, load_psyspec(xml), "Nightly.Baked", 1)
    assert baked == {"text": b"from the crank\n", "outcome": "BakeSuccess", "owner": "nightly"}
