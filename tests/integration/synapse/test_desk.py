"""The desk alone, on a real bus: one end a request whoever ends it how often, and nothing for telemetry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

from bakemesh.bus import Bus
from bakemesh.bus.server_config import MAX_PAYLOAD
from bakemesh.protocol.inference.answers import Text, Token
from bakemesh.protocol.inference.errors import Code, error_of
from bakemesh.protocol.inference.requests import Generate
from bakemesh.protocol.subjects import SYNAPSE, pattern
from bakemesh.synapse.answering.desk import Desk
from bakemesh.synapse.answering.endpoint import Endpoint
from bakemesh.synapse.answering.request import Request
from bakemesh.telemetry import Telemetry
from support.nats import connect, server
from support.synapse import Asked, Caller, calling
from support.waiting import eventually


class Untouchable(Telemetry):
    """Telemetry that is off: who asks more of it than whether it is on, fails."""

    def _touched(self, *_: object, **__: object) -> NoReturn:
        raise AssertionError("telemetry that is off was asked for something")

    span = count = record = watch = _touched  # type: ignore[assignment]


class Place:
    """A desk that takes requests of one verb; `take` says what is done about each."""

    def __init__(self, bus: Bus) -> None:
        self.desk = Desk(bus, Untouchable())
        self.endpoint = Endpoint("Generate", pattern(bus.mesh, f"{SYNAPSE}.Generate", node_id="alpha"))
        self.requests: list[Request] = []
        self.take: Callable[[Request], None] = lambda request: None

    def taken(self, delivery: Any) -> None:
        request = self.desk.open(self.endpoint, delivery)
        if request is not None:
            self.requests.append(request)
            self.take(request)


@asynccontextmanager
async def place(folder: Path) -> AsyncIterator[tuple[Place, Caller]]:
    async with (
        server(folder) as nats,
        connect(nats.url, name="synapse", node_id="alpha") as bus,
        calling(nats.url) as caller,
    ):
        made = Place(bus)
        subscription = await bus.subscribe(made.endpoint.pattern, made.taken)
        try:
            yield made, caller
        finally:
            await subscription.stop()
            await made.desk.close()


def text(request: Request, said: str) -> Text:
    return Text(request=request.id, text=said, finishreason="stop", nprompt=1, ngen=1)


async def ask(caller: Caller, number: int = 1) -> list[Asked]:
    return [await caller.send("Generate", "chat", Generate(prompt="x")) for _ in range(number)]


async def all_ended(some: list[Asked]) -> None:
    for each in some:
        async with asyncio.timeout(20):
            await each.ended.wait()


async def test_the_first_end_counts_and_nothing_comes_after_it(tmp_path: Path) -> None:
    def take(request: Request) -> None:
        request.part(Token(request=request.id, index=0, text="a"))
        request.end(text(request, "first"))
        request.end(text(request, "second"))
        request.fail(error_of(Code.OOM, "third"))
        request.part(Token(request=request.id, index=1, text="b"))
        request.cancel()

    async with place(tmp_path) as (made, caller):
        made.take = take
        some = await ask(caller, 5)
        await all_ended(some)
        await caller.bus.link.barrier()
        assert [[type(each).__name__ for each in asked.messages] for asked in some] == [["Token", "Text"]] * 5
        assert {asked.last.text for asked in some} == {"first"}
        assert (len(made.desk), made.desk.bytes_inflight) == (0, 0)
        assert (made.endpoint.requests, made.endpoint.errors) == (5, 0)


async def test_an_answer_that_fits_nowhere_is_an_error_and_not_nothing(tmp_path: Path) -> None:
    async with place(tmp_path) as (made, caller):
        made.take = lambda request: request.end(text(request, "x" * (MAX_PAYLOAD + 1)))
        (asked,) = await ask(caller)
        await all_ended([asked])
        assert (asked.last.code, asked.ends()) == ("bad_request", 1)
        assert (len(made.desk), made.endpoint.errors) == (0, 1)


async def test_work_that_raises_or_forgets_is_answered_all_the_same(tmp_path: Path) -> None:
    async def forgets() -> None:
        pass

    async def breaks() -> None:
        raise ZeroDivisionError("a secret")

    async with place(tmp_path) as (made, caller):
        for work in (forgets, breaks):
            made.take = lambda request, work=work: made.desk.run(request, work())
            (asked,) = await ask(caller)
            await all_ended([asked])
            assert (asked.last.code, asked.ends()) == ("inference_failed", 1)
            assert "secret" not in asked.last.message


async def test_a_cancel_is_heard_once_and_by_who_comes_late_too(tmp_path: Path) -> None:
    heard: list[str] = []
    async with place(tmp_path) as (made, caller):
        (asked,) = await ask(caller)
        await eventually(lambda: made.requests, what="the request")
        (request,) = made.requests
        request.on_cancel(lambda: heard.append("before"))
        made.desk.cancel("another", asked.id)
        assert heard == []
        made.desk.cancel("caller", asked.id)
        made.desk.cancel("caller", asked.id)
        request.on_cancel(lambda: heard.append("after"))
        assert heard == ["before", "after"]
        request.end(text(request, "what there is"))
        made.desk.cancel("caller", asked.id)
        await all_ended([asked])
        assert asked.ends() == 1


async def test_what_is_left_at_the_end_is_told(tmp_path: Path) -> None:
    never = asyncio.Event()

    async def hangs() -> None:
        await never.wait()

    async with place(tmp_path) as (made, caller):
        made.take = lambda request: made.desk.run(request, hangs())
        some = await ask(caller, 3)
        await eventually(lambda: len(made.requests) == 3, what="the requests")
        await made.desk.drain(0.05)
        late = await ask(caller)
        await all_ended(late)
        assert late[0].last.code == "module_restarted"
        assert len(made.desk) == 3
        await made.desk.close()
        await all_ended(some)
        assert {each.last.code for each in some} == {"module_restarted"}
        assert [each.ends() for each in some] == [1] * 3
        assert (len(made.desk), made.desk.bytes_inflight) == (0, 0)
