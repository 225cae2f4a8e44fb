"""Crank hosts in processes of their own, and a stand-in on the bus for the Builder that they report to.

async with server(tmp_path) as nats, desk(nats.url) as builder:
    async with crankhost(tmp_path, nats.url, spec("counter", SCRIPT, triggers=…, posts=…)) as host:
        await builder.ready(host)

`builder.heard("Robot.Said")` are the entries of what was posted, `builder.reports` what was reported.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bakemesh.bus import Bus
from bakemesh.bus.replies import received
from bakemesh.bus.sealing import Sealed, seal
from bakemesh.processes import Nursery, ProcessSpec, ShimExit, Shimmed, ShimSpec
from bakemesh.protocol import subjects
from bakemesh.protocol.admit import Delivery
from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.builder.messages import Result
from bakemesh.protocol.builder.node import ComponentDeliver, ComponentReport, ComponentWatch
from bakemesh.protocol.builder.spec.component import (
    ComponentSpec,
    Parameter,
    Post,
    ScriptCrank,
    Trigger,
)
from bakemesh.protocol.message import GenericMessage
from support.nats import MESH, connect
from support.waiting import eventually

NODE = "beta"
SAID = "Test.Said"
HOST = "bakemesh.crankhost"
END_S = 30.0


def spec(
    name: str,
    source: str | None,
    *,
    script: str = "crank.py",
    function: str = "crank",
    triggers: Mapping[str, str] | tuple[Trigger, ...] = (),
    posts: tuple[Post, ...] = (),
    parameters: Mapping[str, int | float | str] | None = None,
    **more: Any,
) -> ComponentSpec:
    """A component with a script. Every one has the post `Say`, of type SAID."""
    given = (
        tuple(Trigger(name=key, type=type_) for key, type_ in triggers.items())
        if isinstance(triggers, Mapping)
        else triggers
    )
    return ComponentSpec(
        name=name,
        crank=ScriptCrank(script=script, function=function, source=source),
        triggers=given,
        posts=(Post(name="Say", type=SAID), *posts),
        parameters=tuple(Parameter(name=key, value=value) for key, value in (parameters or {}).items()),
        **more,
    )


class Forked:
    """A fork of a nursery, as a process."""

    def __init__(self, shimmed: Shimmed) -> None:
        self.shimmed = shimmed
        self._end = asyncio.create_task(shimmed.ended())

    @property
    def returncode(self) -> int | None:
        """As a subprocess has it."""
        return _code(self._end.result()) if self._end.done() else None

    def send_signal(self, number: int) -> None:
        """To the component, not to its shim."""
        os.kill(self.shimmed.pid, number)

    def kill(self) -> None:
        """KILL."""
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        """Its end."""
        return _code(await asyncio.shield(self._end))


def _code(end: ShimExit) -> int:
    assert not end.lost
    return end.code if end.code is not None else -(end.signal or 0)


@dataclass
class Host:
    """A crank host's process. `start` again after `kill9` keeps its folder."""

    url: str
    spec: ComponentSpec
    folder: Path
    node_id: str = NODE
    creds: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    nursery: Nursery | None = None  # by a fork of it, where there is one
    process: asyncio.subprocess.Process | Forked | None = None
    instance: str = "instance-0"
    _starts: int = 0

    @property
    def out(self) -> str:
        """What it printed so far."""
        return (self.folder / "out.log").read_text()

    async def start(self) -> None:
        """Starts it, as a Builder does."""
        self._starts += 1
        self.instance = f"instance-{self._starts}"
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        start = {
            "spec": json.loads(self.spec.to_json()),
            "instance": self.instance,
            "node": f"{self.node_id}-host",
            "nodeid": self.node_id,
            "mesh": MESH,
            "nats": [self.url],
            "creds": self.creds,
            "tls": None,
            "data": str(data),
        }
        (self.folder / "start.json").write_text(json.dumps(start))
        argv = [sys.executable, "-m", HOST, str(self.folder / "start.json")]
        env = {**os.environ, "BAKEMESH_LOG_FORMAT": "readable", **self.environment}
        if self.nursery is not None:
            process = ProcessSpec(argv, env, data)
            instance = f"{self.spec.name}-{uuid.uuid4().hex}"
            self.process = Forked(
                await self.nursery.launch(
                    ShimSpec(process=process, folder=self.folder, instance=instance, module=HOST)
                )
            )
            return
        with (self.folder / "out.log").open("ab") as out:
            self.process = await asyncio.create_subprocess_exec(
                *argv, cwd=data, stdout=out, stderr=out, env=env
            )

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def term(self) -> None:
        """TERM."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    async def kill9(self) -> None:
        """As a crash would."""
        assert self.process is not None
        self.process.kill()
        await self.process.wait()

    async def ended(self) -> int:
        """Its exit code, once it has ended by itself."""
        assert self.process is not None
        async with asyncio.timeout(END_S):
            return await self.process.wait()

    async def stop(self) -> int:
        """TERM, and its exit code."""
        if self.running:
            self.term()
        return await self.ended()


@asynccontextmanager
async def crankhost(folder: Path, url: str, of: ComponentSpec, **settings: Any) -> AsyncIterator[Host]:
    """A running host, in `folder`/<component>; what it printed is shown where the test fails inside."""
    place = folder / of.name
    place.mkdir(exist_ok=True)
    host = Host(url, of, place, **settings)
    await host.start()
    try:
        yield host
    except BaseException:
        print(f"--- {of.name}\n{host.out[-4000:]}")
        raise
    finally:
        if host.running:
            with contextlib.suppress(TimeoutError):
                await host.stop()
            if host.running:
                await host.kill9()
                raise AssertionError(f"{of.name} did not end at TERM: {host.out[-2000:]}")


class Desk:
    """The stand-in: takes reports, hears what is posted and shown, hands messages over."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.node_id = bus.settings.node_id
        self.reports: list[ComponentReport] = []
        self.watches: list[ComponentWatch] = []
        self.posted: list[Delivery] = []
        self.answer: Callable[[ComponentReport], Result | None] = lambda _: Result(
            verb="Report", accepted=True, code=Code.OK, summary="noted"
        )

    async def open(self) -> None:
        await self.bus.serve(
            subjects.pattern(MESH, subjects.COMPONENT_REPORT, node_id=self.node_id), self._report
        )
        await self.bus.subscribe(subjects.pattern(MESH, subjects.COMPONENT_WATCH), self._watch)

    def _report(self, delivery: Delivery) -> Result | None:
        report = delivery.received.message
        assert isinstance(report, ComponentReport)
        self.reports.append(report)
        return self.answer(report)

    def _watch(self, delivery: Delivery) -> None:
        watch = delivery.received.message
        assert isinstance(watch, ComponentWatch)
        self.watches.append(watch)

    async def listen(self, type_: str = SAID) -> None:
        """Hears posts of this type from now on."""
        await self.bus.subscribe(subjects.pattern(MESH, type_), self.posted.append)

    def heard(self, type_: str = SAID) -> list[dict[str, Any]]:
        """The entries of what was posted."""
        return [each.received.message.entries() for each in self.posted if each.received.type == type_]

    async def said(self, number: int, type_: str = SAID) -> list[dict[str, Any]]:
        """The first `number` of them, once they are there."""
        await eventually(lambda: len(self.heard(type_)) >= number, what=f"{number} posts of {type_}")
        return self.heard(type_)[:number]

    def shown(self, component: str) -> dict[str, str]:
        """The latest live values of a component."""
        return {watch.key: watch.value for watch in self.watches if watch.component == component}

    async def ready(self, host: Host) -> None:
        """Returns when this start of the host was reported ready."""

        def there() -> bool:
            assert host.running or self._reported(host, "ready"), host.out[-3000:]
            return self._reported(host, "ready")

        await eventually(there, what=f"{host.spec.name} to be ready")

    def _reported(self, host: Host, state: str) -> bool:
        return any(
            (each.component, each.instance, each.state) == (host.spec.name, host.instance, state)
            for each in self.reports
        )

    def failure(self, host: Host) -> ComponentReport:
        """What this start of the host reported of its failure."""
        found = [each for each in self.reports if each.state == "failed" and each.instance == host.instance]
        assert len(found) == 1, (self.reports, host.out[-3000:])
        return found[0]

    async def post(
        self, type_: str, entries: Mapping[str, Any] | None = None, *, party: str = "tester", node: str = "a"
    ) -> None:
        """A post of somebody else's."""
        await self.bus.link.send(*self._post(type_, entries or {}, party, node))

    async def store(
        self, type_: str, entries: Mapping[str, Any] | None = None, *, party: str = "tester", node: str = "a"
    ) -> int:
        """A durable one; gives its sequence."""
        subject, payload = self._post(type_, entries or {}, party, node)
        return (await self.bus.publish_stored(subject, Sealed(payload, os.urandom(8).hex()))).seq

    def _post(self, type_: str, entries: Mapping[str, Any], party: str, node: str) -> tuple[str, bytes]:
        message = GenericMessage.from_entries(dict(entries), type_)
        sealed = seal(message, f"{party}@{node}", type=type_)
        return subjects.build(MESH, node, party, subjects.NO_KEY, type_), sealed.payload

    async def deliver(self, component: str, trigger: str, type_: str, entries: Mapping[str, Any]) -> Result:
        """Hands a message over, as a Builder does."""
        subject = subjects.build(
            MESH, self.node_id, f"builder-{self.node_id}", component, subjects.COMPONENT_DELIVER
        )
        message = ComponentDeliver(
            component=component, trigger=trigger, type_=type_, sender="boss@alpha", payload=dict(entries)
        )
        answer = (await self.bus.request(subject, message)).message
        assert isinstance(answer, Result)
        return answer

    async def probe(self, component: str, type_: str) -> Result:
        """Asks for its health."""
        subject = subjects.build(MESH, self.node_id, f"builder-{self.node_id}", component, type_)
        payload = seal(GenericMessage(), self.bus.settings.sender, type=type_).payload
        answer = received(subject, await self.bus.link.ask(subject, payload, 5)).message
        assert isinstance(answer, Result)
        return answer


@asynccontextmanager
async def desk(url: str, *, node_id: str = NODE, **settings: Any) -> AsyncIterator[Desk]:
    """A stand-in for `node_id`'s Builder, which hears SAID."""
    async with connect(
        url, name="builder", node_id=node_id, identity=f"builder-{node_id}", **settings
    ) as bus:
        made = Desk(bus)
        await made.open()
        if not settings.get("credentials"):
            await made.listen()
        yield made
