"""`nodes`, `components` and `components restart|stop|start|remove` on a mesh with authentication."""

from __future__ import annotations

from pathlib import Path

from bakemesh.protocol.builder.messages import BakeSuccess
from support.following import Commands
from support.mesh import mesh
from support.modules import instances, module, recipe


async def test_the_system_at_a_glance_and_one_component_in_the_hand(tmp_path: Path) -> None:
    flags = ("--operator", "ops", "--on-stop", "stop")
    async with mesh(tmp_path, *flags, nodes=("alpha", "beta")) as net, net.supervisor("boss") as boss:
        cli = Commands(net, tmp_path)
        for node, names in (("alpha", ("one", "two")), ("beta", ("one",))):
            bake = await boss.bake(recipe(*(module(name) for name in names)), node=node)
            assert isinstance(await bake.outcome(), BakeSuccess)

        alpha, beta = await cli.json("nodes", party="boss")
        assert (alpha["Node"], alpha["state"], alpha["alive"], len(alpha["components"])) == (
            "alpha", "ready", True, 2,
        )  # fmt: skip
        assert alpha["age_s"] < 15
        table = (await cli.run("nodes", party="boss")).stdout.decode().splitlines()
        assert table[0].split() == [
            "NODE", "ID", "STATE", "BAKES", "QUEUED", "COMPONENTS", "LOAD", "VERSION",
        ]  # fmt: skip
        assert table[1].split()[:6] == ["alpha", "alpha", "ready", "0", "0", "2/2"]
        assert beta["Node"] == "beta"

        everyone = await cli.json("components", party="boss")
        assert [(each["node"], each["name"], each["state"]) for each in everyone] == [
            ("alpha", "one", "ready"), ("alpha", "two", "ready"), ("beta", "one", "ready"),
        ]  # fmt: skip
        (only,) = await cli.json("components", "beta", party="boss")
        assert (only["owner"], only["kind"], only["restarts"]) == ("boss", "command", 0)
        assert instances("one", net.nodes["beta"].state) == [only["pid"]]
        lines = (await cli.run("components", "alpha", party="boss")).stdout.decode().splitlines()
        assert [line.split()[:3] for line in lines[1:]] == [
            ["one", "alpha", "ready"],
            ["two", "alpha", "ready"],
        ]

        ambiguous = await cli.run("components", "restart", "one", party="ops")
        assert ambiguous.returncode == 2
        assert b"alpha, beta" in ambiguous.stderr
        assert b"--node" in ambiguous.stderr
        unknown = await cli.run("components", "stop", "nothing", party="ops")
        assert unknown.returncode == 2
        assert b"one on alpha" in unknown.stderr
        there = await cli.run("components", "stop", "two", "--node", "beta", party="ops")
        assert there.returncode == 2
        assert b"unknown_component" in there.stderr

        refused = await cli.run("components", "restart", "two", party="other")
        assert refused.returncode == 1
        assert b"unauthorised" in refused.stderr
        restarted = await cli.json("components", "restart", "one", "--node", "beta", party="ops")
        assert (restarted["accepted"], restarted["verb"]) == (True, "Restart")
        stopped = await cli.run("components", "stop", "two", party="boss")
        assert stopped.returncode == 0, stopped.stderr
        assert stopped.stdout.startswith(b"Stop two: accepted")
        removed = await cli.run("components", "remove", "two", party="boss")
        assert removed.returncode == 0
        assert instances("two", net.nodes["alpha"].state) == []


async def test_words_that_make_no_sense(tmp_path: Path) -> None:
    async with mesh(tmp_path, guard=False) as net:
        cli = Commands(net, tmp_path)
        for words in (("restart",), ("stop", "a", "b"), ("alpha", "beta"), ("alpha", "--node", "beta")):
            done = await cli.run("components", *words, party="boss")
            assert done.returncode == 2, words
            assert b"bakemesh components" in done.stderr
        assert (await cli.run("components", party="boss")).stdout == b"no node has a component\n"
