"""What hostile bytes may cost: long maps and lists are refused at their first byte, large controls unread."""

from __future__ import annotations

import msgpack
import pytest

from bakemesh.protocol import envelope
from bakemesh.protocol.admit import CONTROL_BYTES, Cause, Refusal, admit
from bakemesh.protocol.errors import MessageError
from bakemesh.protocol.subjects import CONTROL, build


@pytest.mark.parametrize(
    "entries",
    [
        dict.fromkeys(map(str, range(envelope.MOST_IN_A_MAP + 1))),
        {"list": [0] * (envelope.MOST_IN_A_LIST + 1)},
    ],
)
def test_longer_maps_and_lists_are_no_message(entries: dict[str, object]) -> None:
    packed = msgpack.packb(
        {"v": 1, "type": "X", "id": b"i" * 16, "created": 1, "from": "a", "entries": entries}
    )
    with pytest.raises(MessageError):
        envelope.unpack(packed)


def test_the_longest_map_is_read() -> None:
    entries = dict.fromkeys(map(str, range(envelope.MOST_IN_A_MAP)))
    packed = envelope.pack("X", b"i" * 16, 1, "a", entries)
    assert len(envelope.unpack(packed).entries) == envelope.MOST_IN_A_MAP


def test_a_large_control_is_refused_unread() -> None:
    subject = build("psyclone", "alpha", "boss", "boss-r-1", f"{CONTROL}.Pause")
    refused = admit(subject, "_INBOX.boss.1", None, b"\x80" * (CONTROL_BYTES + 1))
    assert isinstance(refused, Refusal)
    assert refused.reason is Cause.UNDECODABLE
    assert refused.reply == "_INBOX.boss.1"
    assert str(CONTROL_BYTES) in refused.detail
