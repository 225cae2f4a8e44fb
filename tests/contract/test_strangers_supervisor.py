"""protocol/builder-v1.md is enough: a Supervisor written from it alone bakes, follows and steers."""

from __future__ import annotations

import ast
import asyncio
import sys
from pathlib import Path

from support import stranger as strangers_module
from support.builder import builder
from support.nats import server
from support.stranger import OUTCOMES, Sent, Stranger, stranger
from support.waiting import eventually

NOISY = """
<recipe name="noisy" max-data-bytes="4096" data-interval-ms="0">
  <code name="bytes" language="python"><![CDATA[
import sys
sys.stdout.buffer.write(bytes(range(256)) * 100 + b"\\xff no newline")
sys.stdout.flush()
sys.stderr.buffer.write(b"\\x00complaint")
]]></code>
  <cli name="word"><arg>echo</arg><arg>${param:word}</arg></cli>
</recipe>
"""
HELD = """
<recipe name="held">
  <requestdata name="list" into="list"/>
  <cli name="show" command="cat list"/>
  <cli name="long" command="sleep 300"/>
</recipe>
"""


def of(chunks: list[dict[str, object]], stream: str, step: int) -> bytes:
    return b"".join(
        chunk["data"] for chunk in chunks if (chunk["stream"], chunk["stepindex"]) == (stream, step)
    )


def heard(sent: Sent, **wanted: object) -> bool:
    return any(wanted.items() <= status.items() for status in sent.live)


async def found(boss: Stranger, sent: Sent) -> tuple[str, bool]:
    """Asked again: the mesh's stream has a Status a little later than the node's."""
    return await eventually(lambda: boss.find(sent.identity["RecipeID"]), what="finding the bake")


def test_the_stranger_has_nothing_of_ours():
    tree = ast.parse(Path(strangers_module.__file__).read_text())
    names = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert {name.partition(".")[0] for name in names} - sys.stdlib_module_names == {"nats", "msgpack"}


async def test_output_and_progress_arrive_whole(tmp_path):
    async with (
        server(tmp_path) as nats,
        builder(tmp_path, nats.url, node_id="alpha"),
        stranger(nats.url, "nightly") as boss,
    ):
        nodes = await boss.nodes()
        assert nodes["alpha"]["protocols"] == ["builder-v1"]
        sent = await boss.bake("noisy", NOISY, "alpha", nodes["alpha"]["Node"], params={"word": "grüße"})
        result = await sent.result()
        assert (result["verb"], result["accepted"], result["code"]) == ("Recipe", 1, "ok")

        statuses = await boss.statuses(sent)
        assert [status["serial"] for status in statuses] == list(range(1, len(statuses) + 1))
        assert statuses[0]["kind"] == "start"
        assert all(-1 <= status["pct"] <= 100 and "data" not in status for status in statuses)
        end = statuses[-1]
        assert (end["kind"], end["outcome"], end["failedsteps"], end["pct"]) == (
            "outcome",
            "success",
            [],
            100,
        )

        chunks = await boss.data(sent, end["lastseq"])
        assert of(chunks, "stdout", 0) == bytes(range(256)) * 100 + b"\xff no newline"
        assert of(chunks, "stderr", 0) == b"\x00complaint"
        assert of(chunks, "stdout", 1) == "grüße\n".encode()
        assert max(len(chunk["data"]) for chunk in chunks) == 4096
        last = [chunk for chunk in chunks if chunk.get("finalchunk")]
        assert sorted((chunk["stepindex"], chunk["stream"]) for chunk in last) == [
            (0, "stderr"),
            (0, "stdout"),
            (1, "stdout"),
        ]
        await eventually(lambda: heard(sent, final=1))
        assert sorted(status["serial"] for status in sent.live) == [status["serial"] for status in statuses]
        assert await found(boss, sent) == ("alpha", False)


async def test_pushes_pause_start_and_cancel(tmp_path):
    async with (
        server(tmp_path) as nats,
        builder(tmp_path, nats.url, node_id="alpha"),
        stranger(nats.url, "nightly") as boss,
    ):
        sent = await boss.bake("held", HELD, "alpha", "alpha")
        assert (await sent.result())["accepted"] == 1
        await eventually(lambda: heard(sent, kind="interim", request="list"))

        paused = await boss.control(sent, "Pause", 1)
        assert (paused["verb"], paused["accepted"], paused["ctrlseq"]) == ("Pause", 1, 1)
        stale = await boss.control(sent, "Pause", 1)
        assert (stale["accepted"], stale["code"]) == (0, "stale_ctrlseq")
        assert (await boss.push(sent, "lists", b"x"))["code"] == "unknown_request"
        assert (await boss.push(sent, "list", b"pears\n"))["code"] == "ok"
        await eventually(lambda: heard(sent, kind="outcome", outcome="paused"))
        assert heard(sent, kind="ack", verb="Pause", ctrlseq=1, issuedby="nightly", outcome="paused")
        assert not heard(sent, step="show")

        assert (await boss.control(sent, "Start", 2))["accepted"] == 1
        await eventually(lambda: heard(sent, kind="step", step="long"))
        assert (await boss.control(sent, "RetryStep", 3))["code"] == "not_retryable"
        assert (await boss.control(sent, "Dance", 4))["code"] == "malformed_verb"
        assert (await boss.control(sent, "Cancel", 5))["accepted"] == 1

        statuses = await boss.statuses(sent)
        outcomes = [status["outcome"] for status in statuses if status["kind"] == "outcome"]
        assert outcomes == ["paused", "restarted", "cancelled"]
        acks = [(status["verb"], status["outcome"]) for status in statuses if status["kind"] == "ack"]
        assert acks == [("Pause", "paused"), ("Start", "restarted"), ("Cancel", "cancelled")]
        assert of(await boss.data(sent, statuses[-1]["lastseq"]), "stdout", 1) == b"pears\n"
        assert (await boss.control(sent, "Cancel", 6))["code"] == "terminal"


async def test_refusals_resends_and_a_node_that_is_down(tmp_path):
    async with (
        server(tmp_path) as nats,
        builder(tmp_path, nats.url, node_id="alpha") as node,
        stranger(nats.url, "nightly") as boss,
    ):
        bad = await boss.bake("bad", '<recipe name="bad"><cli/><stir/></recipe>', "alpha", "alpha")
        refused = await bad.result()
        assert (refused["accepted"], refused["code"]) == (0, "invalid_recipe")
        assert [problem["element"] for problem in refused["problems"]] == ["cli", "stir"]
        (failed,) = await boss.statuses(bad)
        assert (failed["serial"], failed["final"], failed["lastseq"], failed["code"]) == (
            1,
            1,
            0,
            "invalid_recipe",
        )

        xml = '<recipe name="once"><cli command="echo once"/></recipe>'
        first = await boss.bake("once", xml, "alpha", "alpha")
        result = await first.result()
        await boss.statuses(first)
        await boss.store(first)  # the server's own window answers: stored already
        first.payload, first.headers["Nats-Msg-Id"] = boss.pack(
            "Psyclone.Builder.Recipe", {**first.identity, "RecipeSpec": xml}
        )
        await boss.store(first)
        assert result["code"] == "ok"
        assert (await first.result())["code"] == "duplicate_recipe_id"
        assert len(await boss.data(first, (await boss.statuses(first))[-1]["lastseq"])) == 1

        await node.stop()
        late = await boss.bake("once", xml, "alpha", "alpha")
        assert await found(boss, late) == ("alpha", True)
        assert late.results.empty()
        await node.start()
        assert (await late.result())["accepted"] == 1
        assert (await boss.statuses(late))[-1]["outcome"] == "success"


async def test_two_strangers_of_one_name_never_mint_the_same(tmp_path):
    async with (
        server(tmp_path) as nats,
        builder(tmp_path, nats.url, node_id="alpha"),
        stranger(nats.url, "nightly") as one,
        stranger(nats.url, "nightly") as two,
    ):
        minted = await asyncio.gather(*(who.mint() for who in (one, two) for _ in range(20)))
        assert sorted(minted) == list(range(1, 41))


def test_the_outcomes_are_those_of_the_text():
    text = (Path(__file__).parents[2] / "protocol" / "builder-v1.md").read_text()
    assert "### Psyclone.Builder.Bake." + ", .".join(OUTCOMES) in text
