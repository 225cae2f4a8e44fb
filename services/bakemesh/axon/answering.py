"""What an answer is: its status, headers and body. Pure, but for signing.

The headers are those of the real axon, in its order. Errors are `{"message": …}`, signed by the axon. A
reason goes escaped and bounded into the header, as it is into the body. Of the families only `bt_header_*`
has headers in its answers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic import BaseModel

from bakemesh.axon.exchange import Exchange
from bakemesh.edge.axon import PING
from bakemesh.edge.errors import HandlerFailed
from bakemesh.protocol.axon import keys, signing, ss58
from bakemesh.protocol.axon.profiles import Profile
from bakemesh.protocol.axon.signatures import Hotkey
from bakemesh.protocol.axon.synapse import TIMEOUT_S, Synapse
from bakemesh.protocol.axon.terminal import TerminalInfo
from bakemesh.protocol.axon.verdicts import HTTP_STATUS, Verdict, escaped, printable

Headers = list[tuple[bytes, bytes]]
JSON = b"application/json"
SSE = b"text/event-stream"
SUCCESS = "Success"
LONGEST_MESSAGE = 2000


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole one."""

    status: int
    headers: Headers
    body: bytes


def failure(
    verdict: Verdict,
    reason: str,
    exchange: Exchange | None,
    now: float,
    *,
    signer: Hotkey | None = None,
    nonce: int = 0,
    uuid: str = "",
    retry_after_s: float | None = None,
) -> Answer:
    """The answer to what was not served. `exchange` None: its headers could not be read. `signer` None: it
    is not signed.
    """
    status = HTTP_STATUS[verdict]
    body = json.dumps({"message": reason[:LONGEST_MESSAGE]}).encode()
    headers: Headers = [(b"content-type", JSON), (b"content-length", b"%d" % len(body))]
    if retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % max(1, int(retry_after_s + 0.999))))
    if verdict is Verdict.WRONG_METHOD:
        headers.append((b"allow", b"POST"))
    if exchange is None or exchange.profile is not Profile.BTAUTH:
        taken = now - exchange.began if exchange else 0.0
        axon = TerminalInfo.of(
            {"status_code": status, "status_message": escaped(reason), "process_time": taken}
        )
        if exchange is not None and signer is not None:
            dendrite = exchange.who()
            told = axon.__dict__
            asked = TerminalInfo.from_headers_with_prefix(exchange.headers, keys.AXON_PREFIX)
            told["ip"], told["port"] = asked.ip, asked.port
            if dendrite.hotkey and ss58.is_address(dendrite.hotkey):  # else there is nobody to sign it for
                told["nonce"], told["uuid"], told["hotkey"] = nonce, uuid, signer.address
                message = signing.response_message(nonce, dendrite.hotkey, signer.address, uuid)
                told["signature"] = signer.sign(message)
        headers += _told(exchange, axon, len(body))
    return Answer(status, headers, body)


def success(exchange: Exchange, result: Any, own_hotkey: str, now: float) -> Answer:
    """The answer of a handler that returned `result`. Raises HandlerFailed where that is none."""
    asked = exchange.synapse
    assert asked is not None
    synapse, output = _both(asked, result)
    axon = succeeded(exchange, own_hotkey, now)
    if exchange.profile is Profile.SDK:
        if output is not None:
            known = type(synapse).model_fields
            synapse.__dict__.update({k: v for k, v in output.__dict__.items() if k in known})
        synapse.__dict__["dendrite"], synapse.__dict__["axon"] = exchange.who(), axon
        body = synapse.body()
    elif output is not None:
        body = output.__pydantic_serializer__.to_json(output)
    elif synapse.Output is not None:
        body = _filled(synapse)
    else:
        synapse.__dict__["dendrite"], synapse.__dict__["axon"] = exchange.who(), axon
        body = synapse.body()
    headers: Headers = [(b"content-type", JSON), (b"content-length", b"%d" % len(body))]
    if exchange.profile is not Profile.BTAUTH:
        headers += _told(exchange, axon, len(body))
    return Answer(200, headers, body)


def stream_headers(exchange: Exchange, own_hotkey: str, now: float) -> Headers:
    """The headers of a stream that begins."""
    headers: Headers = [
        (b"content-type", SSE),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),
    ]
    if exchange.profile is not Profile.BTAUTH:
        headers += _told(exchange, succeeded(exchange, own_hotkey, now), 0)
    return headers


def succeeded(exchange: Exchange, own_hotkey: str, now: float) -> TerminalInfo:
    """The axon of a request that went well."""
    assert exchange.synapse is not None
    axon = exchange.synapse.axon.model_copy()
    told = axon.__dict__
    told["status_code"], told["status_message"] = 200, SUCCESS
    told["process_time"], told["hotkey"] = now - exchange.began, own_hotkey
    return axon


def _both(asked: Synapse, result: Any) -> tuple[Synapse, BaseModel | None]:
    """The synapse of the answer, and the Output where the handler made one."""
    if result is None or result is asked:
        return asked, None
    kind = type(asked)
    if isinstance(result, kind):
        return result, None
    if kind.Output is not None and isinstance(result, kind.Output) and isinstance(result, BaseModel):
        return asked, result
    wanted = f"{kind.__name__}, {kind.Output.__name__}" if kind.Output is not None else kind.__name__
    raise HandlerFailed(f"it returned {result!r:.80}; expected {wanted} or None")


def _filled(synapse: Synapse) -> bytes:
    try:
        output = synapse.output()
    except ValueError as error:
        raise HandlerFailed(f"its fields make no Output of {type(synapse).__name__}: {error}") from error
    if not isinstance(output, BaseModel):
        raise HandlerFailed(f"the Output of {type(synapse).__name__} is no pydantic model")
    return output.__pydantic_serializer__.to_json(output)


def _told(exchange: Exchange | None, axon: TerminalInfo, size: int) -> Headers:
    """`name`, `timeout`, the axon, the dendrite as it was sent, and the sizes."""
    name, timeout, digest = PING, TIMEOUT_S, ""
    if exchange is not None:
        name, timeout = exchange.route.name, exchange.timeout
        digest = exchange.claim.body_hash if exchange.claim is not None else ""
    lines: Headers = [(b"name", name.encode()), (b"timeout", b"%a" % timeout)]
    _add(lines, keys.AXON_PREFIX, axon)
    if exchange is not None:
        _add(lines, keys.DENDRITE_PREFIX, exchange.who())
    letters = sum(len(key) + len(value) for key, value in lines)
    lines += [(b"header_size", b"%d" % letters), (b"total_size", b"%d" % size)]
    if digest:
        lines.append((b"computed_body_hash", printable(digest).encode()))
    return lines


def _add(lines: Headers, prefix: str, info: TerminalInfo) -> None:
    values = info.__dict__
    for key, name in _lines(prefix):
        value = values[name]
        if value is not None:
            text = printable(value) if isinstance(value, str) else str(value)
            lines.append((key, text.encode()))


@lru_cache(maxsize=4)
def _lines(prefix: str) -> tuple[tuple[bytes, str], ...]:
    return tuple(((prefix + name).encode(), name) for name in TerminalInfo.model_fields)
