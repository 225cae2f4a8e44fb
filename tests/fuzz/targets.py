"""What is fuzzed: bytes in, nothing out, an exception where a promise is broken. Needs no fuzzer.

A header block is written as lines `name: value`, so that its corpus can be read. The first byte of a stream
says in pieces of how many bytes the rest comes.
"""

from __future__ import annotations

from typing import ClassVar

from bakemesh.protocol.axon import DeserializationFailed, Profile, Synapse, SynapseError, Tensor, TextPrompt
from bakemesh.protocol.axon.claims import check, claim_of
from bakemesh.protocol.axon.freshness import Window
from bakemesh.protocol.axon.headers import normal
from bakemesh.protocol.axon.sse import DONE, Decoder, Event, encode

OWN = "5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY"
NOW_NS = 1_800_000_000_000_000_000
LIMIT = 64


class Needs(Synapse):
    """A class with required fields, so that `bt_header_input_obj_*` counts."""

    required_hash_fields: ClassVar[tuple[str, ...]] = ("text", "rows")

    text: str
    rows: list[dict[str, float]]
    vector: Tensor | None = None


def headers(data: bytes) -> None:
    """Raises AssertionError, or what should never come, where the header codec breaks a promise."""
    lines = [line.partition(b":") for line in data.split(b"\n") if line]
    try:
        found = normal([(key, value) for key, _, value in lines])
    except SynapseError:
        return
    for cls in (Needs, TextPrompt):
        try:
            synapse = cls.from_headers(found)
        except SynapseError:
            continue
        assert synapse.timeout >= 0
        for profile in Profile:
            sent = synapse.to_headers(profile)
            assert all(value.isascii() and value.isprintable() for value in sent.values())
            again = normal([(key.encode(), value.encode()) for key, value in sent.items()])
            assert cls.from_headers(again).timeout == synapse.timeout
    try:
        claim = claim_of(found, OWN, method="POST", target="/Needs", body=data)
        check(claim, OWN, NOW_NS, Window())
    except SynapseError:
        return
    raise AssertionError("a claim that nobody signed was verified")


def sse(data: bytes) -> None:
    """Raises AssertionError, or what should never come, where the codec of streams breaks a promise."""
    size, stream = (data[0] % 32 + 1 if data else 1), data[1:]
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert _decoded(pieces) == _decoded([stream])
    text = stream.decode("utf-8", "replace")
    raw = encode(text)
    plain = text.replace("\r\n", "\n").replace("\r", "\n").encode()
    for at in {0, size % len(raw), len(raw) // 2, len(raw) - 1}:
        decoder = Decoder()
        events = decoder.feed(raw[:at]) + decoder.feed(raw[at:])
        assert b"".join(event.data for event in events) == plain
        assert len(events) == (2 if text == DONE else 1)
        assert not any(event.done for event in events)


def _decoded(pieces: list[bytes]) -> tuple[list[Event], bool]:
    decoder = Decoder(LIMIT)
    events: list[Event] = []
    for piece in [*pieces, b""]:
        try:
            events += decoder.feed(piece)
        except DeserializationFailed:
            return events, True
        held = sum(len(each) for each in vars(decoder).values() if isinstance(each, bytes | bytearray | str))
        assert held <= 3 * LIMIT
    assert all(len(event.data) <= LIMIT for event in events)
    return events, False


TARGETS = {"headers": headers, "sse": sse}
