"""docs/write-a-module.md: its examples are the example's files, its snippets run as written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bakemesh.bus.server_config import MAX_PAYLOAD
from bakemesh.crank import backlog, durable
from bakemesh.protocol.builder.spec.component import Post
from bakemesh.protocol.psyspec import read_psyspec
from support.cranks import crankhost, desk, spec
from support.nats import server

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs/write-a-module.md").read_text("utf-8")
EXAMPLE = {
    path.read_text("utf-8"): path.name for path in (ROOT / "examples/module").iterdir() if path.is_file()
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


SNIPPETS = [block for block in blocks("python") if block not in EXAMPLE]


def test_the_example_stands_in_it_as_it_is():
    shown = {EXAMPLE[block] for block in [*blocks("python"), *blocks("xml")] if block in EXAMPLE}
    assert shown == set(EXAMPLE.values())


@pytest.mark.parametrize("block", blocks("xml"))
def test_every_psyspec_in_it_loads_without_a_warning(block: str):
    found = read_psyspec(block, file="guide.xml", read=lambda name: "def crank(api): ...\n")
    assert found.modules
    assert not found.warnings


def test_its_numbers_are_those_of_the_code():
    assert f"{backlog.MOST:,} messages ({backlog.MOST_BYTES >> 20} MiB) wait" in GUIDE
    assert f"after {durable.GIVEN} times it is put aside" in GUIDE
    assert f"{MAX_PAYLOAD >> 20} MiB on a server" in GUIDE


@pytest.mark.parametrize("block", SNIPPETS)
async def test_every_crank_in_it_is_woken_and_stops(tmp_path: Path, block: str):
    of = spec(
        "guide",
        block,
        triggers={"Pressed": "Robot.Button.*.*"},
        posts=(Post(name="Count", type="Robot.Count"),),
        parameters={"limit": 10},
        supervisor="api.supervisor" in block,
    )
    async with server(tmp_path) as nats, desk(nats.url) as builder:
        await builder.listen("Robot.Count")
        async with crankhost(tmp_path, nats.url, of) as host:
            await builder.ready(host)
            if not of.supervisor:  # that one needs a Builder: test_with_builder
                await builder.post("Robot.Button.left.down", {"Count": 3}, party="hand")
                assert (await builder.said(1, "Robot.Count"))[0]["Count"] == 1
            assert await host.stop() == 0
        assert "Traceback" not in host.out
