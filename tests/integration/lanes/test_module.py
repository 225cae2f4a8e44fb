"""A whole module whose workers are elsewhere: `--lanes=bus`, with the lane hosts of two other nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bakemesh.protocol.inference.answers import Text, Token, Vectors
from bakemesh.protocol.inference.requests import Embed, Generate
from support.lanehosts import lanehost
from support.nats import server
from support.synapse import calling, synapse
from support.waiting import eventually

MODELS = {
    "mini": {"kind": "embed", "dims": 16, "context": 4096},
    "chat": {"kind": "generate", "context": 4096},
}


async def test_callers_are_answered_by_lanes_of_other_nodes_also_when_one_dies(tmp_path: Path) -> None:
    config = {"mini": {"slow_ms": "5"}}
    async with (
        server(tmp_path) as nats,
        lanehost(tmp_path, nats.url, "gamma") as host,
        lanehost(tmp_path, nats.url, "delta"),
        synapse(tmp_path, nats.url, MODELS, "--lanes=bus", config=config),
        calling(nats.url) as caller,
    ):
        assert (await caller.ask("Embed", "mini", Embed(texts=["hello"]))).last.n == 1
        asked = await caller.ask("Generate", "chat", Generate(prompt="ab", maxtokens=5, stream=True))
        assert [type(each) for each in asked.messages] == [Token, Token, Text]

        async def more(number: int) -> None:
            asked = await caller.ask("Embed", "mini", Embed(texts=[f"text {number}"] * 8))
            assert isinstance(asked.last, Vectors), asked.last

        load = [asyncio.create_task(more(number)) for number in range(60)]
        await eventually(lambda: sum(task.done() for task in load) > 10, what="some answers")
        await host.kill9()
        await asyncio.gather(*load)  # those that were there are run once more on the other node
        assert all(each.ends() == 1 for each in caller.asked)
