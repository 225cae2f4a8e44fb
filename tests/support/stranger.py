"""A Supervisor by somebody who has protocol/builder-v1.md, a NATS client and msgpack, and nothing of ours.

Section numbers are that document's. What this program needs and the text does not say is a fault of the text.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgpack
import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

OUTCOMES = ("Success", "Failed", "Paused", "Cancelled", "Restarted")
SUBJECT = re.compile(
    r"([\w-]{1,32})\.([\w-]{1,24})\.([\w-]{1,64})\.([\w-]{1,128})\.([\w-]+(?:\.[\w-]+)*)", re.ASCII
)
ANSWER_S = 20.0
BAKE_S = 60.0


class JetStreamRefused(Exception):
    """Raised when JetStream answers with an error; `code` is its err_code."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error))
        self.code = error.get("err_code")


class Lost(Exception):
    """Raised when a bake's Status or Data does not arrive whole (sections 11 and 12)."""


@dataclass
class Sent:
    """A recipe that was stored: its subject's beginning, its bytes, and where its Result comes."""

    subject: str
    identity: dict[str, str]
    payload: bytes
    headers: dict[str, str]
    results: asyncio.Queue[dict[str, Any]]
    live: list[dict[str, Any]]

    async def result(self) -> dict[str, Any]:
        """The next Result."""
        return await asyncio.wait_for(self.results.get(), ANSWER_S)


class Stranger:
    """One Supervisor on one connection."""

    def __init__(self, client: Client, name: str, mesh: str = "psyclone") -> None:
        self.client, self.name, self.mesh = client, name, mesh

    # -- section 4 ------------------------------------------------------------------------------------------

    def pack(self, kind: str, entries: dict[str, Any]) -> tuple[bytes, str]:
        """The payload of a message and its Nats-Msg-Id."""
        id_ = os.urandom(16)
        envelope = {
            "v": 1,
            "type": kind,
            "id": id_,
            "created": time.time_ns() // 1000,
            "from": f"{self.name}@stranger",
            "entries": entries,
        }
        return msgpack.packb(envelope), id_.hex()

    # -- section 21, steps 2 and 3 --------------------------------------------------------------------------

    async def api(
        self, subject: str, body: object = b"", headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """A request that JetStream answers with JSON."""
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = json.loads(
            (await self.client.request(subject, payload, timeout=ANSWER_S, headers=headers)).data
        )
        if "error" in answer:
            raise JetStreamRefused(answer["error"])
        return dict(answer)

    async def mint(self) -> int:
        """The next N of this Supervisor."""
        key = f"$KV.{self.mesh}-ids.{self.name}"
        while True:
            try:
                found = await self.api(f"$JS.API.STREAM.MSG.GET.KV_{self.mesh}-ids", {"last_by_subj": key})
                seq, last = found["message"]["seq"], int(base64.b64decode(found["message"]["data"]))
            except JetStreamRefused as refused:
                if refused.code != 10037:
                    raise
                seq, last = 0, 0
            try:
                headers = {"Nats-Expected-Last-Subject-Sequence": str(seq)}
                await self.api(key, str(last + 1).encode(), headers)
            except JetStreamRefused as refused:
                if refused.code != 10071:
                    raise
                continue
            return last + 1

    async def nodes(self) -> dict[str, dict[str, Any]]:
        """Each node's last SystemStatus by NodeID."""
        stream, keys = f"KV_{self.mesh}-nodes", f"$KV.{self.mesh}-nodes."
        info = await self.api(f"$JS.API.STREAM.INFO.{stream}", {"subjects_filter": f"{keys}*"})
        nodes = {}
        for subject in info["state"].get("subjects") or {}:
            found = await self.api(f"$JS.API.STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
            envelope = msgpack.unpackb(base64.b64decode(found["message"]["data"]))
            nodes[subject.removeprefix(keys)] = envelope["entries"]
        return nodes

    # -- steps 4, 5 and 7 -----------------------------------------------------------------------------------

    async def bake(self, recipe: str, xml: str, node_id: str, node: str, **more: Any) -> Sent:
        """Mints, listens, and stores a recipe."""
        recipe_id = f"{self.name}-{recipe}-{await self.mint()}"
        identity = {
            "Supervisor": self.name,
            "Recipe": recipe,
            "RecipeID": recipe_id,
            "Node": node,
            "NodeID": node_id,
        }
        subject = f"{self.mesh}.{node_id}.{self.name}.{recipe_id}.Psyclone.Builder."
        payload, msg_id = self.pack("Psyclone.Builder.Recipe", {**identity, "RecipeSpec": xml, **more})
        inbox = f"_INBOX.{self.name}.result-{secrets.token_hex(8)}"
        headers = {"Nats-Msg-Id": msg_id, "Bakemesh-Reply": inbox}
        sent = Sent(subject, identity, payload, headers, asyncio.Queue(), [])

        async def heard(message: Msg) -> None:
            if (entries := taken(message, stored=False)) is not None:
                sent.live.append(entries)

        async def answered(message: Msg) -> None:
            sent.results.put_nowait(msgpack.unpackb(message.data)["entries"])

        for kind in ("Status", *OUTCOMES):
            await self.client.subscribe(
                f"{self.mesh}.*.{self.name}.{recipe_id}.Psyclone.Builder.Bake.{kind}", cb=heard
            )
        await self.client.subscribe(inbox, cb=answered)
        await self.store(sent)
        return sent

    async def store(self, sent: Sent) -> dict[str, Any]:
        """Publishes the recipe's bytes; again, where one is not sure."""
        return await self.api(f"{sent.subject}Recipe", sent.payload, sent.headers)

    async def push(self, sent: Sent, request: str, data: bytes) -> dict[str, Any]:
        """Answers a request for data and returns the Result."""
        entries = {**sent.identity, "request": request, "data": data}
        payload, msg_id = self.pack("Psyclone.Builder.BakeData", entries)
        await self.api(f"{sent.subject}BakeData", payload, {**sent.headers, "Nats-Msg-Id": msg_id})
        return await sent.result()

    async def control(self, sent: Sent, verb: str, ctrlseq: int) -> dict[str, Any]:
        """Steers and returns the Result."""
        kind = f"Psyclone.Builder.BakeControl.{verb}"
        payload, _ = self.pack(kind, {**sent.identity, "ctrlseq": ctrlseq, "issuedby": self.name})
        answer = await self.client.request(f"{sent.subject}BakeControl.{verb}", payload, timeout=ANSWER_S)
        return dict(msgpack.unpackb(answer.data)["entries"])

    # -- step 6 ---------------------------------------------------------------------------------------------

    async def read(self, stream: str, subject: str) -> AsyncIterator[dict[str, Any]]:
        """The entries of what is stored under a subject, from the beginning, for ever."""
        name = secrets.token_hex(16)
        config = {
            "name": name,
            "filter_subject": subject,
            "deliver_policy": "all",
            "ack_policy": "none",
            "replay_policy": "instant",
            "inactive_threshold": 15_000_000_000,
            "mem_storage": True,
            "num_replicas": 1,
        }
        create = f"$JS.API.CONSUMER.CREATE.{stream}.{name}.{subject}"
        await self.api(create, {"stream_name": stream, "config": config})
        inbox = f"_INBOX.{self.name}.{secrets.token_hex(8)}"
        replies = await self.client.subscribe(inbox)
        ask = json.dumps({"batch": 256, "expires": 10_000_000_000, "idle_heartbeat": 3_000_000_000}).encode()
        try:
            while True:
                await self.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", ask, reply=inbox)
                for _ in range(256):
                    message = await replies.next_msg(timeout=ANSWER_S)
                    status = (message.headers or {}).get("Status")
                    if status == "100":
                        continue
                    if status is not None:
                        break
                    if (entries := taken(message, stored=True)) is not None:
                        yield entries
        finally:
            await replies.unsubscribe()

    async def statuses(self, sent: Sent) -> list[dict[str, Any]]:
        """Every Status and outcome up to the terminal, each serial once, in order."""
        seen: dict[int, dict[str, Any]] = {}
        stream = f"{self.mesh}-status-{sent.identity['NodeID']}"
        try:
            async with asyncio.timeout(BAKE_S):
                async for entries in self.read(stream, f"{sent.subject}Bake.*"):
                    seen.setdefault(entries["serial"], entries)
                    if entries["final"] == 1:
                        break
        except TimeoutError:
            raise Lost(f"no terminal in {BAKE_S:g} s; stored: {seen}; live: {sent.live}") from None
        return [seen[serial] for serial in sorted(seen)]

    async def data(self, sent: Sent, lastseq: int) -> list[dict[str, Any]]:
        """Every chunk up to `lastseq`, guarded (section 12). Raises Lost."""
        chunks: list[dict[str, Any]] = []
        if lastseq == 0:
            return chunks
        stream = f"{self.mesh}-data-{sent.identity['NodeID']}"
        try:
            async with asyncio.timeout(BAKE_S):
                async for entries in self.read(stream, f"{sent.subject}Bake.Data"):
                    if chunks and entries["seq"] == len(chunks):
                        continue
                    if entries["seq"] != len(chunks) + 1:
                        raise Lost(f"seq {entries['seq']} after {len(chunks)}")
                    chunks.append(entries)
                    if len(chunks) == lastseq:
                        break
        except TimeoutError:
            raise Lost(f"{len(chunks)} chunks of {lastseq} in {BAKE_S:g} s") from None
        return chunks

    # -- step 8 ---------------------------------------------------------------------------------------------

    async def find(self, recipe_id: str) -> tuple[str, bool] | None:
        """The NodeID of a bake, and whether its recipe still waits in the inbox; None: in neither, now."""
        for stream, kind in ((f"{self.mesh}-status", "Bake.*"), (f"{self.mesh}-inbox", "Recipe")):
            wanted = f"{self.mesh}.*.{self.name}.{recipe_id}.Psyclone.Builder.{kind}"
            info = await self.api(f"$JS.API.STREAM.INFO.{stream}", {"subjects_filter": wanted})
            for subject in info["state"].get("subjects") or {}:
                return subject.split(".")[1], kind == "Recipe"
        return None


def taken(message: Msg, *, stored: bool) -> dict[str, Any] | None:
    """The entries, their keys as section 14 writes them; None for what section 5 or 6 drops."""
    parts = SUBJECT.fullmatch(message.subject)
    headers = message.headers or {}
    if parts is None or "Nats-Stream" in headers or "Nats-Subject" in headers:
        return None
    try:
        envelope = msgpack.unpackb(message.data)
        entries: dict[str, Any] = envelope["entries"]
        if envelope["v"] != 1 or envelope["type"] != parts[5]:
            return None
        same = (entries["NodeID"], entries["Supervisor"], entries["RecipeID"]) == parts.group(2, 3, 4)
    except (ValueError, KeyError, TypeError, msgpack.UnpackException):
        return None
    return entries if same or not stored else None


@asynccontextmanager
async def stranger(url: str, name: str) -> AsyncIterator[Stranger]:
    """Step 1: connected, with an inbox of its own."""
    client = await nats.connect(url, inbox_prefix=f"_INBOX.{name}".encode(), name=name)
    try:
        yield Stranger(client, name)
    finally:
        await client.drain()
