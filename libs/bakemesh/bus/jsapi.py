"""Requests to JetStream's API as they are on the wire: JSON in, JSON out, errors typed at this border.

nats-py's own JetStream client is not used: it cannot reach a hub's buckets from a leaf, loses a put's TTL,
and its errors are of another family. A `JsApi` speaks for one JetStream: the server's own, or that of a
domain (`$JS.<domain>.API.…`). Configurations are plain maps with the names of JetStream's API, durations in
nanoseconds.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bakemesh.bus.errors import (
    NoResponder,
    NoStore,
    RequestTimeout,
    StoreTimeout,
    StoreUnavailable,
    store_error,
)
from bakemesh.bus.link import Link

HUB_DOMAIN = "hub"
_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Stored:
    """A message as a stream keeps it. `time` is the server's, RFC 3339."""

    subject: str
    sequence: int
    payload: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    time: str = ""


class JsApi:
    """The API of one JetStream. Every method raises AccessDenied, NotConnected, StoreUnavailable,
    StoreTimeout, NoStore (no JetStream there), and the StoreError that the answer means.
    """

    def __init__(self, link: Link, domain: str | None = None) -> None:
        self._link = link
        self.domain = domain
        self.prefix = f"$JS.{domain}.API" if domain else "$JS.API"

    async def request(
        self, verb: str, body: Mapping[str, Any] | None = None, *, timeout: float = _TIMEOUT_S
    ) -> dict[str, Any]:
        """One API request, for instance `STREAM.INFO.<stream>`; gives the answer's map."""
        payload = json.dumps(body).encode() if body else b""
        try:
            answer = await self._link.ask(f"{self.prefix}.{verb}", payload, timeout)
        except NoResponder as error:
            if self.domain or self._link.jetstream:
                where = f"JetStream domain {self.domain!r}" if self.domain else "JetStream"
                raise StoreUnavailable(verb, f"{where} is not reachable now") from error
            raise NoStore(verb, "the server runs without JetStream; start it with `-js`") from error
        except RequestTimeout as error:
            raise StoreTimeout(verb, f"no answer within {timeout:g} s") from error
        return parse_answer(verb, answer.data)

    # -- streams

    async def account_info(self) -> dict[str, Any]:
        """Limits and use of the account."""
        return await self.request("INFO")

    async def stream_info(self, stream: str, *, subjects_filter: str | None = None) -> dict[str, Any]:
        """A stream's `config` and `state`; with `subjects_filter` also `state.subjects`. Raises NotFound.

        The server gives the subjects in pages of 100,000; all of them are put together here.
        """
        if subjects_filter is None:
            return await self.request(f"STREAM.INFO.{stream}")
        subjects: dict[str, int] = {}
        while True:
            body = {"subjects_filter": subjects_filter, "offset": len(subjects)}
            info = await self.request(f"STREAM.INFO.{stream}", body)
            page = info["state"].get("subjects") or {}
            subjects |= page
            if not page or len(subjects) >= int(info.get("total", 0)):
                info["state"]["subjects"] = subjects
                return info

    async def create_stream(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Makes a stream; one that is there with the same settings is left as it is. Raises NameTaken,
        NoRoom.
        """
        return await self.request(f"STREAM.CREATE.{config['name']}", config)

    async def update_stream(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Changes a stream to this whole configuration. Raises NotFound, NoRoom."""
        return await self.request(f"STREAM.UPDATE.{config['name']}", config)

    async def delete_stream(self, stream: str) -> None:
        """Removes a stream and all it holds. Raises NotFound."""
        await self.request(f"STREAM.DELETE.{stream}")

    async def purge_stream(
        self, stream: str, *, subject: str | None = None, before: int | None = None, keep: int | None = None
    ) -> int:
        """Removes messages: of `subject`, below the sequence `before`, all but the last `keep`. Gives their
        number.
        """
        body = {"filter": subject, "seq": before, "keep": keep}
        answer = await self.request(
            f"STREAM.PURGE.{stream}", {key: value for key, value in body.items() if value is not None}
        )
        return int(answer.get("purged", 0))

    # -- messages

    async def get_message(
        self,
        stream: str,
        *,
        sequence: int | None = None,
        last_of: str | None = None,
        next_of: str | None = None,
    ) -> Stored:
        """A stored message: at `sequence`, the last of a subject, or the first of `next_of` at or after
        `sequence`.

        Raises NotFound.
        """
        body = {"seq": sequence, "last_by_subj": last_of, "next_by_subj": next_of}
        verb = f"STREAM.MSG.GET.{stream}"
        answer = await self.request(verb, {key: value for key, value in body.items() if value is not None})
        found = answer["message"]
        return Stored(
            subject=found["subject"],
            sequence=int(found["seq"]),
            payload=base64.b64decode(found.get("data") or ""),
            headers=parse_headers(base64.b64decode(found.get("hdrs") or "")),
            time=str(found.get("time", "")),
        )

    # -- consumers

    async def create_consumer(self, stream: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """Makes the consumer `config["name"]`. A `filter_subject` becomes part of the request, so it can be
        permitted.
        """
        verb = f"CONSUMER.CREATE.{stream}.{config['name']}"
        if wanted := config.get("filter_subject"):
            verb += f".{wanted}"
        return await self.request(verb, {"stream_name": stream, "config": dict(config)})

    async def consumer_info(self, stream: str, consumer: str) -> dict[str, Any]:
        """A consumer's configuration and where it stands. Raises NotFound."""
        return await self.request(f"CONSUMER.INFO.{stream}.{consumer}")

    async def delete_consumer(self, stream: str, consumer: str) -> None:
        """Removes a consumer. Raises NotFound."""
        await self.request(f"CONSUMER.DELETE.{stream}.{consumer}")

    def next_subject(self, stream: str, consumer: str) -> str:
        """Where a pull request for a consumer's messages goes."""
        return f"{self.prefix}.CONSUMER.MSG.NEXT.{stream}.{consumer}"


def parse_answer(what: str, payload: bytes) -> dict[str, Any]:
    """The map of a JetStream answer. Raises the StoreError that it carries."""
    try:
        answer = json.loads(payload)
    except ValueError as error:
        raise StoreUnavailable(what, f"the answer is no JSON: {payload[:80]!r}") from error
    if not isinstance(answer, dict):
        raise StoreUnavailable(what, f"the answer is no map: {payload[:80]!r}")
    if error_map := answer.get("error"):
        raise store_error(what, error_map)
    return answer


def parse_headers(raw: bytes) -> dict[str, str]:
    """The headers of a stored message; without its `NATS/1.0` line."""
    headers: dict[str, str] = {}
    for line in raw.decode("utf-8", "replace").split("\r\n")[1:]:
        key, colon, value = line.partition(":")
        if colon:
            headers[key.strip()] = value.strip()
    return headers
