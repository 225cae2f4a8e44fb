"""Properties of the link that do not repeat its table."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.protocol.worker import headers as h
from bakemesh.protocol.worker.errors import OutOfStep
from bakemesh.protocol.worker.link import ANSWERS, MOST_CANCELS, Link, State
from support.workerlink import hello

IDS = st.sampled_from(("a", "b", "c"))
REQUESTS = (
    lambda req: h.Load(req_id=req, artifact_path="", artifact_digest="", format=""),
    lambda req: h.EmbedBatch(req_id=req, model_ref="", pooling="mean", normalize=True, items=[]),
    lambda req: h.GenerateStream(req_id=req, model_ref="", max_tokens=1),
    lambda req: h.Ping(req_id=req),
)
ANSWERED = (
    lambda req: h.Loaded(req_id=req, model_ref="", dims=1, cold_load_ms=1),
    lambda req: h.Vectors(req_id=req, dims=1, n=1),
    lambda req: h.Text(req_id=req, text="", n_prompt=1, n_gen=1, finish_reason="stop"),
    lambda req: h.Pong(req_id=req, rss_mb=1, models_loaded=1),
    lambda req: h.Err(req_id=req, code="oom", msg=""),
)
OTHERS = (
    lambda _: hello(),
    lambda _: h.HelloAck(v=1, accept=True, max_frame=1),
    lambda _: h.Shutdown(),
    lambda _: h.Err(code="oom", msg=""),
    lambda req: h.Token(req_id=req, index=0, text=""),
    lambda req: h.Cancel(req_id=f"cancel-{req}", target=req),
    lambda req: h.Err(req_id=f"cancel-{req}", code="unknown_type", msg=""),
)
MESSAGES = st.builds(lambda make, req: make(req), st.sampled_from((*REQUESTS, *ANSWERED, *OTHERS)), IDS)
OPEN = Link().after(hello()).after(h.HelloAck(v=1, accept=True, max_frame=1))


def walk(messages: list[Any], start: Link = OPEN) -> list[tuple[Any, Link]]:
    """The messages that were legal, with the link after each."""
    out, link = [], start
    for message in messages:
        try:
            link = link.after(message)
        except OutOfStep:
            continue
        out.append((message, link))
    return out


@given(st.lists(MESSAGES, max_size=40))
def test_at_most_one_request_is_in_flight(messages: list[Any]) -> None:
    open_: list[str] = []
    for message, link in walk(messages):
        if message.TYPE in ANSWERS:
            assert not open_
            open_.append(message.req_id)
        elif link.request is None:
            open_.clear()
        assert [link.request[1]] == open_ if link.request else not open_


@given(st.lists(MESSAGES, max_size=40))
def test_answers_never_outnumber_requests_and_carry_their_req_id(messages: list[Any]) -> None:
    flying: str | None = None
    cancels: set[str] = set()
    for message, _ in walk(messages):
        if message.TYPE in ANSWERS:
            flying = message.req_id
        elif message.TYPE == "CANCEL":
            cancels.add(message.req_id)
        elif message.TYPE in ANSWERS.values() or message.TYPE == "ERR":
            if message.TYPE == "ERR" and message.req_id in cancels:
                cancels.remove(message.req_id)  # once each
                continue
            assert flying is not None
            assert getattr(message, "req_id", None) in (flying, None)
            flying = None
        elif message.TYPE == "TOKEN":
            assert message.req_id == flying


@given(st.lists(MESSAGES, max_size=20), st.lists(MESSAGES, min_size=1, max_size=20))
def test_the_end_is_final(before: list[Any], after: list[Any]) -> None:
    link = (walk(before) or [(None, OPEN)])[-1][1].closed()
    assert link.state is State.CLOSED
    assert link.closed() == link
    assert walk(after, link) == []


@given(st.lists(MESSAGES, max_size=40))
def test_nothing_is_begun_after_shutdown(messages: list[Any]) -> None:
    seen = False
    for message, link in walk(messages):
        assert not (seen and message.TYPE in (*ANSWERS, "SHUTDOWN", "HELLO"))
        seen = seen or message.TYPE == "SHUTDOWN"
        assert (link.state is State.DRAINING) == seen


@given(st.lists(MESSAGES, max_size=20))
def test_nothing_but_hello_and_its_answer_comes_first(messages: list[Any]) -> None:
    legal = [message.TYPE for message, _ in walk(messages, Link())]
    assert legal[:2] == ["HELLO", "HELLO_ACK"][: len(legal)]
    assert not {"HELLO", "HELLO_ACK"} & set(legal[2:])


@given(st.lists(MESSAGES, max_size=40))
def test_what_is_refused_changes_nothing(messages: list[Any]) -> None:
    link = OPEN
    for message in messages:
        kept = repr(link)
        try:
            after = link.after(message)
        except OutOfStep:
            after = link
        assert repr(link) == kept
        link = after


def test_cancels_are_remembered_no_longer_than_their_answer_can_come() -> None:
    link = OPEN
    for number in range(1000):
        link = link.after(h.Ping(req_id=f"r{number}"))
        link = link.after(h.Cancel(req_id=f"c{number}", target="r"))
        link = link.after(h.Pong(req_id=f"r{number}", rss_mb=1, models_loaded=0))
        assert len(link.cancels | link.earlier) <= 2
    for number in range(MOST_CANCELS - 1):
        link = link.after(h.Cancel(req_id=f"d{number}", target="r"))
    with pytest.raises(OutOfStep, match="64"):
        link.after(h.Cancel(req_id="more", target="r"))


@pytest.mark.parametrize("order", ["cancel first", "request first"])
def test_a_req_id_that_would_be_ambiguous_is_refused(order: str) -> None:
    ping, cancel = h.Ping(req_id="r"), h.Cancel(req_id="r", target="r")
    first, second = (cancel, ping) if order == "cancel first" else (ping, cancel)
    with pytest.raises(OutOfStep, match="in use"):
        OPEN.after(first).after(second)
