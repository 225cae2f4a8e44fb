"""A service says that it is there: answers on `$SRV`, so that `nats micro ls`, `info` and `stats` show it.

The answers' form is that of NATS micro services. They are written here and not by nats-py's own
`add_service`, which answers, with this process's rights, to any subject that an asker names; here a reply
must be an inbox.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as Raw

from bakemesh.bus.errors import BusError
from bakemesh.protocol import names

if TYPE_CHECKING:
    from bakemesh.bus.connection import Bus

log = logging.getLogger(__name__)

_ERROR_CHARS = 200
_TYPE = "io.nats.micro.v1.{}_response"


class Endpoint(Protocol):
    """What is shown of something that is served: a `Serving`, or whoever counts as one does."""

    @property
    def pattern(self) -> str:
        """The subjects that it takes."""

    @property
    def queue(self) -> str:
        """The queue group, or nothing."""

    @property
    def requests(self) -> int:
        """How many it had."""

    @property
    def errors(self) -> int:
        """How many of them failed."""

    @property
    def busy_ns(self) -> int:
        """How long they took together."""

    @property
    def last_error(self) -> str:
        """Why the last of them failed that did."""


class Counts:
    """An Endpoint whose owner counts: its requests are taken in a callback and answered later.

    `busy_ns`: from each request to its last answer.
    """

    __slots__ = ("busy_ns", "errors", "last_error", "pattern", "queue", "requests")

    def __init__(self, pattern: str, queue: str = "") -> None:
        self.pattern, self.queue = pattern, queue
        self.requests = self.errors = self.busy_ns = 0
        self.last_error = ""

    def ended(self, seconds: float, error: str | None) -> None:
        """One of its requests did; `error`: why it failed, where it did."""
        self.requests += 1
        self.busy_ns += int(seconds * 1e9)
        if error is not None:
            self.errors += 1
            self.last_error = error[:_ERROR_CHARS]


class Announcement:
    """A service under `$SRV`; made by `announce`, ended by `stop`."""

    def __init__(
        self,
        bus: Bus,
        name: str,
        version: str,
        description: str,
        metadata: Mapping[str, str],
        endpoints: Sequence[Endpoint],
    ) -> None:
        names.check("service", name)
        self.id = secrets.token_hex(11)
        self.name = name
        self._link = bus.link
        self._identity = {"name": name, "id": self.id, "version": version, "metadata": dict(metadata)}
        self._description = description
        self._endpoints = list(endpoints)
        self._started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self._raw: list[Raw] = []

    async def start(self) -> None:
        """Subscribes. Raises AccessDenied, NotConnected, BusClosed."""
        for tail in ("", f".{self.name}", f".{self.name}.{self.id}"):
            self._raw.append(await self._link.listen(f"$SRV.*{tail}", self._asked))

    async def stop(self) -> None:
        """Is there no more. Idempotent."""
        raw, self._raw = self._raw, []
        for one in raw:
            await self._link.unlisten(one)

    async def _asked(self, msg: Msg) -> None:
        if not msg.reply.startswith("_INBOX."):
            return
        answer = {"PING": self._ping, "INFO": self._info, "STATS": self._stats}.get(msg.subject.split(".")[1])
        if answer is None:
            return
        try:
            await self._link.send(msg.reply, json.dumps(answer()).encode())
        except BusError as error:
            log.debug("discovery not answered: %s", error)

    def _ping(self) -> dict[str, Any]:
        return {"type": _TYPE.format("ping"), **self._identity}

    def _info(self) -> dict[str, Any]:
        endpoints = [
            {"name": _endpoint_name(one), "subject": one.pattern, "queue_group": one.queue, "metadata": {}}
            for one in self._endpoints
        ]
        return {
            "type": _TYPE.format("info"),
            **self._identity,
            "description": self._description,
            "endpoints": endpoints,
        }

    def _stats(self) -> dict[str, Any]:
        endpoints = [
            {
                "name": _endpoint_name(one),
                "subject": one.pattern,
                "queue_group": one.queue,
                "num_requests": one.requests,
                "num_errors": one.errors,
                "last_error": one.last_error,
                "processing_time": one.busy_ns,
                "average_processing_time": one.busy_ns // one.requests if one.requests else 0,
            }
            for one in self._endpoints
        ]
        return {
            "type": _TYPE.format("stats"),
            **self._identity,
            "started": self._started,
            "endpoints": endpoints,
        }


async def announce(
    bus: Bus,
    name: str,
    *,
    version: str,
    description: str = "",
    metadata: Mapping[str, str] | None = None,
    endpoints: Sequence[Endpoint] = (),
) -> Announcement:
    """Announces a service with what it serves. `metadata`: for instance its protocol versions and
    step kinds.
    """
    made = Announcement(bus, name, version, description, metadata or {}, endpoints)
    await made.start()
    return made


def installed() -> str:
    """The version of this software, as services announce it; 0.0.0 where it runs without being installed."""
    from importlib.metadata import PackageNotFoundError, version  # slow to import, and only services ask

    try:
        return version("bakemesh")
    except PackageNotFoundError:
        return "0.0.0"


def _endpoint_name(serving: Endpoint) -> str:
    """The last plain word of the served type: `BakeControl` of `….BakeControl.*`."""
    words = [word for word in serving.pattern.split(".") if word.isalnum()]
    return words[-1] if words else "endpoint"
