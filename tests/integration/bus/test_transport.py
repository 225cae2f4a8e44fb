"""How frames go out: the first of a turn of the loop at once, the others together; always in their order."""

from __future__ import annotations

import asyncio
from pathlib import Path

from nats.aio.msg import Msg

from bakemesh.bus.transport import WideTransport
from support.nats import TcpLink, connect, server
from support.waiting import eventually

LARGE = b"x" * 300_000  # more than the system takes at a time


async def test_one_alone_does_not_wait_and_many_keep_their_order(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as one, connect(nats.url) as other:
        came: list[int] = []

        def took(msg: Msg) -> None:
            came.append(int(msg.data.partition(b" ")[0]))

        await other.link.listen("order", took)
        client = one.link._client
        await eventually(lambda: not client._pending)
        one.link.post("order", b"1")
        assert not client._pending, "it is on its way before anything is awaited"
        one.link.post("order", b"2")
        assert client._pending, "a second one of the same turn goes with those that follow"
        number = 2
        for turn in range(200):
            for _ in range(turn % 4):
                number += 1
                one.link.post("order", b"%d %b" % (number, LARGE if number % 17 == 0 else b""))
            if turn % 3 == 0:
                await asyncio.sleep(0)
        await eventually(lambda: len(came) == number)
        assert came == list(range(1, number + 1))


async def test_a_link_that_comes_back_has_the_same_kind_of_transport(tmp_path: Path) -> None:
    async with server(tmp_path) as nats:
        between = TcpLink(("127.0.0.1", nats.config.port))
        await between.start()
        try:
            async with connect(between.url) as bus:
                assert type(bus.link._client._transport) is WideTransport
                await between.cut()
                await eventually(lambda: not bus.connected)
                await between.heal()
                await bus.wait_connected(10)
                assert type(bus.link._client._transport) is WideTransport
                await bus.link.barrier()
        finally:
            await between.close()
