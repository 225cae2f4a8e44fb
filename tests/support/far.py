"""A Supervisor on some host, run by a test: sends a recipe, follows it to its end, and says what it saw.

    python far.py '{"name": "boss", "nats": ["nats://…"], "node_id": "b", "recipe": "<recipe …>"}'

`attach` in place of `recipe`: a RecipeID. `state`: a folder, so that it mints while the hub is away. `audit`
(`leaf` or `shared`): ask the streams themselves, past the SDK, which drops what comes twice. `steer`: Pause
and Start it as it begins. A line of JSON for each thing that happens.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from bakemesh.bus.reader import read
from bakemesh.protocol import storage, subjects
from bakemesh.protocol.builder.codes import Verb
from bakemesh.protocol.builder.messages import BakeData, BakeStatus
from bakemesh.protocol.message import decode
from bakemesh.supervisor import Bake, Supervisor

EVERY = 50
LATE_S = 60.0


def tell(event: str, **facts: object) -> None:
    """One line."""
    print(json.dumps({"event": event, **facts}), flush=True)


async def follow_status(bake: Bake) -> list[int]:
    """The serials, in the order of arrival."""
    serials = []
    async for status in bake.status():
        serials.append(status.serial)
        tell("status", serial=status.serial, kind=status.kind, summary=status.summary)
    return serials


async def follow_data(bake: Bake) -> dict[str, Any]:
    """Every chunk of stdout."""
    digest, chunks, size = hashlib.sha256(), 0, 0
    async for chunk in bake.data():
        digest.update(chunk.data)
        chunks, size = chunks + 1, size + len(chunk.data)
        if chunks % EVERY == 1:
            tell("data", chunks=chunks, size=size)
    return {"chunks": chunks, "size": size, "sha256": digest.hexdigest()}


async def audit(supervisor: Supervisor, bake: Bake, leaf: bool) -> dict[str, Any]:
    """What the streams on the hub hold of this bake, once its end is there: the hub's copy comes later."""
    async with asyncio.timeout(LATE_S):
        while True:
            found = await stored(supervisor, bake, leaf)
            if bake.latest is not None and bake.latest.serial in found["serials"] and found["seqs_to"]:
                return found
            await asyncio.sleep(0.2)


async def stored(supervisor: Supervisor, bake: Bake, leaf: bool) -> dict[str, Any]:
    """What lies there now."""
    bus, mesh, node = supervisor.bus, supervisor.bus.mesh, bake.node_id
    prefix = f"{mesh}.{node}.{supervisor.name}.{bake.recipe_id}.{subjects.BAKE}"
    serials, seqs = [], []
    async for one in read(bus, storage.hub_status_stream(mesh), f"{prefix}.*", end="last", api=bus.hub_api):
        message = decode(one.payload).message
        assert isinstance(message, BakeStatus)
        serials.append(message.serial)
    stream = storage.hub_data_stream(mesh) if leaf else storage.data_stream(mesh, node)
    async for one in read(bus, stream, f"{prefix}.Data", end="last", api=bus.hub_api):
        message = decode(one.payload).message
        assert isinstance(message, BakeData)
        seqs.append(message.seq)
    return {
        "serials": serials,
        "seqs_from": min(seqs, default=0),
        "seqs_to": max(seqs, default=0),
        "seqs_in_order": seqs == sorted(set(seqs)),
    }


async def main(order: dict[str, Any]) -> None:
    """Carries the order out."""
    state = Path(order["state"]) if "state" in order else None
    async with Supervisor.connect(nats=order["nats"], name=order["name"], state=state) as supervisor:
        if "attach" in order:
            bake = await supervisor.attach(order["attach"], node_id=order["node_id"])
        else:
            bake = await supervisor.bake(order["recipe"], node_id=order["node_id"])
            if bake.waiting:
                tell("waiting")
                await bake.accepted()
        tell("accepted", recipe_id=bake.recipe_id, node_id=bake.node_id)
        for verb in (Verb.PAUSE, Verb.START) if order.get("steer") else ():
            result = await bake.control(verb)
            tell("result", verb=result.verb, accepted=bool(result.accepted), node_id=result.node_id)
        serials, data = await asyncio.gather(follow_status(bake), follow_data(bake))
        outcome = await bake.outcome()
        tell("followed", outcome=outcome.outcome, serials=serials, **data)
        if "audit" in order:
            tell("audit", **await audit(supervisor, bake, order["audit"] == "leaf"))
        tell("done")


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
