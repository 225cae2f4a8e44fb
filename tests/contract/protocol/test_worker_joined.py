"""Both roles of the engine-worker protocol joined by bytes, all sizes of piece; and by hostile bytes."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakemesh.protocol.worker import headers as h
from bakemesh.protocol.worker.ends import HostEnd, WorkerEnd
from bakemesh.protocol.worker.errors import FrameCut, PeerError
from bakemesh.protocol.worker.packets import Packet
from support.workerlink import NONCE, connected, feed, frame, framed, hello, joined

STEPS = (1, 10, 4096, 1 << 30)
IDS = struct.pack("<3i", 5, 6, 7)


def conversation(size: int = 200_000) -> list[tuple[Any, bytes | None, list[tuple[Any, bytes | None]]]]:
    """Requests with their answers, of every type."""
    big = bytes(size)
    text = {"text": "naïve ✓", "n_prompt": 3, "n_gen": 2, "finish_reason": "stop"}
    return [
        (
            h.Load(req_id="r1", artifact_path="/m", artifact_digest="", format="fake"),
            None,
            [(h.Loaded(req_id="r1", model_ref="fake:0", dims=4, cold_load_ms=1), None)],
        ),
        (
            h.EmbedBatch(
                req_id="r2", model_ref="fake:0", pooling="mean", normalize=False,
                items=[{"id": "a", "n_tokens": 1}, {"id": 2, "n_tokens": 2}],
            ),
            IDS,
            [(h.Vectors(req_id="r2", dims=size // 8, n=2, ids=["a", 2]), big)],
        ),
        (
            h.Rerank(req_id="r3", model_ref="fake:0", query_n_tokens=1, candidates=[{"n_tokens": 2}]),
            IDS,
            [(h.Scores(req_id="r3"), bytes(4))],
        ),
        (
            h.Generate(req_id="r4", model_ref="fake:0", max_tokens=2),
            big,
            [(h.Text(req_id="r4", **text), None)],
        ),
        (
            h.GenerateStream(req_id="r5", model_ref="fake:0", max_tokens=2, stop=("x",), top_k=-1),
            IDS,
            [
                (h.Token(req_id="r5", index=0, text="naï"), None),
                (h.Token(req_id="r5", index=1, text="ve ✓"), None),
                (h.Text(req_id="r5", **text), None),
            ],
        ),
        (h.Ping(req_id="r6"), None, [(h.Pong(req_id="r6", rss_mb=1.5, models_loaded=1), None)]),
        (h.Unload(req_id="r7", model_ref="fake:0"), None, [(h.Err(req_id="r7", code="oom", msg="no"), None)]),
    ]  # fmt: skip


def same(found: Any, header: Any, data: bytes | None) -> None:
    """The packet is the one that was sent."""
    assert found.header == header
    assert (None if found.data is None else bytes(found.data)) == data


@pytest.mark.parametrize("step", STEPS)
def test_both_ends_agree_whatever_the_pieces_are(step: int) -> None:
    host, worker = HostEnd(NONCE, 1 << 20), WorkerEnd(hello())
    (found,) = feed(host, joined(worker.greeting()), step)
    assert found.header == hello()
    feed(worker, joined(host.ack()), step)
    for asked, data, answers in conversation():
        (found,) = feed(worker, joined(host.send(asked, data)), step)
        same(found, asked, data)
        for answer, answer_data in answers:
            (found,) = feed(host, joined(worker.send(answer, answer_data)), step)
            same(found, answer, answer_data)
            assert host.link == worker.link
        assert host.state == "idle"
    feed(worker, joined(host.send(h.Shutdown())), step)
    assert (host.state, worker.state) == ("draining", "draining")
    host.ended()
    worker.ended()
    assert (host.state, worker.state) == ("closed", "closed")


@pytest.mark.parametrize("step", STEPS)
def test_a_connection_that_is_cut_anywhere_inside_a_packet_is_told(step: int) -> None:
    asked, data, _ = conversation()[1]
    whole = joined(connected()[0].send(asked, data))
    for cut in range(1, len(whole)):
        _, worker = connected()
        assert feed(worker, whole[:cut], step) == []
        with pytest.raises(FrameCut):
            worker.ended()


def test_bytes_of_two_messages_at_once_come_out_one_after_the_other() -> None:
    host, worker = connected()
    stream = h.GenerateStream(req_id="r1", model_ref="m", max_tokens=1)
    data = joined(host.send(stream, IDS)) + joined(host.send(h.Cancel(req_id="c1", target="r1")))
    data += joined(host.send(h.Shutdown()))
    assert [each.header.TYPE for each in feed(worker, data)] == ["GENERATE_STREAM", "CANCEL", "SHUTDOWN"]


def test_what_is_read_stays_valid_while_more_comes() -> None:
    host, worker = connected()
    asked = h.Generate(req_id="r1", model_ref="m", max_tokens=1)
    (found,) = feed(worker, joined(host.send(asked, IDS)))
    feed(worker, joined(host.send(h.Cancel(req_id="c1", target="r1"))))
    assert bytes(found.data) == IDS


@given(data=st.binary(max_size=300), greeted=st.booleans(), step=st.sampled_from((1, 7, 1 << 20)))
@settings(deadline=None)
def test_random_bytes_raise_nothing_but_the_peers_fault(data: bytes, greeted: bool, step: int) -> None:
    host, worker = connected() if greeted else (HostEnd(NONCE), WorkerEnd(hello()))
    if not greeted:
        worker.greeting()
    for end in (host, worker):
        try:
            feed(end, data, step)
            end.ended()
        except PeerError:
            assert end.state == "closed"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = (
    "req_id", "model_ref", "items", "candidates", "max_tokens", "runtime_config", "raw_frames", "target",
    "n", "dims", "index", "text", "code", "msg", "v", "nonce", "engine", "max_frame", "stop", "ids",
)  # fmt: skip


@given(
    kind=st.sampled_from((*h.KNOWN, "NEWS")),
    given_=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6),
    raw=st.lists(st.binary(max_size=9), max_size=2),
    busy=st.booleans(),
)
@settings(max_examples=400, deadline=None)
def test_random_headers_raise_nothing_but_the_peers_fault(
    kind: str, given_: dict[str, Any], raw: list[bytes], busy: bool
) -> None:
    host, worker = connected()
    if busy:
        feed(worker, joined(host.send(h.GenerateStream(req_id="r", model_ref="m", max_tokens=1), IDS)))
    for end in (host, worker):
        try:
            for found in feed(end, framed({"type": kind, **given_}, *raw)):
                if not isinstance(found, Packet):
                    assert len(joined(found)) <= 4 + end.max_frame
        except PeerError:
            assert end.state == "closed"


REQUESTS = st.sampled_from(("load", "embed", "rerank", "generate", "stream", "ping", "unload"))


@given(
    plan=st.lists(st.tuples(REQUESTS, st.booleans(), st.integers(0, 2), st.booleans()), max_size=12),
    step=st.sampled_from((1, 10, 1 << 20)),
)
@settings(deadline=None)
def test_legal_conversations_never_go_out_of_step(plan: list[Any], step: int) -> None:
    """Every request, failures, CANCELs that meet or cross the answer."""
    names = ("load", "embed", "rerank", "generate", "stream", "ping", "unload")
    said = dict(zip(names, conversation(800), strict=True))
    host, worker = connected(max_frame=1 << 20)
    for number, (name, fails, cancels, late) in enumerate(plan):
        asked, data, answers = said[name]
        (found,) = feed(worker, joined(host.send(asked, data)), step)
        same(found, asked, data)
        crossing = [
            joined(host.send(h.Cancel(req_id=f"c{number}-{n}", target=asked.req_id))) for n in range(cancels)
        ]
        if not late:
            for each in crossing:
                feed(worker, each, step)
        if fails:
            answers = [(h.Err(req_id=asked.req_id, code="inference_failed", msg="x"), None)]
        for answer, answer_data in answers:
            feed(host, joined(worker.send(answer, answer_data)), step)
        if late:
            for each in crossing:
                (stale,) = feed(worker, each, step)
                assert stale.header.TYPE == "CANCEL"
        assert host.state == worker.state == "idle"


@given(
    req_id=st.text(min_size=1, max_size=4).filter(lambda each: each != "r2"),
    kind=st.sampled_from(
        ("VECTORS", "ERR", "PONG", "TEXT", "TOKEN", "LOADED", "UNLOADED", "SCORES", "MODEL")
    ),
)
@settings(deadline=None)
def test_a_reply_out_of_step_is_never_given_to_a_caller(req_id: str, kind: str) -> None:
    host, _ = connected()
    asked, data, _ = conversation()[1]
    host.send(asked, data)
    more = {
        "VECTORS": {"dims": 1, "n": 2}, "ERR": {"code": "oom", "msg": ""}, "TOKEN": {"index": 0, "text": ""},
        "PONG": {"rss_mb": 1, "models_loaded": 1}, "UNLOADED": {}, "SCORES": {},
        "TEXT": {"text": "", "n_prompt": 1, "n_gen": 1, "finish_reason": "stop"},
        "LOADED": {"model_ref": "x", "dims": 1, "cold_load_ms": 1},
        "MODEL": {
            "architecture": "", "dims": 1, "n_vocab": 1, "n_ctx_train": 1, "pooling": "", "rank_head": False,
        },
    }  # fmt: skip
    raw = [bytes(8)] if h.KNOWN[kind].RAW else []
    with pytest.raises(PeerError):
        feed(host, framed({"type": kind, "req_id": req_id, **more[kind]}, *raw))
    assert host.state == "closed"


def test_before_the_handshake_a_stranger_cannot_make_the_host_hold_memory() -> None:
    host = HostEnd(NONCE)
    with pytest.raises(PeerError, match="65537 bytes"):
        feed(host, struct.pack("<I", 65_537))


def test_the_smaller_max_frame_holds_for_both() -> None:
    host, worker = connected(max_frame=8192)
    assert (host.max_frame, worker.max_frame) == (8192, 8192)
    for end in (host, worker):
        with pytest.raises(PeerError, match="8193 bytes is announced"):
            feed(end, struct.pack("<I", 8193))
    host, worker = connected(max_frame=8192)
    with pytest.raises(PeerError, match="no JSON"):
        feed(worker, frame(b" " * 8192))
