"""Leaves that come back: makes the hub draw from them again at once.

The server asks a source that is gone ever more rarely (10 s, 20 s, … two minutes), and goes on waiting when
its leaf is back. A source that is taken out of the list and put in again is asked at once, so that is done
once the leaf's Builder is heard while its source says nothing. Between the two the hub's copy stands still:
where it ends is read there, and the source is put in from the next sequence on. So nothing is lost and
nothing comes twice, even where all that the hub had of the node was purged.

To be used by the holder of the source lists alone. Left out: which sources there should be (`hub`). If the
work is cut off in the middle, `hub` puts the source in again, and the server looks up where its copy ends.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from bakemesh.bus.connection import Bus
from bakemesh.bus.errors import NotFound
from bakemesh.protocol import storage, subjects
from bakemesh.protocol.numerals import whole

log = logging.getLogger(__name__)

SILENT_NS = 4_000_000_000  # a source that is well beats every second, also where it has nothing to give
FIRST_PAUSE_S, LONGEST_PAUSE_S = 4.0, 60.0
NO_MESSAGE = 10037
SOURCE = "Nats-Stream-Source"


def silent(info: Mapping[str, Any]) -> set[str]:
    """The domains of the leaves from which a sourcing stream (STREAM.INFO) has heard nothing for long."""
    return {
        domain
        for each in info.get("sources") or ()
        if (domain := domain_of(each)) and not 0 <= int(each.get("active", -1)) < SILENT_NS
    }


def domain_of(source: Mapping[str, Any]) -> str | None:
    """The JetStream domain of a source on a leaf; None for one on the hub's own servers."""
    api = str((source.get("external") or {}).get("api", ""))
    parts = api.split(".")
    return parts[1] if len(parts) == 3 and parts[0] == "$JS" else None


def arrived(source: Mapping[str, Any] | None, newest: Mapping[str, str], stream: str) -> int:
    """The sequence of `stream` up to which the hub has, or had, it: what the server says of the source, or
    the origin of the newest message there (`newest`: its headers), whichever is later.
    """
    words = newest.get(SOURCE, "").split()
    named = len(words) > 1 and words[0].partition(":")[0] == stream
    return max(int((source or {}).get("seq") or 0), (whole(words[1]) or 0) if named else 0)


class Returning:
    """Which leaves are silent, and what was done about it. `heard` is told of every node's sign of life."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._silent: dict[str, set[str]] = {}  # by the hub's stream
        self._heard: set[str] = set()
        self._next: dict[tuple[str, str], tuple[float, float]] = {}  # when again, and the pause after that

    def heard(self, node_id: str) -> bool:
        """A node's Builder spoke; whether its source was silent, so that `renew` is due."""
        if any(node_id in there for there in self._silent.values()):
            self._heard.add(node_id)
            return True
        return False

    async def renew(self, now: float) -> list[str]:
        """Looks, and puts in again the sources that are silent though their leaf was heard since. Gives those
        nodes. `now`: monotonic seconds. Raises what the API raises.
        """
        renewed = []
        mesh = self._bus.mesh
        for hub_stream, own in (
            (storage.hub_status_stream(mesh), storage.status_stream),
            (storage.hub_data_stream(mesh), storage.data_stream),
        ):
            try:
                info = await self._bus.hub_api.stream_info(hub_stream)
            except NotFound:
                continue
            there = self._silent[hub_stream] = silent(info)
            for at in [at for at in self._next if at[0] == hub_stream and at[1] not in there]:
                del self._next[at]
            for node_id in sorted(there & self._heard):
                due, pause = self._next.get((hub_stream, node_id), (0.0, FIRST_PAUSE_S))
                if now >= due:
                    self._next[hub_stream, node_id] = (now + pause, min(2 * pause, LONGEST_PAUSE_S))
                    await put_in_again(self._bus, hub_stream, own(mesh, node_id), node_id)
                    renewed.append(node_id)
        self._heard.clear()
        return renewed


async def put_in_again(bus: Bus, hub_stream: str, stream: str, node_id: str) -> int | None:
    """Takes a leaf's source out of the list of `hub_stream` and puts it in again from the message after
    the last one that the hub has; gives that sequence, None where it is no source. Raises what the API does.
    """
    api = bus.hub_api
    info = await api.stream_info(hub_stream)
    config = info["config"]
    sources: list[dict[str, Any]] = config.get("sources") or []
    ours = [each for each in sources if each["name"] == stream and domain_of(each) == node_id]
    if not ours:
        return None
    others = [each for each in sources if each not in ours]
    await api.update_stream(config | {"sources": others or [_stand_in(bus.mesh)]})
    newest = await _newest(bus, hub_stream, node_id)
    told = next((each for each in info["sources"] if each["name"] == stream), None)
    start = arrived(told, newest, stream) + 1
    again = [each | {"opt_start_seq": start} if each in ours else each for each in sources]
    await api.update_stream(config | {"sources": again})
    log.info("%s draws from %s again, from %d on", hub_stream, stream, start)
    return start


async def _newest(bus: Bus, hub_stream: str, node_id: str) -> Mapping[str, str]:
    wanted = subjects.pattern(bus.mesh, ">", node_id=node_id)
    try:
        return (await bus.hub_api.get_message(hub_stream, last_of=wanted)).headers
    except NotFound as error:
        if error.err_code != NO_MESSAGE:
            raise
        return {}


def _stand_in(mesh: str) -> dict[str, Any]:
    """A source that gives nothing: a stream without any would take its own name as a subject."""
    bucket = storage.cohorts_bucket(mesh)
    return {"name": storage.bucket_stream(bucket), "filter_subject": storage.bucket_subject(bucket, "-")}
