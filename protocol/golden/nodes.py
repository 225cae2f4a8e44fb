"""Valid messages of nodes: their status, components, cohorts, the Startup Supervisor."""

from __future__ import annotations

from typing import Any

from golden.entries import BUILDER, CREATED

NODES: list[tuple[str, str, dict[str, Any]]] = [
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
