"""Bytes of the server, cut into messages: however they were split, each message once, whole, in order."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.errors import ProtocolError

from bakemesh.bus.handover import HandOver
from bakemesh.bus.parsing import Arrived, FrameParser, read_headers

OURS, LIBRARYS, GONE = 3, 4, 5


class Client:
    """What a parser has to do with: one subscription that was handed over, one that was not."""

    def __init__(self) -> None:
        self.stats = {"in_msgs": 0, "in_bytes": 0}
        self.heard: list[tuple[Any, ...]] = []
        self.parser = FrameParser(self)  # type: ignore[arg-type]
        self._subs = {
            OURS: SimpleNamespace(_pending_queue=HandOver(SimpleNamespace(subject="ours"), self.take)),  # type: ignore[arg-type]
            LIBRARYS: SimpleNamespace(_pending_queue=object()),
        }

    def take(self, msg: Any) -> None:
        assert isinstance(msg, Arrived)
        self.heard.append(("ours", msg.subject, msg.reply, msg.data, msg.headers))

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, raw: bytes | None
    ) -> None:
        self.heard.append(("library", sid, subject, reply, data, raw))

    async def _process_ping(self) -> None:
        self.heard.append(("ping",))

    async def _process_err(self, text: str) -> None:
        self.heard.append(("err", text))
        if "stale" in text:
            self.parser.reset()


HEADERS = b"NATS/1.0\r\nNats-Msg-Id: ab\r\nX: 1 2\r\n\r\n"
BYTES = (
    b"MSG a.b 3 4\r\nwxyz\r\n"
    b"PING\r\n"
    b"MSG a.b 3 _INBOX.r.1 0\r\n\r\n"
    + b"HMSG c 3 %d %d\r\n%bMSG q 3 1\r\n\r\n" % (len(HEADERS), len(HEADERS) + 11, HEADERS)
    + b"MSG d 4 r 2\r\n\r\n\r\n"
    + b"HMSG e 4 %d %d\r\n%bz\r\n" % (len(HEADERS), len(HEADERS) + 1, HEADERS)
    + b"MSG late 5 3\r\nxxx\r\n"
    b"-ERR 'Permissions Violation for Publish to \"a\"'\r\n"
    b"MSG a.b 3 70000\r\n" + b"y" * 70_000 + b"\r\n"
    b"PING\r\n"
)
EXPECTED = [
    ("ours", "a.b", "", b"wxyz", None),
    ("ping",),
    ("ours", "a.b", "_INBOX.r.1", b"", None),
    ("ours", "c", "", b"MSG q 3 1\r\n", {"Nats-Msg-Id": "ab", "X": "1 2"}),
    ("library", 4, b"d", b"r", b"\r\n", None),
    ("library", 4, b"e", b"", b"z", HEADERS),
    ("err", "'permissions violation for publish to \"a\"'"),
    ("ours", "a.b", "", b"y" * 70_000, None),
    ("ping",),
]


async def heard(*pieces: bytes) -> list[tuple[Any, ...]]:
    client = Client()
    for piece in pieces:
        await client.parser.parse(piece)
    return client.heard


async def test_all_at_once() -> None:
    assert await heard(BYTES) == EXPECTED


async def test_split_in_two_anywhere() -> None:
    for at in range(1, 420):
        assert await heard(BYTES[:at], BYTES[at:]) == EXPECTED, at


@given(st.lists(st.integers(1, len(BYTES) - 1), max_size=40))
async def test_split_anyhow(cuts: list[int]) -> None:
    edges = [0, *sorted(set(cuts)), len(BYTES)]
    assert await heard(*(BYTES[a:b] for a, b in pairwise(edges))) == EXPECTED


async def test_byte_by_byte() -> None:
    assert await heard(*(BYTES[n : n + 1] for n in range(len(BYTES)))) == EXPECTED


async def test_a_lost_link_forgets_half_a_message() -> None:
    client = Client()
    await client.parser.parse(b"MSG a.b 3 400\r\nwx")
    client.parser.reset()
    await client.parser.parse(b"MSG a.b 3 1\r\nz\r\n")
    assert client.heard == [("ours", "a.b", "", b"z", None)]


async def test_what_follows_the_end_of_a_link_is_of_the_old_one() -> None:
    client = Client()
    await client.parser.parse(b"-ERR 'Stale Connection'\r\nMSG a.b 3 1\r\nz\r\n")
    assert client.heard == [("err", "'stale connection'")]


@pytest.mark.parametrize(
    "wrong",
    [
        b"MSG a.b three 4\r\nwxyz\r\n",
        b"MSG a.b\r\n",
        b"HMSG a.b 3 x 4\r\nwxyz\r\n",
        b"HELLO\r\n",
        b"x" * (2**20 + 1),
    ],
)
async def test_what_no_server_says_ends_the_link(wrong: bytes) -> None:
    with pytest.raises(ProtocolError):
        await heard(wrong)


async def test_a_handler_that_fails_does_not_end_the_reading(caplog: pytest.LogCaptureFixture) -> None:
    client = Client()

    def fail(_msg: Any) -> None:
        raise RuntimeError("broken")

    client._subs[OURS] = SimpleNamespace(_pending_queue=HandOver(SimpleNamespace(subject="ours"), fail))  # type: ignore[arg-type]
    await client.parser.parse(b"MSG a.b 3 1\r\nz\r\nPING\r\n")
    assert client.heard == [("ping",)]
    assert "handler of ours failed" in caplog.text


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b"NATS/1.0 503\r\n\r\n", {"Status": "503"}),
        (b"NATS/1.0 404 No Messages\r\n\r\n", {"Status": "404", "Description": "No Messages"}),
        (
            b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 3\r\n\r\n",
            {"Status": "100", "Description": "Idle Heartbeat", "Nats-Last-Consumer": "3"},
        ),
        (b"NATS/1.0\r\nA:1\r\nB:  x: y \r\nno colon\r\nbad name: 2\r\n\r\n", {"A": "1", "B": "x: y"}),
        (b"NATS/1.0\r\nName: \xff\xc3\xa4\r\n\r\n", {"Name": "�ä"}),
        (b"NATS/1.0\r\n\xc3\xa4: 1\r\n\r\n", None),
        (b"NATS/1.0\r\n\r\n", None),
        (b"", None),
    ],
)
def test_headers(raw: bytes, found: dict[str, str] | None) -> None:
    assert read_headers(raw) == found
