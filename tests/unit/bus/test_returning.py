"""Which sources are silent, and where a hub's copy of a leaf's stream ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bakemesh.bus.returning import SILENT_NS, arrived, domain_of, silent
from bakemesh.bus.streams import source

STREAM = "psyclone-data-edge"


def test_only_a_leafs_source_is_ever_silent() -> None:
    info = {
        "sources": [
            source("psyclone-status-a", None) | {"active": -1},
            source("psyclone-status-b", "b") | {"active": SILENT_NS},
            source("psyclone-status-c", "c") | {"active": SILENT_NS - 1},
            source("psyclone-status-d", "d") | {"active": -1},
            source("psyclone-status-e", "e"),
        ]
    }
    assert silent(info) == {"b", "d", "e"}
    assert silent({}) == set()


def test_a_domain_is_read_from_the_api_alone() -> None:
    assert domain_of(source("s", "edge")) == "edge"
    assert domain_of(source("s", None)) is None
    assert domain_of({"name": "s", "external": {"api": "$JS.API"}}) is None


@given(st.integers(0, 2**40), st.integers(0, 2**40))
def test_a_copy_ends_where_the_later_witness_says(told: int, stored: int) -> None:
    newest = {"Nats-Stream-Source": f"{STREAM}:aHash {stored} > > psyclone.edge.x"}
    assert arrived({"name": STREAM, "seq": told}, newest, STREAM) == max(told, stored)
    assert arrived(None, newest, STREAM) == stored
    assert arrived({"name": STREAM, "seq": told}, {}, STREAM) == told


def test_a_message_of_another_stream_is_no_witness() -> None:
    assert arrived(None, {"Nats-Stream-Source": "psyclone-data-other 9 > >"}, STREAM) == 0
    assert arrived(None, {"Nats-Stream-Source": "garbage"}, STREAM) == 0
