"""The golden messages of protocol/vectors/: what is valid, what is read tolerantly, what is refused.

Entries are written here as they go on the wire, not made by the models, so that the vectors test the models
and not themselves. Bytes are shown as {"bin": "<hex>"}. The other vectors (subjects, recipe ids, guards,
lifecycle, admission) are written by hand in their files.
"""

from __future__ import annotations

from typing import Any

import msgpack

CREATED = 1_750_000_000_000_000
SENDER = "builder@b1"
IDENTITY = {
    "Supervisor": "nightly",
    "Recipe": "index",
    "RecipeID": "nightly-index-7",
    "Node": "beta",
    "NodeID": "b1",
}
XML = '<recipe name="index"><cli name="hello" command="echo hello"/></recipe>'
BUILDER = "Psyclone.Builder"
STATUS = f"{BUILDER}.Bake.Status"

VALID: list[tuple[str, str, dict[str, Any]]] = [
    ("recipe", f"{BUILDER}.Recipe", {**IDENTITY, "RecipeSpec": XML}),
    (
        "recipe with parameters and an expiry",
        f"{BUILDER}.Recipe",
        {**IDENTITY, "RecipeSpec": XML, "params": {"day": "monday", "n": 3}, "expires": CREATED + 60_000_000},
    ),
    (
        "child recipe",
        f"{BUILDER}.Recipe",
        {
            "Supervisor": "builder-a1",
            "Recipe": "half",
            "RecipeID": "builder-a1-half-2",
            "Node": "beta",
            "NodeID": "b1",
            "RecipeSpec": '<recipe name="half"><cli command="true"/></recipe>',
            "parent": "nightly-index-7",
            "parentsupervisor": "nightly",
        },
    ),
    (
        "push",
        f"{BUILDER}.BakeData",
        {**IDENTITY, "request": "stopwords", "data": b"the\nof\n\x00\xff", "part": 1, "lastpart": 1},
    ),
    *(
        (verb, f"{BUILDER}.BakeControl.{verb}", {**IDENTITY, "ctrlseq": n, "issuedby": "nightly"})
        for n, verb in enumerate(("Pause", "Start", "Cancel", "Terminate", "SkipStep", "RetryStep"), 1)
    ),
    (
        "status: queued",
        STATUS,
        {
            **IDENTITY,
            "kind": "interim",
            "serial": 1,
            "pct": 0,
            "summary": "queued behind 64 bakes",
            "final": 0,
        },
    ),
    (
        "status: start",
        STATUS,
        {**IDENTITY, "kind": "start", "serial": 2, "pct": 0, "summary": "1 step", "final": 0},
    ),
    (
        "status: step begins",
        STATUS,
        {
            **IDENTITY,
            "kind": "step",
            "serial": 3,
            "pct": 0,
            "summary": "hello begins",
            "final": 0,
            "stepindex": 0,
            "step": "hello",
            "attempt": 1,
        },
    ),
    (
        "status: step ends by a signal",
        STATUS,
        {
            **IDENTITY,
            "kind": "step",
            "serial": 4,
            "pct": 100,
            "summary": "hello failed: signal 9 after 1.2 s",
            "final": 0,
            "outcome": "failed",
            "stepindex": 0,
            "step": "hello",
            "attempt": 1,
            "exitcode": -9,
            "lastseq": 0,
        },
    ),
    (
        "status: heartbeat, not applicable percent",
        STATUS,
        {**IDENTITY, "kind": "interim", "serial": 5, "pct": -1, "summary": "paused", "final": 0},
    ),
    (
        "status: ack",
        STATUS,
        {
            **IDENTITY,
            "kind": "ack",
            "serial": 6,
            "pct": 50,
            "summary": "paused by ops",
            "final": 0,
            "outcome": "paused",
            "verb": "Pause",
            "ctrlseq": 1_750_000_000_123,
            "issuedby": "ops",
        },
    ),
    (
        "status: a step asks for data",
        STATUS,
        {
            **IDENTITY,
            "kind": "interim",
            "serial": 7,
            "pct": 20,
            "summary": "waiting for stopwords",
            "final": 0,
            "request": "stopwords",
        },
    ),
    (
        "success",
        f"{BUILDER}.Bake.Success",
        {
            **IDENTITY,
            "kind": "outcome",
            "serial": 8,
            "pct": 100,
            "summary": "1 step done",
            "final": 1,
            "outcome": "success",
            "lastseq": 2,
            "failedsteps": [],
        },
    ),
    (
        "failed",
        f"{BUILDER}.Bake.Failed",
        {
            **IDENTITY,
            "kind": "outcome",
            "serial": 9,
            "pct": 40,
            "summary": "hello failed: exit code 2",
            "final": 1,
            "outcome": "failed",
            "stepindex": 0,
            "lastseq": 2,
            "code": "step_failed",
        },
    ),
    (
        "held",
        f"{BUILDER}.Bake.Paused",
        {
            **IDENTITY,
            "kind": "outcome",
            "serial": 10,
            "pct": 40,
            "summary": "held at hello",
            "final": 0,
            "outcome": "paused",
            "stepindex": 0,
            "code": "held",
        },
    ),
    (
        "cancelled",
        f"{BUILDER}.Bake.Cancelled",
        {
            **IDENTITY,
            "kind": "outcome",
            "serial": 11,
            "pct": 40,
            "summary": "cancelled by nightly",
            "final": 1,
            "outcome": "cancelled",
            "lastseq": 0,
        },
    ),
    (
        "restarted",
        f"{BUILDER}.Bake.Restarted",
        {
            **IDENTITY,
            "kind": "outcome",
            "serial": 12,
            "pct": 40,
            "summary": "runs on",
            "final": 0,
            "outcome": "restarted",
        },
    ),
    (
        "data",
        f"{BUILDER}.Bake.Data",
        {
            **IDENTITY,
            "seq": 1,
            "stepindex": 0,
            "attempt": 1,
            "stream": "stdout",
            "data": b"hello\n",
            "finalchunk": 1,
            "partial": 0,
            "aborted": 0,
        },
    ),
    (
        "data of a child, invalid UTF-8",
        f"{BUILDER}.Bake.Data",
        {
            **IDENTITY,
            "seq": 2,
            "stepindex": 3,
            "attempt": 2,
            "stream": "stderr",
            "data": b"\xff\x00\xfe",
            "finalchunk": 0,
            "partial": 1,
            "aborted": 0,
            "path": "3/0",
        },
    ),
    (
        "result: accepted",
        f"{BUILDER}.Result",
        {**IDENTITY, "verb": "Recipe", "accepted": 1, "code": "ok", "summary": "taken"},
    ),
    (
        "result: invalid recipe",
        f"{BUILDER}.Result",
        {
            **IDENTITY,
            "verb": "Recipe",
            "accepted": 0,
            "code": "invalid_recipe",
            "summary": "line 1: cli has no attribute retyable; did you mean retryable?",
            "problems": [
                {
                    "line": 1,
                    "element": "cli",
                    "attribute": "retyable",
                    "message": "unknown attribute; did you mean retryable?",
                }
            ],
        },
    ),
    (
        "result: nothing known of the sender",
        f"{BUILDER}.Result",
        {"verb": "Pause", "accepted": 0, "code": "malformed_message", "summary": "not a msgpack map"},
    ),
    (
        "system status",
        "Psyclone.SystemStatus",
        {
            "Node": "beta",
            "NodeID": "b1",
            "boot": "3f0c",
            "bakes": 2,
            "queued": 0,
            "load": 0.5,
            "draining": 0,
            "configcomplete": 1,
            "version": "0.1.0",
            "protocols": ["builder-v1"],
            "stepkinds": ["cli", "code", "recipe", "requestdata"],
            "components": [],
            "leaf": 0,
            "storefull": 0,
        },
    ),
    (
        "a type that nobody registered",
        "Robot.Button.Red.Pressed",
        {"Count": 3, "Where": {"x": 1.5, "tags": ["a", b"\x01"]}},
    ),
    (
        "system status with components",
        "Psyclone.SystemStatus",
        {
            "Node": "beta",
            "NodeID": "b1",
            "boot": "3f0c",
            "bakes": 0,
            "queued": 0,
            "load": 0.25,
            "draining": 1,
            "configcomplete": 1,
            "version": "0.1.0",
            "protocols": ["builder-v1"],
            "stepkinds": ["attach", "cli", "code", "module", "recipe", "requestdata"],
            "components": [
                {
                    "name": "counter",
                    "state": "ready",
                    "ready": 1,
                    "restarts": 0,
                    "reason": "",
                    "since": CREATED,
                    "pid": 4711,
                    "digest": "5b5e9b6d8e1f0a27",
                    "owner": "startup-a1",
                    "kind": "script",
                    "watch": {"presses": "17"},
                },
                {
                    "name": "legacy",
                    "state": "backoff",
                    "ready": 0,
                    "restarts": 2,
                    "reason": "exit code 3",
                    "since": CREATED + 1,
                    "pid": None,
                    "digest": "0a275b5e9b6d8e1f",
                    "owner": "startup-a1",
                    "kind": "command",
                    "watch": {},
                },
            ],
            "leaf": 1,
            "storefull": 0,
        },
    ),
    (
        "performance",
        f"{BUILDER}.Performance",
        {
            "Node": "beta",
            "NodeID": "b1",
            "cpu": 0.125,
            "load": 1.5,
            "memory": 2**31,
            "memorytotal": 2**33,
            "disk": 2**40,
            "disktotal": 2**42,
            "queues": {"outbox": 0},
            "temperature": 48.5,
        },
    ),
    (
        "cohort message",
        f"{BUILDER}.Cohort.Message",
        {"cohort": "web", "verb": "reload", "entries": {"since": 5}},
    ),
    (
        "component is ready",
        "Psyclone.Component.Report",
        {"component": "counter", "instance": "c0ffee", "state": "ready", "summary": "crank starts"},
    ),
    (
        "component's crank failed",
        "Psyclone.Component.Report",
        {
            "component": "counter",
            "instance": "c0ffee",
            "state": "failed",
            "summary": "KeyError: 'Count'",
            "traceback": "Traceback (most recent call last):\n  …\nKeyError: 'Count'\n",
        },
    ),
    (
        "component's live value",
        "Psyclone.Component.Watch",
        {"component": "counter", "key": "presses", "value": "17"},
    ),
    (
        "message handed to a component",
        "Psyclone.Component.Deliver",
        {
            "component": "counter",
            "trigger": "Web",
            "type": f"{BUILDER}.Cohort.Message",
            "from": "ops@a1",
            "entries": {"cohort": "web", "verb": "reload", "entries": {"since": 5}},
        },
    ),
    *(
        (
            f"component: {verb}",
            f"{BUILDER}.ComponentControl.{verb}",
            {"component": "counter", "issuedby": "ops"},
        )
        for verb in ("Restart", "Stop", "Start", "Remove")
    ),
    ("node: Drain", f"{BUILDER}.NodeControl.Drain", {"issuedby": "ops", "timeoutms": 60_000}),
    ("node: Resume", f"{BUILDER}.NodeControl.Resume", {"issuedby": "ops"}),
    ("node: Down", f"{BUILDER}.NodeControl.Down", {"issuedby": "ops", "timeoutms": 0}),
    (
        "ready",
        "Psyclone.Ready",
        {
            "Node": "beta",
            "NodeID": "b1",
            "boot": "3f0c",
            "psyspec": "demo",
            "digest": "8e1f0a275b5e9b6d",
            "components": ["counter", "legacy"],
        },
    ),
    (
        "a PsySpec",
        "Psyclone.Startup.PsySpec",
        {
            "psyspec": '<psySpec name="demo"><module name="m"><crank command="run"/></module></psySpec>',
            "issuedby": "ops",
        },
    ),
    (
        "reconciled",
        "Psyclone.Startup.Reconciled",
        {
            "Node": "beta",
            "NodeID": "b1",
            "digest": "8e1f0a275b5e9b6d",
            "added": ["m"],
            "removed": [],
            "restarted": ["counter"],
            "unchanged": 1,
        },
    ),
    (
        "live value of one start of a component",
        "Psyclone.Component.Watch",
        {"component": "counter", "key": "presses", "value": "17", "instance": "c0ffee"},
    ),
]

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


def _packed(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed


def bad_bytes() -> list[tuple[str, bytes]]:
    """Payloads that are refused before their entries are looked at."""
    good = envelope(STATUS, _STATUS_ENTRIES, 0)
    return [
        ("nothing", b""),
        ("no msgpack", b"\xc1"),
        ("a map cut short", _packed(good)[:-3]),
        ("bytes behind the map", _packed(good) + b"\x00"),
        ("no map", _packed([1, 2, 3])),
        ("text that is no UTF-8", b"\x81\xa1v\xa1\xff"),
        ("a map with a list as its key", b"\x81\x91\x01\x01"),
        ("500 lists in one another", b"\x91" * 500 + b"\xc0"),
        ("100,000 lists in one another", b"\x91" * 100_000 + b"\xc0"),
        ("a map that claims to be huge", b"\xdf\xff\xff\xff\xff"),
        ("another version", _packed({**good, "v": 2})),
        ("version as text", _packed({**good, "v": "1"})),
        ("version true", _packed({**good, "v": True})),
        ("no version", _packed(without(good, "v"))),
        ("no type", _packed(without(good, "type"))),
        ("an empty type", _packed({**good, "type": ""})),
        ("type as bytes", _packed({**good, "type": STATUS.encode()})),
        ("id of 15 bytes", _packed({**good, "id": bytes(15)})),
        ("id as text", _packed({**good, "id": "0" * 16})),
        ("created as a float", _packed({**good, "created": 1.5})),
        ("created beyond 2^63-1", _packed({**good, "created": 2**63})),
        ("created below zero", _packed({**good, "created": -1})),
        ("from missing", _packed(without(good, "from"))),
        ("entries missing", _packed(without(good, "entries"))),
    ]


def shown(value: Any) -> Any:
    """A decoded value as JSON shows it: bytes as {"bin": hex}, keys as text."""
    if isinstance(value, bytes):
        return {"bin": value.hex()}
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shown(item) for item in value]
    return value


def files() -> dict[str, Any]:
    """The generated vectors, by the name of their file."""
    valid = []
    for number, (name, type_, entries) in enumerate(VALID, 1):
        whole = envelope(type_, entries, number)
        valid.append({"name": name, "hex": _packed(whole).hex(), "decoded": shown(whole)})
    tolerated = [
        {
            "name": name,
            "type": type_,
            "hex": _packed(envelope(type_, sent, 1000 + number)).hex(),
            "entries": shown(read),
        }
        for number, (name, type_, sent, read) in enumerate(TOLERATED)
    ]
    refused: list[dict[str, Any]] = [
        {"name": name, "hex": raw.hex()} for name, raw in bad_bytes() if len(raw) < 10_000
    ]
    refused += [
        {
            "name": name,
            "hex": _packed(envelope(type_, entries, 2000 + number)).hex(),
            "type": type_,
            "entry": entry,
        }
        for number, (name, type_, entries, entry) in enumerate(BAD_ENTRIES)
    ]
    return {"messages.json": valid, "messages-tolerated.json": tolerated, "messages-refused.json": refused}
