"""A real Startup Supervisor with scripted Builders on a real server: what it sends, when, and how often."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bakemesh.bus import Bus
from bakemesh.bus.kv import Bucket
from bakemesh.protocol import storage
from bakemesh.protocol.admit import Delivery
from bakemesh.protocol.builder.messages import Result, SystemStatus
from bakemesh.protocol.builder.node import ComponentControl
from bakemesh.protocol.message import decode
from bakemesh.protocol.rights import builder_name, startup_name
from bakemesh.protocol.startup import PsySpecMessage, Ready, Reconciled
from bakemesh.protocol.subjects import COMPONENT_CONTROL, NO_KEY, build, pattern
from bakemesh.startup.owners import Owners
from bakemesh.startup.state import Reported, State
from bakemesh.startup.watching import Watching
from support.nats import connect, server
from support.scripted_builder import ScriptedBake, ScriptedBuilder, scripted_builder
from support.startup import RunningStartup, listening, startup
from support.waiting import eventually


def psyspec(*modules: str, more: str = "") -> str:
    return (
        '<psySpec name="demo"><node name="alpha"/><node name="beta"/>'
        + more
        + "".join(modules)
        + "</psySpec>"
    )


def module(name: str, node: str = "alpha", seconds: int = 100) -> str:
    return f'<module name="{name}" node="{node}"><crank command="sleep {seconds}"/></module>'


TWO = psyspec(module("one"), module("two"), module("far", "beta"))


@dataclass
class Site:
    """A node whose Builder follows a script: it bakes when it is told to."""

    bus: Bus
    builder: ScriptedBuilder
    go: asyncio.Event
    boot: str = "b1"
    removed: list[str] = field(default_factory=list)
    stopping: bool = False  # what is to be removed takes its time to end
    fails: int = 0

    async def say(self, **more: Any) -> None:
        """Its SystemStatus, on core and in the bucket."""
        await self.builder.report(boot=self.boot, **more)
        await status(self, boot=self.boot, **more)

    @property
    def recipes(self) -> list[str]:
        """Every bring-up that was taken, as XML."""
        return [bake.recipe.recipe_spec for bake in self.builder.bakes.values()]


async def status(site: Site, **more: Any) -> None:
    """Its SystemStatus, on core alone."""
    values: dict[str, Any] = {
        "node": site.builder.node,
        "node_id": site.builder.node_id,
        "bakes": 0,
        "queued": 0,
        "load": 0.0,
        "draining": False,
        "configcomplete": True,
        "version": "0",
        "protocols": ["builder-v1"],
        "stepkinds": [],
        "components": [],
    }
    node_id = site.builder.node_id
    subject = build(site.bus.mesh, node_id, builder_name(node_id), NO_KEY, SystemStatus.TYPE)
    await site.bus.publish(subject, SystemStatus(**(values | more)))


@asynccontextmanager
async def site(url: str, node_id: str) -> AsyncIterator[Site]:
    """A Builder that reports nothing yet."""
    go = asyncio.Event()
    go.set()
    holder: list[Site] = []

    async def script(bake: ScriptedBake) -> None:
        await bake.start()
        cancelled = asyncio.create_task(bake.controls.get())
        going = asyncio.create_task(go.wait())
        await asyncio.wait({cancelled, going}, return_when=asyncio.FIRST_COMPLETED)
        if not going.done():
            await bake.cancelled()
        elif holder[0].fails:
            holder[0].fails -= 1
            await bake.fail()
        else:
            await bake.succeed()
        for task in (cancelled, going):
            task.cancel()

    async def removes(delivery: Delivery) -> Result:
        message = delivery.received.message
        assert isinstance(message, ComponentControl)
        assert delivery.subject.key == message.component
        site = holder[0]
        if message.component in site.removed and not site.stopping:
            return Result(verb="Remove", accepted=False, code="unknown_component", summary="none")
        site.removed.append(message.component)
        return Result(verb="Remove", accepted=True, code="ok", summary="accepted; it is stopping")

    async with (
        connect(url, name="builder", node_id=node_id, identity=builder_name(node_id)) as bus,
        scripted_builder(bus, node_id, node_id, script, report=False) as builder,
    ):
        serving = await bus.serve(pattern(bus.mesh, f"{COMPONENT_CONTROL}.*", node_id=node_id), removes)
        holder.append(Site(bus, builder, go))
        try:
            yield holder[0]
        finally:
            await serving.stop()


@dataclass
class House:
    alpha: Site
    beta: Site
    bus: Bus
    url: str
    folder: Path

    async def give(self, text: str, issuer: str = "ops", says: str | None = None) -> Result:
        subject = build(self.bus.mesh, "alpha", issuer, startup_name("alpha"), PsySpecMessage.TYPE)
        answer = await self.bus.request(subject, PsySpecMessage(psyspec=text, issuedby=says or issuer))
        assert isinstance(answer.message, Result)
        return answer.message


@asynccontextmanager
async def house(folder: Path) -> AsyncIterator[House]:
    async with AsyncExitStack() as stack:
        nats = await stack.enter_async_context(server(folder))
        alpha = await stack.enter_async_context(site(nats.url, "alpha"))
        beta = await stack.enter_async_context(site(nats.url, "beta"))
        bus = await stack.enter_async_context(connect(nats.url))
        yield House(alpha, beta, bus, nats.url, folder)


async def kept(bus: Bus, key: str, bucket: str | None = None) -> bytes | None:
    entry = await Bucket(bus, bucket or storage.nodes_bucket(bus.mesh)).get(key)
    return entry.value if entry else None


class Recorder:
    """Where a Watching hands its reports to."""

    def __init__(self, node_id: str) -> None:
        self.settings = SimpleNamespace(node_id=node_id)
        self.state = State(node_id=node_id)
        self.boots: dict[str, list[str]] = {}

    async def post(self, event: Reported) -> None:
        self.boots.setdefault(event.node_id, []).append(event.boot)


async def test_what_lies_in_the_bucket_counts_no_more_once_a_node_was_heard(tmp_path):
    async with house(tmp_path) as here:
        await here.alpha.builder.report(boot="b1")
        await here.beta.builder.report(boot="b1")
        desk = Recorder("alpha")
        watching = Watching(here.bus, desk, None, Owners("startup-alpha"))  # type: ignore[arg-type]
        read = watching._bucket.entries

        async def slowly() -> Any:
            found = await read()
            if not desk.boots:  # alpha comes again while its last life's status is on its way here
                await status(here.alpha, boot="b2")
                await eventually(lambda: desk.boots, what="the live one")
            return found

        watching._bucket.entries = slowly  # type: ignore[method-assign]
        working = asyncio.create_task(watching.run())
        await eventually(lambda: "beta" in desk.boots, what="what the bucket holds of the other")
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        assert desk.boots["alpha"] == ["b2"]


async def test_local_at_once_ready_once_after_success_and_peers_when_they_come(tmp_path):
    async with house(tmp_path) as here, listening(here.bus) as heard:
        here.alpha.go.clear()
        await here.alpha.say()
        async with startup(tmp_path, here.url, "alpha", TWO) as running:
            await eventually(lambda: here.alpha.recipes, what="the local bring-up")
            assert await running.until("missing") == {"node": "beta", "components": 1}
            assert not heard.ready
            here.alpha.go.set()
            told = await running.until("announced", node="alpha", psyspec="demo", boot="b1")
            assert told["components"] == ["one", "two"]
            await eventually(lambda: heard.ready, what="Ready on the bus")
            assert not here.beta.recipes
            await here.beta.say()
            await eventually(lambda: here.beta.recipes, what="the peer's bring-up")
            await running.until("component", node="beta", name="far", state="ready")
            note = await eventually(lambda: kept(here.bus, "alpha.ready"), what="the note of Ready")
            received = decode(note)
            assert isinstance(received.message, Ready)
            assert {received.id} == heard.ready_ids
            assert await running.stop() == 0
        assert [len(here.alpha.recipes), len(here.beta.recipes), len(heard.ready)] == [1, 1, 1]
        (alpha,) = here.alpha.recipes
        assert "far" not in alpha
        assert alpha.count('wait="no"') == alpha.count("<attach") == 2


async def test_restarted_it_neither_sends_nor_announces_again(tmp_path):
    async with house(tmp_path) as here, listening(here.bus) as heard:
        await here.alpha.say()
        await here.beta.say()
        async with startup(tmp_path, here.url, "alpha", TWO) as running:
            await running.until("announced")
            await running.until("component", name="far")
            for _ in range(2):
                await running.kill9()
                await running.start()
                await here.alpha.say(bakes=1)
                # A PsySpec that is applied afterwards is done: what came before it was nothing.
                since = len(running.lines)
                assert (await here.give(TWO)).accepted
                await running.until("reconciled", since=since, node="beta")
        assert [len(here.alpha.recipes), len(here.beta.recipes)] == [1, 1]
        assert len(heard.ready_ids) == 1


async def test_a_bring_up_that_runs_while_it_dies_is_followed_to_its_end(tmp_path):
    async with house(tmp_path) as here, listening(here.bus) as heard:
        here.alpha.go.clear()
        await here.alpha.say()
        async with startup(tmp_path, here.url, "alpha", TWO) as running:
            await eventually(lambda: here.alpha.recipes, what="the local bring-up")
            await running.kill9()
            here.alpha.go.set()
            await running.start()
            await running.until("announced")
            await eventually(lambda: heard.ready, what="Ready")
        assert len(here.alpha.recipes) == 1


async def test_a_failed_bring_up_is_said_and_tried_again(tmp_path):
    async with house(tmp_path) as here:
        here.alpha.fails = 1
        await here.alpha.say()
        async with startup(tmp_path, here.url, "alpha", TWO) as running:
            failed = await running.until("failed", node="alpha")
            assert "step_failed" in failed["why"]
            await running.until("announced")
        assert len(here.alpha.recipes) == 2


async def test_a_peer_with_a_new_boot_is_brought_up_again(tmp_path):
    async with house(tmp_path) as here, listening(here.bus) as heard:
        await here.alpha.say()
        await here.beta.say()
        async with startup(tmp_path, here.url, "alpha", TWO) as running:
            await running.until("announced")
            await eventually(lambda: len(here.beta.recipes) == 1, what="the peer's bring-up")
            await running.until("component", name="far")
            here.beta.boot = "b2"
            await here.beta.say()
            await eventually(lambda: len(here.beta.recipes) == 2, what="the second bring-up")
            here.alpha.boot = "b2"
            await here.alpha.say()
            await running.until("announced", boot="b2")
            await eventually(lambda: len(heard.ready_ids) == 2, what="the second Ready")
        assert [len(here.alpha.recipes), len(here.beta.recipes)] == [2, 2]


async def test_a_changed_psyspec_is_reconciled_and_told(tmp_path):
    async with house(tmp_path) as here, listening(here.bus) as heard:
        await here.alpha.say()
        await here.beta.say()
        async with startup(tmp_path, here.url, "alpha", TWO) as running:
            await running.until("announced")
            await running.until("component", name="far")
            changed = psyspec(module("one"), module("two", seconds=99), module("new"))
            result = await here.give(changed)
            assert (result.accepted, result.verb) == (True, "PsySpec")
            await eventually(lambda: len(heard.reconciled) == 2, what="Reconciled of both nodes")
            told = {m.node: m for each in heard.reconciled if isinstance(m := each.message, Reconciled)}
            alpha, beta = told["alpha"], told["beta"]
            assert (alpha.added, alpha.removed, alpha.restarted) == (["new"], [], ["two"])
            assert alpha.unchanged == 1
            assert (beta.removed, here.beta.removed) == (["far"], ["far"])
            assert here.alpha.removed == []
            assert len(here.alpha.recipes) == 2
            assert 'name="one"' not in here.alpha.recipes[1]
            # It outlives a restart, though the arguments still say the old one.
            await running.kill9()
            await running.start()
            result = await here.give(changed)
            await eventually(lambda: len(heard.reconciled) == 3, what="Reconciled, with nothing to do")
        assert [len(here.alpha.recipes), len(here.beta.recipes)] == [2, 1]
        assert len(heard.ready_ids) == 1


async def test_an_old_bring_up_that_still_runs_is_cancelled_first(tmp_path):
    async with house(tmp_path) as here:
        here.alpha.go.clear()
        await here.alpha.say()
        async with startup(tmp_path, here.url, "alpha", psyspec(module("stuck"))) as running:
            await eventually(lambda: here.alpha.recipes, what="the local bring-up")
            assert (await here.give(psyspec(module("good")))).accepted
            await eventually(lambda: len(here.alpha.recipes) == 2, what="the next one")
            here.alpha.go.set()
            told = await running.until("announced")
            assert told["components"] == ["good"]
        assert here.alpha.removed == ["stuck"]


async def test_a_module_that_moves_waits_until_it_has_ended_on_its_old_node(tmp_path):
    async with house(tmp_path) as here:
        for site in (here.alpha, here.beta):
            site.go.set()
            await site.say()
        async with startup(tmp_path, here.url, "alpha", TWO) as running:
            await running.until("component", name="far", state="ready")
            await running.until("announced")
            here.beta.stopping = True
            await here.give(psyspec(module("one"), module("two"), module("far", "alpha")))
            held = await running.until("held")
            assert (held["node"], held["components"], held["on"]) == ("alpha", ["far"], ["beta"])
            await eventually(lambda: len(here.beta.removed) > 2, what="asked again whether it is gone")
            assert len(here.alpha.recipes) == 1
            here.beta.stopping = False
            await eventually(lambda: len(here.alpha.recipes) == 2, what="the bring-up where it moves to")
            assert 'name="far"' in here.alpha.recipes[1]


async def test_a_component_of_another_startup_supervisor_is_said_with_what_to_do(tmp_path):
    async with house(tmp_path) as here:
        here.alpha.fails = 1
        theirs = {"name": "one", "state": "ready", "owner": "startup-beta", "digest": "d"}
        ours = {"name": "two", "state": "ready", "owner": "startup-alpha", "digest": "d"}
        await here.alpha.say(components=[theirs, ours])
        async with startup(tmp_path, here.url, "alpha", TWO) as running:
            why = (await running.until("failed"))["why"]
            assert "one there belong to startup-beta, which was given a PsySpec with them" in why
            assert "give it to one `up` and start the others without" in why


async def test_a_wrong_psyspec_is_refused_with_every_problem_and_changes_nothing(tmp_path):
    async with house(tmp_path) as here:
        await here.alpha.say()
        async with startup(tmp_path, here.url, "alpha", TWO) as running:
            await running.until("announced")
            result = await here.give(psyspec('<module nam="x"/>', '<module name="y"><cronk/></module>'))
            assert (result.accepted, result.code) == (False, "invalid_psyspec")
            assert len(result.problems or []) >= 3
            assert all(problem["line"] for problem in result.problems or [])
            forged = await here.give(TWO, says="somebody")
            assert (forged.accepted, forged.code) == (False, "unauthorised")
        assert len(here.alpha.recipes) == 1


async def test_cohorts_are_written_and_removed(tmp_path):
    async with house(tmp_path) as here:
        await here.alpha.say()
        bucket = storage.cohorts_bucket(here.bus.mesh)
        text = psyspec(module("one"), more='<cohort name="web" nodes="alpha beta"/>')
        async with startup(tmp_path, here.url, "alpha", text):
            found = await eventually(lambda: kept(here.bus, "web", bucket), what="the cohort")
            assert json.loads(found) == ["alpha", "beta"]
            assert (await here.give(psyspec(module("one")))).accepted

            async def gone() -> bool:
                return await kept(here.bus, "web", bucket) is None

            await eventually(gone, what="the cohort's end")


async def test_it_is_a_service_and_the_only_one_on_its_folder(tmp_path):
    async with house(tmp_path) as here:
        async with startup(tmp_path, here.url, "alpha") as running:
            second = RunningStartup(running.command, tmp_path / "second.log")
            await second.launch()
            assert await second.ended() == 6
            assert "pid" in second.log.read_text()
            answer = json.loads((await here.bus.link.ask("$SRV.INFO.startup", b"", 5)).data)
            assert answer["metadata"]["nodeid"] == "alpha"
            assert await running.stop() == 0
        broken = RunningStartup([*running.command, str(tmp_path / "no.xml")], tmp_path / "third.log")
        await broken.launch()
        assert await broken.ended() == 2
        assert "no.xml" in broken.log.read_text()
