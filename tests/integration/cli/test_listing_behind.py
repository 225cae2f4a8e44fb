"""A hub's copy of the Status streams may be behind; the node's own stream is believed."""

from __future__ import annotations

from pathlib import Path

from bakemesh.cli.listing import bakes
from bakemesh.protocol import storage, subjects
from bakemesh.protocol.builder.messages import BakeStatus, BakeSuccess
from support.nats import MESH, connect, server
from support.waiting import eventually


def said(cls: type[BakeStatus], serial: int) -> BakeStatus:
    kind = "interim" if cls is BakeStatus else "outcome"
    return cls(
        kind=kind,
        serial=serial,
        pct=50,
        summary="as it is",
        supervisor="boss",
        recipe="r",
        recipe_id="boss-r-1",
        node="alpha",
        node_id="alpha",
    )


async def test_a_bake_whose_end_the_hub_does_not_have_yet_is_listed_as_ended(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        own, hub = storage.status_stream(MESH, "alpha"), storage.hub_status_stream(MESH)
        wanted = [
            subjects.pattern(MESH, kind, node_id="alpha") for kind in (BakeStatus.TYPE, BakeSuccess.TYPE)
        ]
        await bus.api.create_stream({"name": own, "subjects": wanted, "storage": "memory"})
        source = {"name": own, "filter_subject": wanted[0]}  # it never gets what ends the bake
        await bus.api.create_stream({"name": hub, "sources": [source], "storage": "memory"})
        for cls, serial in ((BakeStatus, 1), (BakeSuccess, 2)):
            subject = subjects.build(MESH, "alpha", "boss", "boss-r-1", cls.TYPE)
            await bus.publish(subject, said(cls, serial))

        async def copied() -> bool:
            return bool((await bus.api.stream_info(hub))["state"]["messages"])

        await eventually(copied)
        (row,) = await bakes(bus, ["alpha"], limit=None)
        assert (row.state, row.key.recipe_id, row.summary) == ("succeeded", "boss-r-1", "as it is")
