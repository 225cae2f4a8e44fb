"""`cohort` and `bake --cohort`: one recipe on every member, one summary, one exit code."""

from __future__ import annotations

import json
from pathlib import Path

from support.following import Commands
from support.house import Gate
from support.mesh import mesh

SAY = b'<recipe name="say"><cli shell="yes" command="echo hello from ${node}; echo oops >&amp;2"/></recipe>'


async def test_cohorts_are_made_shown_and_forgotten(tmp_path: Path) -> None:
    async with mesh(tmp_path, nodes=("alpha", "beta")) as net:
        cli = Commands(net, tmp_path)
        assert (await cli.run("cohort", "list", party="boss")).stdout.startswith(b"there is no cohort")
        made = await cli.run("cohort", "set", "web", "beta", "alpha", party="ops")
        assert (made.returncode, made.stdout) == (0, b"cohort web: beta alpha\n"), made.stderr
        assert await cli.json("cohort", "list", party="boss") == [{"name": "web", "nodes": ["beta", "alpha"]}]
        assert (await cli.run("cohort", "set", "web", "alpha", party="boss")).returncode == 5, "no operator"
        assert (await cli.run("cohort", "set", "web", "nobody", party="ops")).returncode == 5
        assert (await cli.run("cohort", "set", "web", party="ops")).returncode == 2
        assert (await cli.run("cohort", "remove", "web", party="ops")).returncode == 0
        gone = await cli.run("cohort", "remove", "web", party="ops")
        assert gone.returncode == 2
        assert b"there is no cohort 'web'" in gone.stderr


async def test_a_recipe_on_every_member(tmp_path: Path) -> None:
    async with mesh(tmp_path, nodes=("alpha", "beta")) as net:
        cli = Commands(net, tmp_path)
        await cli.run("cohort", "set", "web", "alpha", "beta", party="ops")
        done = await cli.run("bake", "-", "--cohort", "web", party="boss", stdin=SAY)
        assert done.returncode == 0, done.stderr
        assert sorted(done.stdout.splitlines()) == [
            b"[alpha] hello from alpha", b"[beta] hello from beta",
        ]  # fmt: skip
        assert b"cohort: 2 succeeded" in done.stderr
        assert b"[alpha] oops\n" in done.stderr

        out = tmp_path / "out"
        more = ("--output-dir", str(out), "--quiet")
        done = await cli.run("bake", "-", "--cohort", "web", *more, party="boss", stdin=SAY)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        assert (out / "alpha/stdout").read_bytes() == b"hello from alpha\n"
        assert (out / "beta/stderr").read_bytes() == b"oops\n"

        bad = await cli.run("bake", "-", "--cohort", "web", party="boss", stdin=b"<recipe><no/></recipe>")
        assert bad.returncode == 2
        half = b'<recipe name="half"><cli shell="yes" command="[ ${node} = alpha ]"/></recipe>'
        failed = await cli.run("bake", "-", "--cohort", "web", "--json", party="boss", stdin=half)
        assert failed.returncode == 1
        summary = json.loads(failed.stdout.splitlines()[-1])
        assert (summary["event"], summary["succeeded"], summary["failed"]) == ("summary", ["alpha"], ["beta"])
        assert summary["codes"] == {"alpha": 0, "beta": 1}
        assert (await cli.run("bake", "-", "--cohort", "no", party="boss", stdin=SAY)).returncode == 2
        both = ("--cohort", "web", "--node", "alpha")
        assert (await cli.run("bake", "-", *both, party="boss", stdin=SAY)).returncode == 2


async def test_a_dead_member_is_silent_and_ctrl_c_cancels_on_the_others(tmp_path: Path) -> None:
    async with mesh(tmp_path, nodes=("alpha", "beta", "ghost")) as net:
        cli, gate = Commands(net, tmp_path), Gate(tmp_path / "gate")
        await cli.run("cohort", "set", "web", "alpha", "beta", "ghost", party="ops")
        await net.nodes["ghost"].stop()
        done = await cli.run("bake", "-", "--cohort", "web", party="boss", stdin=SAY)
        assert done.returncode == 5
        assert b"cohort: 2 succeeded, 1 silent" in done.stderr
        assert b"node ghost: silent" in done.stderr
        path = tmp_path / "held.xml"
        path.write_text(f'<recipe name="held"><cli shell="yes" command="{gate.wait}"/></recipe>')
        async with cli.following("bake", str(path), "--cohort", "web", party="boss") as baking:
            await baking.until("status", node="alpha", kind="step")
            assert await baking.interrupt() == 5
            assert baking.events[-1]["cancelled"] == ["alpha", "beta"]
            assert baking.events[-1]["silent"] == ["ghost"]
