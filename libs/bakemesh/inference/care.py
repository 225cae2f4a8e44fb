"""Looking after models on their nodes: what is there, how it goes, taking files in, trying what crashed."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import PurePath
from typing import Literal

from bakemesh.inference.asking import alias_of, message_of
from bakemesh.inference.carrying import Carrier, Job, all_of
from bakemesh.inference.errors import NodeGone, NoNode, refused
from bakemesh.inference.flights import expected
from bakemesh.inference.nodes import NOBODY
from bakemesh.inference.results import Health, Ingested, IngestProgress, ModelInfo
from bakemesh.protocol.inference import answers, requests
from bakemesh.protocol.inference.errors import Code
from bakemesh.protocol.message import Message
from bakemesh.protocol.subjects import NO_KEY

OnProgress = Callable[[IngestProgress], None]


async def models(carrier: Carrier, node: str | None, deadline: float) -> list[ModelInfo]:
    """Of one node, or of all that answer, by alias and node. Raises NoNode where there is none."""
    found: list[ModelInfo] = []

    async def ask(node_id: str) -> None:
        job = _job(requests.Models(), node_id, deadline)
        answer = await carrier.only(job, answers.ModelList)
        found.extend(ModelInfo.of(job.carried_by, each) for each in answer.models)

    await _each(carrier, node, deadline, ask)
    return sorted(found, key=lambda each: (each.alias, each.node_id))


async def health(carrier: Carrier, node: str | None, deadline: float) -> list[Health]:
    """Of one node, or of all that answer, by node. Raises NoNode where there is none."""
    found: list[Health] = []

    async def ask(node_id: str) -> None:
        job = _job(requests.Health(), node_id, deadline)
        told = await carrier.only(job, answers.HealthStamp)
        found.append(
            Health(
                job.carried_by,
                told.state,
                told.queued,
                told.bytesinflight,
                tuple(told.lanes),
                tuple(told.models),
                told.problem,
            )
        )

    await _each(carrier, node, deadline, ask)
    return sorted(found, key=lambda each: each.node_id)


async def probe(
    carrier: Carrier, model: str, node: str | None, config: Mapping[str, str] | None, deadline: float
) -> str:
    """Tries a quarantined model; `ok` or `quarantined`."""
    message = message_of(requests.Probe, {"config": None if config is None else dict(config)})
    job = _job(message, await only_node(carrier, node, deadline), deadline, alias_of(model))
    return (await carrier.only(job, answers.Probed)).state


async def ingest(
    carrier: Carrier,
    path: str | PurePath,
    alias: str,
    *,
    node: str | None,
    weights: Literal["asis", "fastest"],
    config: Mapping[str, str] | None,
    progress: OnProgress | None,
    deadline: float,
) -> Ingested:
    """Takes a file or folder of the node's own disk into its cache."""
    if not PurePath(path).is_absolute():
        told = f"path {str(path)!r}: expected an absolute one; the node has a working folder of its own"
        raise refused(Code.BAD_REQUEST, told)
    entries = {"path": str(path), "weights": weights, "config": None if config is None else dict(config)}
    message = message_of(requests.Ingest, entries)
    job = _job(message, await only_node(carrier, node, deadline), deadline, alias_of(alias))
    async with aclosing(carrier.carry(job)) as found:
        async for answer in found:
            if isinstance(answer, answers.Progress):
                if progress is not None:
                    progress(IngestProgress(answer.stage, answer.done, answer.total))
                continue
            taken = expected(answer, answers.Ingested, job.carried_by)
            carrier.nodes.has(job.carried_by, taken.alias)
            return Ingested(job.carried_by, taken.alias, taken.digest, taken.manifest)
    raise AssertionError("a request ends with its last answer")


async def only_node(carrier: Carrier, node: str | None, deadline: float) -> str:
    """The node that is meant; without a name the only one there is. Raises NoNode, BadRequest."""
    if node is not None:
        return await carrier.find(node, deadline)
    await carrier.settled(deadline)
    known = carrier.nodes.all()
    if not known:
        raise NoNode(NOBODY)
    if len(known) > 1:
        told = ", ".join(each.label for each in known)
        raise refused(Code.BAD_REQUEST, f"there are several nodes, name one of them: {told}")
    return known[0].node_id


async def _each(
    carrier: Carrier, node: str | None, deadline: float, ask: Callable[[str], Awaitable[None]]
) -> None:
    """Asks one node, or all at once; one that goes away meanwhile has nothing to say."""
    if node is not None:
        await ask(await carrier.find(node, deadline))
        return
    await carrier.settled(deadline)
    known = carrier.nodes.all()
    if not known:
        raise NoNode(NOBODY)

    async def one(node_id: str) -> None:
        with contextlib.suppress(NodeGone):
            await ask(node_id)

    await all_of(one(each.node_id) for each in known)


def _job(message: Message, node_id: str, deadline: float, alias: str = NO_KEY) -> Job:
    return Job(
        type(message), alias, lambda _left, _attempt: message, deadline, node=node_id, repeatable=False
    )
