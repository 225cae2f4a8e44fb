"""A synapse module by somebody who has protocol/inference-v1.md, a NATS client and msgpack: nothing of ours.

    async with stranger(nats.url, "alpha") as module: ...; module.asked, module.cancelled
    python -m support.stranger_module URL NODE '{"models": …}'        # a process of its own, to be killed

Vectors are arithmetic of each text's bytes, scores count common words, texts echo the prompt, a word a token.
`Faults` says what it does wrong; `gate` holds every request for work until it is opened. Section numbers are
that document's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import struct
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

DIMS = 8
STATUS_S = 2.0
MODELS = {"mini": "embed", "ranker": "rerank", "echo": "generate"}


def vector_of(item: str | Sequence[int]) -> list[float]:
    """The row of a text, or of token ids."""
    values = item.encode() if isinstance(item, str) else item
    total = sum((place + 1) * value for place, value in enumerate(values))
    return [((total * (31 + 2 * j) + 7 * j) % 1009) / 1009 for j in range(DIMS)]


def score_of(query: str, document: str) -> float:
    """How many words they share."""
    return float(len(set(query.split()) & set(document.split())))


def tokens_of(text: str) -> list[str]:
    """A word a token, its blank before it."""
    return [word if place == 0 else f" {word}" for place, word in enumerate(text.split(" "))]


@dataclass
class Faults:
    """What it does wrong, in the order in which a request meets it. Counts go down to 0 as they are used."""

    refuse: list[dict[str, Any]] = field(default_factory=list)  # error entries for the next requests
    always: dict[str, Any] | None = None  # error entries for every request
    deaf: bool = False  # takes requests and never answers
    crash_after: int | None = None  # ends the connection (the process) after so many answers of a request
    hold_after: int | None = None  # closes the gate before that answer of a stream
    twice: bool = False  # every answer two times
    late: bool = False  # after the last answer an Error, then all answers again, to the same reply
    skip: int | None = None  # leaves out that token, or those rows
    foreign: bool = False  # before its own, answers of another request
    garbage: bytes | None = None  # in the place of the first answer
    short: bool = False  # vectors and scores a number too few
    wide: int = DIMS  # numbers a row
    mute: bool = False  # publishes no Status any more


@dataclass
class Asked:
    """A request as it came."""

    type: str
    node: str
    party: str
    alias: str
    id: bytes
    entries: dict[str, Any]
    headers: dict[str, str]


class Stranger:
    """One module. `asked`: every request; `cancelled`: ids of the Cancels; `open_now`: requests not ended."""

    def __init__(
        self,
        url: str,
        node_id: str,
        *,
        name: str = "",
        mesh: str = "psyclone",
        models: Mapping[str, str] = MODELS,
        rows_an_answer: int = 64,
        status: Mapping[str, Any] | None = None,
        hidden: Iterable[str] = (),
        credentials: Mapping[str, Any] | None = None,
    ) -> None:
        self.url, self.node_id, self.name, self.mesh = url, node_id, name or node_id, mesh
        self.models, self.rows_an_answer, self.hidden = dict(models), rows_an_answer, set(hidden)
        self.faults = Faults()
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked: list[Asked] = []
        self.cancelled: list[bytes] = []
        self.open_now = 0
        self.run, self.serial = secrets.token_hex(4), 0
        self.said = {"state": "ok", "waitms": 0, "rate": 1000.0, "backlog": 0, "lanes": 1, **(status or {})}
        self.die = self._abort  # what a crash is
        self._credentials = dict(credentials or {})
        self._client = Client()
        self._heard: list[Subscription] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._cancels: dict[bytes, asyncio.Event] = {}

    async def start(self) -> None:
        """Connects, subscribes (section 1), says its Status."""
        self._client = await nats.connect(self.url, allow_reconnect=False, **self._credentials)
        for verb in ("Embed", "Rerank", "Generate", "Models", "Health", "Probe", "Ingest"):
            await self._hear(f"{self.mesh}.{self.node_id}.*.*.Psyclone.Synapse.{verb}", cb=self._take)
            if verb not in ("Probe", "Ingest"):
                subject = f"{self.mesh}.any.*.*.Psyclone.Synapse.{verb}"
                await self._hear(subject, "synapse", cb=self._take)
        for node in (self.node_id, "any"):
            await self._hear(f"{self.mesh}.{node}.*.*.Psyclone.Synapse.Cancel", cb=self._on_cancel)
        await self._client.flush()
        await self.say()
        self._spawn(self._say_on())

    async def stop(self) -> None:
        """Ends it, without a word to anybody."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._client.is_connected:
            for heard in self._heard:
                await heard.unsubscribe()
            await self._client.flush()  # from here on the server says that nobody listens
            await self._client.close()
        self._heard.clear()

    async def _hear(self, subject: str, queue: str = "", *, cb: Callable[[Msg], Awaitable[None]]) -> None:
        self._heard.append(await self._client.subscribe(subject, queue, cb=cb))

    async def restart(self) -> None:
        """As another run, with nothing of what the last one had."""
        await self.stop()
        self.run, self.serial = secrets.token_hex(4), 0
        self.faults = Faults()
        await self.start()

    async def say(self, **changes: Any) -> None:
        """A Status now."""
        self.said |= changes
        self.serial += 1
        known = [alias for alias in self.models if alias not in self.hidden]
        status = {
            "Node": self.name,
            "NodeID": self.node_id,
            "run": self.run,
            "serial": self.serial,
            "queued": self.open_now,
            "bytesinflight": 0,
            "busy": 0,
            "models": known,
            "loaded": known,
            "version": "stranger",
            **self.said,
        }
        subject = f"{self.mesh}.{self.node_id}.synapse.-.Psyclone.Synapse.Status"
        await self._client.publish(subject, self._sealed("Psyclone.Synapse.Status", status))
        await self._client.flush()

    async def _say_on(self) -> None:
        while True:
            await asyncio.sleep(STATUS_S)
            if not self.faults.mute:
                await self.say()

    # -- requests

    async def _take(self, msg: Msg) -> None:
        mesh, node, party, alias, kind = msg.subject.split(".", 4)
        found = msgpack.unpackb(msg.data, strict_map_key=False)
        assert (found["v"], found["type"], mesh) == (1, kind, self.mesh), found
        assert found["from"].count("@") == 1, found["from"]
        entries = {key.lower(): value for key, value in found["entries"].items()}
        asked = Asked(kind.rpartition(".")[2], node, party, alias, found["id"], entries, msg.headers or {})
        self.asked.append(asked)
        self._cancels[asked.id] = asyncio.Event()
        self._spawn(self._serve(asked, msg.reply))

    async def _on_cancel(self, msg: Msg) -> None:
        target = msgpack.unpackb(msg.data)["entries"]["request"]
        self.cancelled.append(target)
        if target in self._cancels:
            self._cancels[target].set()

    async def _serve(self, asked: Asked, reply: str) -> None:
        self.open_now += 1
        try:
            answers = await self._answers(asked)
            if answers is not None:
                await self._send_all(asked, reply, answers)
        finally:
            self.open_now -= 1
            del self._cancels[asked.id]

    async def _answers(self, asked: Asked) -> list[tuple[str, dict[str, Any]]] | None:
        """All answers of a request, the last one last; None: it says nothing."""
        faults = self.faults
        if faults.deaf:
            await self._cancels[asked.id].wait()
            return None
        if asked.type in ("Embed", "Rerank", "Generate"):
            if asked.type != "Generate" or not asked.entries.get("stream"):
                await self._opened(asked)
            if self._cancels[asked.id].is_set():
                return [error("cancelled", "permanent")]
            if faults.refuse:
                return [("Error", faults.refuse.pop(0))]
            if faults.always is not None:
                return [("Error", faults.always)]
            if asked.alias not in self.models:
                return [error("model_unknown", "permanent")]
        made: list[tuple[str, dict[str, Any]]] = getattr(self, f"_{asked.type.lower()}")(asked)
        return made

    async def _opened(self, asked: Asked) -> None:
        waits = [asyncio.ensure_future(each.wait()) for each in (self.gate, self._cancels[asked.id])]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _send_all(self, asked: Asked, reply: str, answers: list[tuple[str, dict[str, Any]]]) -> None:
        faults, streams = self.faults, bool(asked.entries.get("stream"))
        if faults.foreign:
            for kind, entries in answers:
                await self._send(secrets.token_bytes(16), reply, kind, entries)
        if faults.garbage is not None:
            await self._client.publish(reply, faults.garbage)
        for number, (kind, entries) in enumerate(answers):
            if faults.crash_after == number:
                await self._client.flush()
                await self.die()
                return
            if streams and faults.hold_after == number:
                self.gate.clear()
            if streams:
                await self._await_turn(asked, reply)
                if self._cancels[asked.id].is_set():
                    said = "".join(each["text"] for _, each in answers[:number])
                    await self._send(asked.id, reply, *text(said, "cancelled", 1, number))
                    return
            for _ in range(1 + faults.twice):
                await self._send(asked.id, reply, kind, entries, alive=streams)
        if faults.late:
            for kind, entries in [error("inference_failed", "transient"), *answers]:
                await self._send(asked.id, reply, kind, entries)

    async def _await_turn(self, asked: Asked, reply: str) -> None:
        """Streams say something once a second at least (section 2)."""
        while not self.gate.is_set() and not self._cancels[asked.id].is_set():
            await self._send(asked.id, reply, "Alive", {"state": "queued"}, alive=True)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._opened(asked), 1.0)

    async def _send(
        self, request: bytes, reply: str, kind: str, entries: Mapping[str, Any], *, alive: bool = False
    ) -> None:
        payload = self._sealed(f"Psyclone.Synapse.{kind}", {"request": request, **entries})
        await self._client.publish(reply, payload, reply=self._client.new_inbox() if alive else "")

    def _sealed(self, kind: str, entries: Mapping[str, Any]) -> bytes:
        packed: bytes = msgpack.packb(
            {
                "v": 1,
                "type": kind,
                "id": secrets.token_bytes(16),
                "created": time.time_ns() // 1000,
                "from": f"stranger@{self.node_id}",
                "entries": entries,
            }
        )
        return packed

    # -- sections 5 and 6

    def _embed(self, asked: Asked) -> list[tuple[str, dict[str, Any]]]:
        items = items_of(asked.entries)
        rows = [(vector_of(item) + [0.0] * self.faults.wide)[: self.faults.wide] for item in items]
        answers = []
        for first in range(0, len(rows), self.rows_an_answer):
            part = rows[first : first + self.rows_an_answer]
            data = b"".join(struct.pack(f"<{len(row)}f", *row) for row in part)
            entries = {"first": first, "n": len(part), "dims": self.faults.wide, "ntokens": 3 * len(part)}
            entries |= {"data": data[:-4] if self.faults.short else data}
            final = first + self.rows_an_answer >= len(rows)
            answers.append(("Vectors", {**entries, "final": int(final)}))
        if self.faults.skip is not None:
            del answers[self.faults.skip]
            if answers:
                answers[-1][1]["final"] = 1
        return answers

    def _rerank(self, asked: Asked) -> list[tuple[str, dict[str, Any]]]:
        scores = [score_of(asked.entries["query"], each) for each in asked.entries["documents"]]
        scores = scores[:-1] if self.faults.short else scores
        data = struct.pack(f"<{len(scores)}f", *scores)
        return [("Scores", {"n": len(scores), "data": data, "ntokens": 5 * len(scores)})]

    def _generate(self, asked: Asked) -> list[tuple[str, dict[str, Any]]]:
        entries = asked.entries
        if "messages" in entries:
            prompt = " ".join(turn["content"] for turn in entries["messages"])
        else:
            prompt = entries.get("prompt") or " ".join(f"t{each}" for each in ids_of(entries["data"]))
        words = tokens_of(prompt)
        cut = words[: entries.get("maxtokens", 128)]
        reason = "stop" if cut == words else "length"
        tokens = [("Token", {"index": place, "text": word}) for place, word in enumerate(cut)]
        if self.faults.skip is not None:
            del tokens[self.faults.skip]
        end = text("".join(cut), reason, len(words), len(cut))
        return [*tokens, end] if entries.get("stream") else [end]

    def _models(self, _: Asked) -> list[tuple[str, dict[str, Any]]]:
        return [("ModelList", {"models": [self._model(alias) for alias in self.models]})]

    def _model(self, alias: str) -> dict[str, Any]:
        return {
            "alias": alias,
            "digest": f"sha256:{'0' * 64}",
            "kind": self.models[alias],
            "dims": DIMS,
            "context": 512,
            "state": "loaded",
            "bytes": 1000,
            "weights": "f16",
            "lanes": 1,
        }

    def _health(self, _: Asked) -> list[tuple[str, dict[str, Any]]]:
        stamps = {
            "lanes": [{"lane": "l0", "agems": 12}],
            "models": [self._model(each) for each in self.models],
        }
        return [("HealthStamp", {"state": "ok", "queued": 0, "bytesinflight": 0, **stamps})]

    def _probe(self, asked: Asked) -> list[tuple[str, dict[str, Any]]]:
        return [("Probed", {"state": "ok" if asked.alias in self.models else "quarantined"})]

    def _ingest(self, asked: Asked) -> list[tuple[str, dict[str, Any]]]:
        if asked.entries["path"].endswith(".bad"):
            return [error("artifact_invalid", "permanent")]
        self.models[asked.alias] = "embed"
        steps = [("Progress", {"stage": "hash", "done": done, "total": 100}) for done in (0, 50, 100)]
        manifest = {"dims": DIMS, "config": asked.entries.get("config") or {}}
        digest = f"sha256:{'1' * 64}"
        return [*steps, ("Ingested", {"digest": digest, "alias": asked.alias, "manifest": manifest})]

    # -- its end

    async def _abort(self) -> None:
        """As a process that is killed: what was written goes out, nothing more."""
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()
        await self._client.close()

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def error(
    code: str, kind: str, message: str = "as it was told to", **more: Any
) -> tuple[str, dict[str, Any]]:
    """An Error answer (section 4)."""
    safe = {"safe_to_retry_same_request": 1, "message": message}
    return ("Error", {"code": code, "class": kind, **safe, **more})


def text(said: str, reason: str, read: int, made: int) -> tuple[str, dict[str, Any]]:
    """A Text answer."""
    return ("Text", {"text": said, "finishreason": reason, "nprompt": read, "ngen": made})


def ids_of(data: bytes) -> list[int]:
    """Token ids, i32."""
    return list(struct.unpack(f"<{len(data) // 4}i", data))


def items_of(entries: Mapping[str, Any]) -> list[Any]:
    """The texts, or the ids of each item."""
    if "texts" in entries:
        return list(entries["texts"])
    ids, items, at = ids_of(entries["data"]), [], 0
    for count in entries["counts"]:
        items.append(ids[at : at + count])
        at += count
    assert at == len(ids)
    return items


@asynccontextmanager
async def stranger(url: str, node_id: str = "alpha", **settings: Any) -> AsyncIterator[Stranger]:
    """A module in this process, started; ended at the end."""
    module = Stranger(url, node_id, **settings)
    await module.start()
    try:
        yield module
    finally:
        await module.stop()


@dataclass
class Lone:
    """A module in a process of its own."""

    process: asyncio.subprocess.Process

    async def kill(self) -> None:
        """kill -9."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def lone_stranger(url: str, node_id: str, **settings: Any) -> AsyncIterator[Lone]:
    """A module as a process; `settings` may hold `faults`, and `gate`: closed, every request waits."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "support.stranger_module", url, node_id, json.dumps(settings)),
        cwd=Path(__file__).parents[1],
        stdout=asyncio.subprocess.PIPE,
    )
    lone = Lone(process)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            assert await process.stdout.readline() == b"ready\n"
        yield lone
    finally:
        await lone.kill()


async def _main(url: str, node_id: str, settings: dict[str, Any]) -> None:
    faults, gate = settings.pop("faults", {}), settings.pop("gate", "open")
    module = Stranger(url, node_id, **settings)
    for name, value in faults.items():
        setattr(module.faults, name, value)
    if gate == "closed":
        module.gate.clear()

    async def die() -> None:
        os.kill(os.getpid(), 9)

    module.die = die
    await module.start()
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
