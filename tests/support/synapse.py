"""A real synapse module in a process of its own, with fake-engine workers, and a caller that counts answers.

async with server(tmp_path) as nats, synapse(tmp_path, nats.url, {"mini": {"dims": 16}}) as module:
    async with calling(nats.url) as caller:
        answers = await caller.ask("Embed", "mini", Embed(texts=["a"]))

`module.kill9()`, `module.start()`; its log is `module.log`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bakemesh.bus import Bus
from bakemesh.bus.errors import BusError
from bakemesh.protocol.inference import answers
from bakemesh.protocol.inference.answers import Error, Progress, Token, Vectors
from bakemesh.protocol.message import Message, Received
from bakemesh.protocol.subjects import NO_KEY, SYNAPSE, SYNAPSE_STATUS, build, pattern
from support.nats import connect
from support.startup import RunningStartup, startup

ANSWER_S = 60.0


def fake_model(folder: Path, name: str, **facts: Any) -> Path:
    """A model file of the fake engine: `kind`, `dims`, `context`."""
    path = folder / f"{name}.fake"
    path.write_text(json.dumps(facts))
    return path


@asynccontextmanager
async def synapse(
    folder: Path,
    url: str,
    models: Mapping[str, Mapping[str, Any]],
    *flags: str,
    node_id: str = "alpha",
    workers: int = 1,
    wait: bool = True,
    config: Mapping[str, Mapping[str, str]] | None = None,
    environ: dict[str, str] | None = None,
) -> AsyncIterator[RunningStartup]:
    """One that is ready; its log is shown where the test fails inside. `models`: alias → facts of a fake one;
    `config`: alias → runtime keys (the fake engine's switches)."""
    given = [f"--model={alias}={fake_model(folder, alias, **facts)}" for alias, facts in models.items()]
    given += [
        f"--model={alias}.{key}={value}"
        for alias, keys in (config or {}).items()
        for key, value in keys.items()
    ]
    given += [f"--workers={workers}", "--engine=fake", *flags]
    async with startup(
        folder, url, node_id, None, *given, program="bakemesh.synapse", wait=wait, environ=environ
    ) as running:
        if environ is not None and wait:
            await running.until("ready")
        yield running


@dataclass
class Asked:
    """A request and what came for it. `ended`: set with its last answer."""

    id: bytes
    subject: str
    got: list[Received] = field(default_factory=list)
    failed: list[BusError] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def messages(self) -> list[Message]:
        """What came, in order."""
        return [each.message for each in self.got]

    @property
    def last(self) -> Any:
        """The last answer."""
        return self.got[-1].message

    def ends(self) -> int:
        """How many last answers came: 1, where all is well."""
        return sum(is_last(each.message) for each in self.got)


def is_last(message: Message) -> bool:
    """Whether nothing may come after it."""
    if isinstance(message, Vectors):
        return message.final
    return not isinstance(message, Token | Progress | answers.Alive)


class Caller:
    """Asks over a bus of its own, and keeps every answer, late ones too."""

    def __init__(self, bus: Bus, node_id: str) -> None:
        self.bus, self.node_id = bus, node_id
        self.asked: list[Asked] = []
        self._open: list[Any] = []

    async def send(
        self,
        verb: str,
        alias: str,
        message: Message,
        *,
        node: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Asked:
        """Sends it, and waits for nothing."""
        subject = build(
            self.bus.mesh, node or self.node_id, self.bus.settings.party, alias, f"{SYNAPSE}.{verb}"
        )
        made = Asked(b"", subject)

        def take(received: Received) -> None:
            made.got.append(received)
            if is_last(received.message):
                made.ended.set()

        def failed(error: BusError) -> None:
            made.failed.append(error)
            made.ended.set()

        talk = self.bus.conversation(subject, message, take, failed)
        made.id = talk.id
        self.asked.append(made)
        self._open.append(talk)
        await talk.send(headers)
        return made

    async def ask(self, verb: str, alias: str, message: Message, **how: Any) -> Asked:
        """Sends it and waits for its end."""
        made = await self.send(verb, alias, message, **how)
        async with asyncio.timeout(ANSWER_S):
            await made.ended.wait()
        assert not made.failed, made.failed
        assert all(answer.message.request == made.id for answer in made.got), made.got  # type: ignore[attr-defined]
        return made

    async def refused(self, verb: str, alias: str, message: Message, **how: Any) -> Error:
        """Asks, and gives the Error that must be the one answer."""
        made = await self.ask(verb, alias, message, **how)
        assert isinstance(made.last, Error), made.messages
        assert made.ends() == 1
        return made.last

    async def cancel(self, asked: Asked, *, node: str | None = None) -> None:
        """Takes a request back."""
        words = asked.subject.split(".")
        subject = build(self.bus.mesh, node or words[1], words[2], words[3], f"{SYNAPSE}.Cancel")
        from bakemesh.protocol.inference.requests import Cancel

        await self.bus.publish(subject, Cancel(request=asked.id))

    def close(self) -> None:
        """Hears no more."""
        for talk in self._open:
            talk.close()


@asynccontextmanager
async def calling(
    url: str, *, name: str = "caller", node_id: str = "alpha", **settings: Any
) -> AsyncIterator[Caller]:
    """A caller of that node's module."""
    async with connect(url, name=name, **settings) as bus:
        made = Caller(bus, node_id)
        try:
            yield made
        finally:
            made.close()


@asynccontextmanager
async def statuses(bus: Bus) -> AsyncIterator[list[Any]]:
    """Every Status that is heard, in order."""
    heard: list[Any] = []
    subscription = await bus.subscribe(
        pattern(bus.mesh, SYNAPSE_STATUS, key=NO_KEY),
        lambda delivery: heard.append(delivery.received.message),
    )
    try:
        yield heard
    finally:
        with contextlib.suppress(BusError):
            await subscription.stop()
