"""Makes the streams: a node's own beside it, the mesh's on the hub. Both are idempotent and safe for
several at once.

What exists keeps its size and its replicas; its subjects and rules are brought to what they should be. No
stream allows direct gets: the server would answer one, with its own rights, to any subject the asker names.
The hub's Status and Data streams have no subjects of their own, only sources, so they cannot exist without
one; their source lists are kept by `hub`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from bakemesh.bus.connection import Bus
from bakemesh.bus.errors import BusError, NameTaken, NoRoom, NotFound, StoreError
from bakemesh.bus.jsapi import JsApi
from bakemesh.bus.kv import Bucket
from bakemesh.bus.sizes import INBOX_BYTES, Sizes, readable
from bakemesh.protocol import storage, subjects

__all__ = ["Sizes", "StoreTooSmall", "ensure_hub", "ensure_node_streams", "free_store"]

log = logging.getLogger(__name__)

_DUPLICATES_NS = 120_000_000_000
_REPLICAS = 3
_NO_CLUSTER = 10074
_TOO_FEW_SERVERS = 10005
DEFAULT_SIZES = Sizes()


class StoreTooSmall(BusError):
    """Raised when the server cannot reserve what a stream asks for: names what was asked for and what there
    is.
    """

    def __init__(self, stream: str, wanted: int, free: int | None, reserved: int) -> None:
        there = (
            f"{readable(free)} free"
            if free is not None
            else f"{readable(reserved)} reserved for others already"
        )
        super().__init__(
            f"stream {stream} asks for {readable(wanted)} ({wanted} bytes); the server has {there}. "
            "Choose a smaller size for it (or expect more nodes), or give the server more room"
        )
        self.stream, self.wanted, self.free, self.reserved = stream, wanted, free, reserved


async def free_store(api: JsApi) -> int | None:
    """What the account may still reserve; None where the server sets it no limit. Raises what the API
    raises.
    """
    info = await api.account_info()
    limit = int(info.get("limits", {}).get("max_storage", -1))
    if limit <= 0:
        return None
    return max(0, limit - max(int(info.get("storage", 0)), int(info.get("reserved_storage", 0))))


async def ensure_node_streams(bus: Bus, node_id: str, sizes: Sizes = DEFAULT_SIZES) -> None:
    """Status and Data of `node_id` on the server beside it; on a leaf its inbox as well.

    Raises StoreTooSmall, and what the API raises.
    """
    mesh, api = bus.mesh, bus.api
    free = await free_store(api) if sizes.free is None else sizes.free
    status = stream_config(storage.status_stream(mesh, node_id), sizes.status(free), _status(mesh, node_id))
    await _ensure(api, status, sizes)
    taken = [_of(mesh, f"{subjects.BAKE}.Data", node_id)]
    data = stream_config(storage.data_stream(mesh, node_id), sizes.data(free), taken)
    await _ensure(api, data, sizes, resize=sizes.data_bytes is not None)
    if bus.on_leaf:
        await _ensure(api, _inbox(storage.leaf_inbox_stream(mesh, node_id), mesh, node_id), sizes)


async def ensure_hub(bus: Bus, sizes: Sizes = DEFAULT_SIZES, *, node_id: str | None = None) -> None:
    """The mesh's streams and buckets on the hub, with `node_id` (the bus's own) as the first source where
    they are made now.

    Raises StoreUnavailable where the hub cannot be reached (a leaf is ready without), StoreTooSmall, and
    what the API raises.
    """
    mesh, api = bus.mesh, bus.hub_api
    node = node_id or bus.settings.node_id
    made = await _ensure(api, _inbox(storage.inbox_stream(mesh), mesh, subjects.ANY), sizes)
    for bucket in (storage.nodes_bucket(mesh), storage.ids_bucket(mesh), storage.cohorts_bucket(mesh)):
        await Bucket(bus, bucket).ensure(replicas=int(made["config"].get("num_replicas", 1)))
    domain = bus.domain if bus.on_leaf else None
    await ensure_hub_status(api, mesh, [source(storage.status_stream(mesh, node), domain)], sizes)
    if domain is not None:
        await ensure_hub_data(api, mesh, [source(storage.data_stream(mesh, node), domain)], sizes)


async def ensure_hub_status(
    api: JsApi, mesh: str, sources: list[dict[str, Any]], sizes: Sizes
) -> dict[str, Any]:
    """`<mesh>-status` with `sources`; one that exists keeps its list. Gives its info."""
    config = stream_config(storage.hub_status_stream(mesh), sizes.hub_status, None)
    return await _ensure(api, config | {"sources": sources}, sizes)


async def ensure_hub_data(
    api: JsApi, mesh: str, sources: list[dict[str, Any]], sizes: Sizes
) -> dict[str, Any]:
    """`<mesh>-data`, as `ensure_hub_status`."""
    free = await free_store(api) if sizes.free is None else sizes.free
    config = stream_config(storage.hub_data_stream(mesh), sizes.hub_data(free), None)
    return await _ensure(api, config | {"sources": sources}, sizes, resize=sizes.hub_data_bytes is not None)


def source(stream: str, domain: str | None) -> dict[str, Any]:
    """A stream as a source: on the same server, or in a leaf's `domain`."""
    made: dict[str, Any] = {"name": stream}
    if domain is not None:
        made["external"] = {"api": f"$JS.{domain}.API", "deliver": ""}
    return made


# -- what they are


def _of(mesh: str, type_: str, node_id: str) -> str:
    return subjects.pattern(mesh, type_, node_id=node_id)


def _status(mesh: str, node_id: str) -> list[str]:
    return [_of(mesh, f"{subjects.BAKE}.{name}", node_id) for name in ("Status", *subjects.OUTCOMES)]


def stream_config(name: str, size: int, taken: list[str] | None) -> dict[str, Any]:
    """What every stream of a mesh has in common; `taken`: its subjects, None where it has sources instead."""
    config: dict[str, Any] = {
        "name": name,
        "retention": "limits",
        "storage": "file",
        "discard": "new",  # full is a refusal, which travels back as backpressure
        "max_bytes": size,
        "max_age": 0,
        "max_msgs": -1,
        "max_msgs_per_subject": -1,
        "max_msg_size": -1,
        "duplicate_window": _DUPLICATES_NS,
        "allow_direct": False,
    }
    if taken is not None:
        config["subjects"] = taken
    return config


def _inbox(name: str, mesh: str, node_id: str) -> dict[str, Any]:
    taken = [_of(mesh, type_, node_id) for type_ in (subjects.RECIPE, subjects.BAKE_DATA_PUSH)]
    return stream_config(name, INBOX_BYTES, taken) | {"retention": "workqueue"}


# -- making them


async def _ensure(
    api: JsApi, wanted: Mapping[str, Any], sizes: Sizes, *, resize: bool = False
) -> dict[str, Any]:
    name, size = str(wanted["name"]), int(wanted["max_bytes"])
    try:
        try:
            found = await api.stream_info(name)
        except NotFound:
            try:
                return await create_stream(api, wanted)
            except NameTaken:
                # Another Builder was faster and chose otherwise: what is there now counts.
                found = await api.stream_info(name)
        config = found["config"]
        kept = {"max_bytes"} if not resize else set()
        if "sources" in wanted:
            kept.add("sources")
        changed = {
            key: value
            for key, value in wanted.items()
            if key not in kept and config.get(key, _DEFAULTS.get(key)) != value
        }
        if not changed:
            return found
        log.info("stream %s: %s", name, ", ".join(f"{key} = {value}" for key, value in changed.items()))
        return await api.update_stream(config | changed)
    except NoRoom as error:
        info = await api.account_info()
        free = sizes.free if sizes.free is not None else await free_store(api)
        raise StoreTooSmall(name, size, free, int(info.get("reserved_storage", 0))) from error


_DEFAULTS: Mapping[str, Any] = {"max_age": 0, "allow_direct": False}


async def create_stream(api: JsApi, config: Mapping[str, Any]) -> dict[str, Any]:
    """Makes a stream, with three replicas where there are three servers."""
    try:
        return await api.create_stream(dict(config) | {"num_replicas": _REPLICAS})
    except StoreError as error:
        if error.err_code not in (_NO_CLUSTER, _TOO_FEW_SERVERS):
            raise
        if error.err_code == _TOO_FEW_SERVERS:
            log.warning(
                "stream %s: not enough servers for %d replicas; it has one", config["name"], _REPLICAS
            )
        return await api.create_stream(dict(config) | {"num_replicas": 1})
