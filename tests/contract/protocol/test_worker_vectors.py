"""The engine-worker protocol against its golden vectors, which any other implementation can run too."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from bakemesh.protocol.worker import headers
from bakemesh.protocol.worker.ends import HostEnd, WorkerEnd
from bakemesh.protocol.worker.errors import (
    FrameTooLarge,
    HeaderBroken,
    LocalError,
    NonceRefused,
    OutOfStep,
    PeerError,
    VersionRefused,
)
from bakemesh.protocol.worker.packets import Packet, PacketReader, Refused, pieces
from support.vectors import named, vectors
from support.workerlink import answers, connected, feed, framed, hello, joined

MESSAGES, REFUSED = vectors("worker-messages"), vectors("worker-refused")
TRACES, ANSWERS = vectors("worker-traces"), vectors("worker-answers")
UNTYPED = {"worker": "HELLO", "host": "HELLO_ACK"}
LIMIT = 64 << 20
PUT = {"req_id": "r5", "model_ref": "llama:0", "max_tokens": 4}


def read(data: bytes, untyped: str | None = None) -> list[Any]:
    """Every packet in these bytes."""
    reader, out = PacketReader(LIMIT, untyped=untyped), []
    reader.room()[: len(data)] = data
    reader.fed(len(data))
    while (found := reader.next()) is not None:
        out.append(found)
    reader.ended()
    return out


def frames(data: bytes) -> list[bytes]:
    """The frames in these bytes, read by hand."""
    out = []
    while data:
        (size,) = struct.unpack_from("<I", data)
        out.append(data[4 : 4 + size])
        data = data[4 + size :]
    return out


@pytest.mark.parametrize("row", **named(MESSAGES))
def test_a_message_is_read_as_shown_and_written_as_the_same_object(row: dict[str, Any]) -> None:
    data = bytes.fromhex(row["bytes"])
    (found,) = read(data, UNTYPED[row["from"]])
    raw = bytes.fromhex(row["raw"]) if "raw" in row else None
    assert (None if found.data is None else bytes(found.data)) == raw
    written = frames(joined(pieces(found.header, raw)))
    shown = {"types": []} | row["header"] if found.header.TYPE == "HELLO" else row["header"]
    if "reads" in row:
        shown = row["reads"] | ({"raw_frames": 1} if found.header.TYPE == "GENERATE_STREAM" else {})
        shown.get("engine", {}).pop("engine", None)
    wrote = json.loads(written[0])
    wrote.get("engine", {}).pop("engine", None)
    wrote.pop("stop", None) if wrote.get("stop") == [] else None
    assert wrote == shown
    assert [bytes.fromhex(row["raw"])] == written[1:] if raw is not None else not written[1:]
    assert frames(data)[0] == json.dumps(row["header"], ensure_ascii=False, separators=(",", ":")).encode()


def test_every_type_has_a_golden_message() -> None:
    assert {row["header"].get("type", UNTYPED[row["from"]]) for row in MESSAGES} == set(headers.KNOWN)


@pytest.mark.parametrize("row", **named(REFUSED))
def test_what_is_refused(row: dict[str, Any]) -> None:
    data = bytes.fromhex(row["bytes"])
    if row["error"] == "bad_header":
        (found,) = read(data)
        assert isinstance(found, Refused)
        error = found.error
        assert (error.field, error.code, error.req_id) == (row["field"], row["code"], row["req_id"])
        assert row["field"] in str(error)
        return
    with pytest.raises({"frame_too_large": FrameTooLarge, "header_broken": HeaderBroken}[row["error"]]):
        read(data)


@pytest.mark.parametrize("row", **named(ANSWERS))
def test_what_a_worker_answers_without_its_engine(row: dict[str, Any]) -> None:
    host, worker = connected(types=tuple(row.get("types", headers.ADDED_TYPES)))
    if row["busy"]:
        feed(worker, joined(host.send(headers.Generate(**PUT), b"\1\0\0\0")))
    data = framed(row["header"], *(bytes.fromhex(each) for each in row.get("raw", [])))
    before = worker.link
    if row["answer"] is None:
        with pytest.raises(OutOfStep):
            feed(worker, data)
        return
    (got,) = answers(feed(worker, data))
    msg = got.pop("msg")
    assert got == {"type": "ERR", **row["answer"]}
    assert row["header"]["type"] in msg
    assert worker.link == before, "what is in flight is still in flight"
    if not row["busy"]:  # in step: the next request is taken
        (packet,) = feed(worker, framed({"type": "PING", "req_id": "next"}))
        assert packet.header.req_id == "next"


def message(step: dict[str, Any]) -> tuple[Any, bytes | None]:
    """A step's header as a value, and its raw frame."""
    return headers.read(step["header"] | {}), bytes.fromhex(step["raw"]) if "raw" in step else None


def data_of(step: dict[str, Any]) -> bytes:
    """A step as bytes."""
    return framed(step["header"], *([bytes.fromhex(step["raw"])] if "raw" in step else []))


@pytest.mark.parametrize("trace", **named(TRACES))
def test_a_hosts_end_through_a_conversation(trace: dict[str, Any]) -> None:
    host = HostEnd(trace["nonce"], 1 << 20)
    for step in trace["steps"]:
        if step["from"] == "worker" and step["then"] == "killed":
            with pytest.raises(PeerError) as caught:
                feed(host, data_of(step))
            assert host.state == "closed"
            with pytest.raises(PeerError) as again:
                list(host.packets())
            assert again.value is caught.value, "a dead end stays dead"
            with pytest.raises(LocalError):
                host.send(headers.Ping(req_id="later"))
        elif step["from"] == "worker":
            (packet,) = feed(host, data_of(step))
            assert packet.header == message(step)[0]
            assert host.state == step["then"]
        elif step["then"] == "killed":
            with pytest.raises(LocalError):
                host.send(*message(step))
        else:
            header, data = message(step)
            out = host.ack() if header.TYPE == "HELLO_ACK" else host.send(header, data)
            assert host.state == step["then"]
            assert frames(joined(out))[1:] == ([data] if data is not None else [])


@pytest.mark.parametrize("trace", **named(TRACES))
def test_a_workers_end_through_a_conversation(trace: dict[str, Any]) -> None:
    worker = WorkerEnd(hello())
    for step in trace["steps"]:
        if step["from"] == "host" and step["then"] == "killed":
            with pytest.raises(PeerError):
                feed(worker, data_of(step))
            assert worker.state == "closed"
        elif step["from"] == "host":
            (packet,) = feed(worker, data_of(step))
            assert isinstance(packet, Packet)
            assert packet.header == message(step)[0]
            assert worker.state == step["then"]
        elif step["then"] == "killed":
            return  # whether its own engine's words fit is the host's to judge
        else:
            header, data = message(step)
            worker.greeting() if header.TYPE == "HELLO" else worker.send(header, data)
            assert worker.state == step["then"]


@pytest.mark.parametrize(
    ("changes", "error"),
    [({"nonce": "ff"}, NonceRefused), ({"v": 2}, VersionRefused), ({"nonce": "ff", "v": 2}, NonceRefused)],
)
def test_a_stranger_is_told_by_its_nonce_before_its_version(
    changes: dict[str, Any], error: type[PeerError]
) -> None:
    host = HostEnd(hello().nonce)
    with pytest.raises(error):
        feed(host, joined(WorkerEnd(hello(**changes)).greeting()))
