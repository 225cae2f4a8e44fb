"""A request with many answers: all in order on one shared inbox, none after `close`, each end is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgpack
import pytest
from nats.aio.msg import Msg

from bakemesh.bus.errors import (
    AccessDenied,
    BusClosed,
    BusError,
    MessageTooLarge,
    NoResponder,
    ReplyRefused,
    ServiceFailed,
)
from bakemesh.protocol.builder.messages import Cancel, Result
from bakemesh.protocol.message import Received, encode
from bakemesh.protocol.subjects import build
from support.nats import MESH, connect, guarded, server
from support.waiting import eventually

SUBJECT = build(MESH, "alpha", "nightly", "nightly-r-1", Cancel.TYPE)
CANCEL = Cancel(
    supervisor="nightly",
    recipe="r",
    recipe_id="nightly-r-1",
    node="A",
    node_id="alpha",
    ctrlseq=1,
    issuedby="nightly",
)


class Heard:
    def __init__(self) -> None:
        self.answers: list[str] = []
        self.errors: list[BusError] = []

    def take(self, received: Received) -> None:
        assert isinstance(received.message, Result)
        self.answers.append(received.message.summary)

    def failed(self, error: BusError) -> None:
        self.errors.append(error)


def answer(summary: str) -> bytes:
    result = Result(verb="Cancel", accepted=True, code="ok", summary=summary)
    return encode(result, id=bytes(16), created=1, sender="builder@alpha")


async def test_every_answer_in_order_to_its_own_request_and_none_after_close(tmp_path: Path) -> None:
    asked: list[Msg] = []
    async with server(tmp_path) as nats, connect(nats.url) as bus, connect(nats.url) as other:
        await other.link.listen(SUBJECT, asked.append)
        first, second = Heard(), Heard()
        pair = [bus.conversation(SUBJECT, CANCEL, each.take, each.failed) for each in (first, second)]
        for each in pair:
            await each.send()
        await eventually(lambda: len(asked) == 2)
        assert [msgpack.unpackb(msg.data)["id"] for msg in asked] == [each.id for each in pair]
        assert len({msg.reply for msg in asked}) == 2
        for n in range(3):
            for msg, who in zip(asked, "ab", strict=True):
                await other.link.send(msg.reply, answer(f"{who}{n}"))
        await eventually(lambda: len(second.answers) == 3)
        assert (first.answers, second.answers) == (["a0", "a1", "a2"], ["b0", "b1", "b2"])
        pair[0].close()
        pair[0].close()
        for msg in asked:
            await other.link.send(msg.reply, answer("late"))
        await eventually(lambda: "late" in second.answers)
        assert "late" not in first.answers
        assert not first.errors + second.errors


async def test_what_is_no_answer_is_a_typed_error(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        heard = Heard()

        async def ask() -> None:
            await bus.conversation(SUBJECT, CANCEL, heard.take, heard.failed).send()

        await ask()
        await eventually(lambda: heard.errors)
        assert isinstance(heard.errors.pop(), NoResponder)

        replies: list[tuple[bytes, dict[str, str] | None]] = [
            (b"rubbish", None),
            (b"", {"Nats-Service-Error-Code": "500", "Nats-Service-Error": "down"}),
        ]

        async def serve(msg: Msg) -> None:
            await bus.link.send(msg.reply, *_with_headers(replies.pop(0)))

        await bus.link.listen(SUBJECT, serve)
        for kind in (ReplyRefused, ServiceFailed):
            await ask()
            await eventually(lambda: heard.errors)
            assert isinstance(heard.errors.pop(), kind)
        huge = CANCEL.model_copy(update={"issuedby": "x" * (bus.max_payload + 1)})
        with pytest.raises(MessageTooLarge):
            await bus.conversation(SUBJECT, huge, heard.take, heard.failed).send()


def _with_headers(reply: tuple[bytes, dict[str, str] | None]) -> tuple[Any, ...]:
    return (reply[0], "", reply[1])


async def test_a_denial_and_the_end_of_the_connection_are_told(tmp_path: Path) -> None:
    heard = Heard()
    async with guarded(tmp_path) as mesh, mesh.connect("board") as bus:
        await bus.conversation(SUBJECT, CANCEL, heard.take, heard.failed).send()
        await eventually(lambda: heard.errors)
        assert isinstance(heard.errors.pop(), AccessDenied)
        bus.conversation(SUBJECT, CANCEL, heard.take, heard.failed)
        await bus.close()
        assert isinstance(heard.errors.pop(), BusClosed)
