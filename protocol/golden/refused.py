"""Messages that are read tolerantly, and those that are refused: entries, envelopes, bytes."""

from __future__ import annotations

from typing import Any

import msgpack

from golden.entries import BUILDER, CREATED, IDENTITY, SENDER, STATUS, XML

_PAUSE = f"{BUILDER}.BakeControl.Pause"
_STATUS_ENTRIES = {**IDENTITY, "kind": "interim", "serial": 1, "pct": -1, "summary": "s", "final": 0}
_PUSH = {**IDENTITY, "request": "r", "data": b"d", "part": 1, "lastpart": 1}

# (name, type, entries as sent, entries as read)
TOLERATED: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    (
        "keys in another case",
        _PAUSE,
        {
            "supervisor": "s",
            "RECIPE": "r",
            "recipeId": "s-r-1",
            "node": "n",
            "nodeid": "n",
            "CtrlSeq": 4,
            "IssuedBy": "s",
        },
        {
            "Supervisor": "s",
            "Recipe": "r",
            "RecipeID": "s-r-1",
            "Node": "n",
            "NodeID": "n",
            "ctrlseq": 4,
            "issuedby": "s",
        },
    ),
    (
        "unknown entries are kept as they came",
        _PAUSE,
        {**IDENTITY, "ctrlseq": 1, "issuedby": "nightly", "Why": "lunch", "recipe_id": "x"},
        {**IDENTITY, "ctrlseq": 1, "issuedby": "nightly", "Why": "lunch", "recipe_id": "x"},
    ),
    ("text data is UTF-8", f"{BUILDER}.BakeData", {**_PUSH, "data": "é"}, {**_PUSH, "data": b"\xc3\xa9"}),
    ("flags as booleans", STATUS, {**_STATUS_ENTRIES, "final": True}, {**_STATUS_ENTRIES, "final": 1}),
    (
        "defaults",
        f"{BUILDER}.BakeData",
        {**IDENTITY, "request": "r", "data": b"d"},
        {**_PUSH},
    ),
    ("nil is absent", STATUS, {**_STATUS_ENTRIES, "outcome": None}, _STATUS_ENTRIES),
    (
        "a kind of tomorrow",
        STATUS,
        {**_STATUS_ENTRIES, "kind": "audit"},
        {**_STATUS_ENTRIES, "kind": "audit"},
    ),
    (
        "an unknown verb",
        f"{BUILDER}.BakeControl.Explode",
        {**IDENTITY, "ctrlseq": 1, "issuedby": "nightly"},
        {**IDENTITY, "ctrlseq": 1, "issuedby": "nightly"},
    ),
]


def without(entries: dict[str, Any], key: str) -> dict[str, Any]:
    """The entries, one left out."""
    return {name: value for name, value in entries.items() if name != key}


_CONTROL_ENTRIES = {**IDENTITY, "ctrlseq": 1, "issuedby": "nightly"}
_REPORT = "Psyclone.Component.Report"
_REPORT_ENTRIES = {"component": "counter", "instance": "c0ffee", "state": "ready", "summary": "s"}

# (name, type, entries, the entry that is wrong)
BAD_ENTRIES: list[tuple[str, str, Any, str | None]] = [
    ("status without an identity entry", STATUS, without(_STATUS_ENTRIES, "NodeID"), "NodeID"),
    ("control without an identity entry", _PAUSE, without(_CONTROL_ENTRIES, "RecipeID"), "RecipeID"),
    ("two keys that differ only in case", STATUS, {**_STATUS_ENTRIES, "Serial": 1}, "Serial"),
    ("two unknown keys that differ only in case", STATUS, {**_STATUS_ENTRIES, "why": 1, "Why": 1}, "Why"),
    ("a key that is no text", STATUS, {**_STATUS_ENTRIES, 5: 1}, None),
    ("RecipeSpec missing", f"{BUILDER}.Recipe", IDENTITY, "RecipeSpec"),
    ("RecipeSpec as bytes", f"{BUILDER}.Recipe", {**IDENTITY, "RecipeSpec": XML.encode()}, "RecipeSpec"),
    (
        "params with a key that is no text",
        f"{BUILDER}.Recipe",
        {**IDENTITY, "RecipeSpec": XML, "params": {1: 1}},
        "params",
    ),
    ("serial as text", STATUS, {**_STATUS_ENTRIES, "serial": "1"}, "serial"),
    ("serial as a boolean", STATUS, {**_STATUS_ENTRIES, "serial": True}, "serial"),
    ("serial 0", STATUS, {**_STATUS_ENTRIES, "serial": 0}, "serial"),
    ("pct above 100", STATUS, {**_STATUS_ENTRIES, "pct": 101}, "pct"),
    ("pct below -1", STATUS, {**_STATUS_ENTRIES, "pct": -2}, "pct"),
    ("pct as a float", STATUS, {**_STATUS_ENTRIES, "pct": 50.0}, "pct"),
    ("summary of 513 bytes", STATUS, {**_STATUS_ENTRIES, "summary": "ä" * 256 + "."}, "summary"),
    ("a flag that is 2", STATUS, {**_STATUS_ENTRIES, "final": 2}, "final"),
    ("a flag that is 1.0", STATUS, {**_STATUS_ENTRIES, "final": 1.0}, "final"),
    ("a flag that is yes", STATUS, {**_STATUS_ENTRIES, "final": "yes"}, "final"),
    ("part 0", f"{BUILDER}.BakeData", {**_PUSH, "part": 0}, "part"),
    ("data as an int", f"{BUILDER}.BakeData", {**_PUSH, "data": 5}, "data"),
    ("a negative ctrlseq", _PAUSE, {**_CONTROL_ENTRIES, "ctrlseq": -1}, "ctrlseq"),
    ("a ctrlseq beyond 2^63-1", _PAUSE, {**_CONTROL_ENTRIES, "ctrlseq": 2**63}, "ctrlseq"),
    ("issuedby as a map", _PAUSE, {**_CONTROL_ENTRIES, "issuedby": {}}, "issuedby"),
    ("entries as a list", STATUS, [1, 2], None),
    ("a report of another state", _REPORT, {**_REPORT_ENTRIES, "state": "fine"}, "state"),
    ("a report without its instance", _REPORT, without(_REPORT_ENTRIES, "instance"), "instance"),
    (
        "a live value of 257 bytes",
        "Psyclone.Component.Watch",
        {"component": "counter", "key": "k", "value": "v" * 257},
        "value",
    ),
    (
        "a component's control without a component",
        f"{BUILDER}.ComponentControl.Stop",
        {"issuedby": "ops"},
        "component",
    ),
    (
        "a node's control with a negative time",
        f"{BUILDER}.NodeControl.Drain",
        {"issuedby": "ops", "timeoutms": -1},
        "timeoutms",
    ),
    (
        "a PsySpec as bytes",
        "Psyclone.Startup.PsySpec",
        {"psyspec": b"<psySpec/>", "issuedby": "ops"},
        "psyspec",
    ),
]


def envelope(type_: str, entries: Any, number: int, **other: Any) -> dict[str, Any]:
    """The map that goes on the wire; its id counts the vectors."""
    return {
        "v": 1,
        "type": type_,
        "id": bytes(14) + number.to_bytes(2, "big"),
        "created": CREATED,
        "from": SENDER,
        "entries": entries,
        **other,
    }


def packed(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed


def bad_bytes() -> list[tuple[str, bytes]]:
    """Payloads that are refused before their entries are looked at."""
    good = envelope(STATUS, _STATUS_ENTRIES, 0)
    return [
        ("nothing", b""),
        ("no msgpack", b"\xc1"),
        ("a map cut short", packed(good)[:-3]),
        ("bytes behind the map", packed(good) + b"\x00"),
        ("no map", packed([1, 2, 3])),
        ("text that is no UTF-8", b"\x81\xa1v\xa1\xff"),
        ("a map with a list as its key", b"\x81\x91\x01\x01"),
        ("500 lists in one another", b"\x91" * 500 + b"\xc0"),
        ("100,000 lists in one another", b"\x91" * 100_000 + b"\xc0"),
        ("a map that claims to be huge", b"\xdf\xff\xff\xff\xff"),
        ("another version", packed({**good, "v": 2})),
        ("version as text", packed({**good, "v": "1"})),
        ("version true", packed({**good, "v": True})),
        ("no version", packed(without(good, "v"))),
        ("no type", packed(without(good, "type"))),
        ("an empty type", packed({**good, "type": ""})),
        ("type as bytes", packed({**good, "type": STATUS.encode()})),
        ("id of 15 bytes", packed({**good, "id": bytes(15)})),
        ("id as text", packed({**good, "id": "0" * 16})),
        ("created as a float", packed({**good, "created": 1.5})),
        ("created beyond 2^63-1", packed({**good, "created": 2**63})),
        ("created below zero", packed({**good, "created": -1})),
        ("from missing", packed(without(good, "from"))),
        ("entries missing", packed(without(good, "entries"))),
    ]
