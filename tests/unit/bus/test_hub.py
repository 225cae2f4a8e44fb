"""The source lists as a pure function of the nodes bucket."""

from __future__ import annotations

from bakemesh.bus.hub import Place, places, same, wanted
from bakemesh.bus.kv import Entry
from bakemesh.protocol.message import encode
from support.statuses import system_status


def status(node_id: str, *, leaf: bool = False) -> bytes:
    message = system_status(node_id, leaf=leaf)
    return encode(message, id=bytes(16), created=0, sender="builder@x")


def bucket(**values: bytes) -> dict[str, Entry]:
    return {key.replace("_", "."): Entry(key.replace("_", "."), value, 1) for key, value in values.items()}


def test_nodes_are_those_that_said_so_themselves() -> None:
    entries = bucket(
        beta=status("beta", leaf=True),
        alpha=status("alpha"),
        alpha_claim=b'{"owner": "x"}',
        lock_sources=b"{}",
        rubbish=b"\xff\x00",
        forged=status("alpha"),
    )
    assert places(entries) == [Place("alpha", False), Place("beta", True)]


def test_status_of_all_and_data_of_leaves() -> None:
    of_status, of_data = wanted("m", [Place("beta", True), Place("alpha", False)])
    external = {"api": "$JS.beta.API", "deliver": ""}
    assert of_status == [{"name": "m-status-alpha"}, {"name": "m-status-beta", "external": external}]
    assert of_data == [{"name": "m-data-beta", "external": external}]


def test_lists_are_the_same_whatever_their_order_and_what_the_server_adds() -> None:
    one, _ = wanted("m", [Place("alpha", False), Place("beta", True)])
    assert same(one, [{**one[1], "opt_start_seq": 0}, one[0]])
    moved, _ = wanted("m", [Place("alpha", True), Place("beta", True)])
    assert not same(one, moved)
    assert not same(one, one[:1])
