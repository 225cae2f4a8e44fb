"""Script cranks under the Builder, each with a key of its own: ready by their word, failed by theirs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bakemesh.bus.posts import ensure_posts
from bakemesh.protocol import storage
from bakemesh.protocol.builder.messages import BakeFailed, BakeOutcome, BakeSuccess
from bakemesh.supervisor import Supervisor
from support.mesh import Mesh, mesh
from support.modules import Board, attach, board, everything_of, instances, recipe
from support.waiting import eventually

POSTER = """
async def crank(api):
    await api.post("Say", {"n": 1})
    while api.should_continue():
        await api.wait_for_message(timeout=0.2)
"""
LISTENER = """
async def crank(api):
    print("listening", flush=True)
    async for message in api.messages():
        print("heard", message.type, flush=True)
        api.watch("heard", message.type)
"""
RAISES = """
async def crank(api):
    raise ValueError("no such thing")
"""
RETURNS = """
def crank(api):
    print("done", flush=True)
"""


def script(name: str, source: str, inside: str = "", **attributes: str) -> str:
    """A `<module>` step with a script that travels with it."""
    written = " ".join(f'{key.replace("_", "-")}="{value}"' for key, value in attributes.items())
    crank = f'<crank script="{name}.py"><![CDATA[{source}]]></crank>'
    return f'<module name="{name}" {written}>{crank}{inside}</module>'


class Hall:
    def __init__(self, net: Mesh, boss: Supervisor, seen: Board) -> None:
        self.net, self.boss, self.seen = net, boss, seen

    async def bake(self, *steps: str) -> BakeOutcome:
        bake = await self.boss.bake(recipe(*steps), node_id="alpha")
        return await bake.outcome()


@asynccontextmanager
async def hall(folder: Path, *modules: str, keyless: tuple[str, ...] = ()) -> AsyncIterator[Hall]:
    keys = folder / "keys"
    keys.mkdir(mode=0o700)
    flags = ("--on-stop", "stop", "--keys-dir", str(keys))
    async with (
        mesh(folder, *flags, modules=modules, witnesses=("witness",)) as net,
        net.supervisor("boss") as boss,
        net.connect("witness") as bus,
        board(bus) as seen,
    ):
        for name in modules:
            if name not in keyless:
                path = keys / f"{name}.nk"
                path.touch(mode=0o600)
                path.write_text(net.keys[name].seed)
        yield Hall(net, boss, seen)
        assert await net.node.stop() == 0
        assert everything_of(net.node.state) == []


async def test_a_crank_says_that_it_is_ready_and_its_posts_wake_another(tmp_path: Path) -> None:
    async with hall(tmp_path, "ears", "mouth") as here:
        outcome = await here.bake(
            script("ears", LISTENER, '<trigger name="Said" type="Test.Said"/>'),
            script("mouth", POSTER, '<post name="Say" type="Test.Said"/>'),
        )
        assert isinstance(outcome, BakeSuccess), outcome
        row = await here.seen.until("ears", lambda row: row["watch"].get("heard") == "Test.Said")
        assert (row["kind"], row["state"]) == ("script", "ready")
        log = here.net.node.state / "components" / "ears" / "out.log"
        await eventually(lambda: "heard Test.Said" in log.read_text(), what="the output")


async def test_a_crank_that_raises_is_a_failed_component_with_its_traceback(tmp_path: Path) -> None:
    async with hall(tmp_path, "bad") as here:
        outcome = await here.bake(script("bad", RAISES, max_restarts="0"))
        assert isinstance(outcome, BakeSuccess | BakeFailed)
        row = await here.seen.until("bad", "quarantined")
        assert "its crank failed (exit code 70)" in row["reason"]
        assert row["reason"].rstrip().endswith("ValueError: no such thing")
        assert "bad.py" in row["reason"], "the traceback shows the script's own line"
        again = await here.bake(attach("bad"))
        assert isinstance(again, BakeFailed)
        assert "no such thing" not in again.summary, "a crank's own words are in no Status of a bake"
        assert instances("bad", here.net.node.state) == []


async def test_a_crank_that_returns_has_ended_well(tmp_path: Path) -> None:
    async with hall(tmp_path, "job") as here:
        assert isinstance(await here.bake(script("job", RETURNS, restart="on-failure")), BakeSuccess)
        row = await here.seen.until("job", "ended")
        assert row["reason"] == "exit code 0"


async def test_durable_posts_are_stored_before_their_component_runs(tmp_path: Path) -> None:
    async with hall(tmp_path, "mouth") as here:
        post = '<post name="Say" type="Test.Kept" durable="yes"/>'
        assert isinstance(await here.bake(script("mouth", POSTER, post)), BakeSuccess)
        async with here.net.connect("witness") as bus:
            await ensure_posts(bus, ["Test.Kept"])  # there already: asks for nothing

            async def stored() -> bool:
                info = await bus.hub_api.stream_info(storage.posts_stream(bus.mesh))
                return bool(info["state"]["messages"] == 1)

            await eventually(stored, what="the post in its stream")


async def test_what_the_builder_died_over_is_said_again_to_the_next_one(tmp_path: Path) -> None:
    """The host reports until somebody takes it."""
    async with hall(tmp_path, "late") as here:
        gate = tmp_path / "gate"
        source = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.02)\n{LISTENER}"
        bake = await here.boss.bake(recipe(script("late", source)), node_id="alpha")
        row = await here.seen.until("late", lambda row: row["pid"])
        await here.net.node.kill9()
        gate.touch()
        here.seen.latest.clear()
        await here.net.node.start()
        assert isinstance(await bake.outcome(), BakeSuccess)
        assert (await here.seen.until("late", "ready"))["pid"] == row["pid"]
        assert instances("late", here.net.node.state) == [row["pid"]]
