"""The small pure parts: order of stopping, the node's start, what is launched, rows."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import stat
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.builder.clock import Clock
from bakemesh.builder.components import launch
from bakemesh.builder.components.boot import decide, end_boot, settle_boot
from bakemesh.builder.components.component import Ground
from bakemesh.builder.components.host import Components, latest
from bakemesh.builder.components.launch import Place
from bakemesh.builder.components.life import Life, policy_of
from bakemesh.builder.components.order import levels
from bakemesh.builder.components.output import Mark
from bakemesh.builder.components.records import Maker, Row, all_rows, drop_row, save_row
from bakemesh.builder.components.states import State
from bakemesh.builder.journal import Journal
from bakemesh.builder.journal.schema import TABLES
from bakemesh.protocol.builder.spec.component import (
    CommandCrank,
    ComponentSpec,
    Parameter,
    ScriptCrank,
    ServiceCrank,
)

NAMES = [f"m{n}" for n in range(8)]
TRUE = CommandCrank(argv=("true",))


def place(folder: Path, **more: object) -> Place:
    given = {
        "folder": folder,
        "node": "Alpha",
        "node_id": "alpha",
        "mesh": "psyclone",
        "nats": ("nats://a:1", "nats://b:2"),
        "environment": {"PATH": "/bin", "BAKEMESH_NODE": "forged", "MINE": "chosen"},
        **more,
    }
    return Place(**given)  # type: ignore[arg-type]


# -- what SystemStatus says

WORDS = st.text(st.characters(codec="utf-8"), max_size=20)


@given(st.dictionaries(WORDS, WORDS), st.integers(0, 400))
def test_live_values_keep_within_their_room_and_the_latest_stay(watch: dict[str, str], room: int) -> None:
    kept = latest(watch, room)
    assert sum(len(f"{key}{value}".encode()) for key, value in kept.items()) <= room
    assert list(kept.items()) == list(watch.items())[len(watch) - len(kept) :]
    assert latest(watch, 10**6) == watch


# -- order


@given(
    st.permutations(NAMES),
    st.dictionaries(st.sampled_from(NAMES), st.lists(st.sampled_from([*NAMES, "elsewhere"]), max_size=4)),
)
def test_nobody_is_stopped_before_what_depends_on_it(
    started: list[str], wishes: dict[str, list[str]]
) -> None:
    # Acyclic: a component depends on such that were started before it.
    depends = {
        name: [
            other for other in others if other == "elsewhere" or started.index(other) < started.index(name)
        ]
        for name, others in wishes.items()
    }
    groups = levels(started, depends)
    assert sorted(name for group in groups for name in group) == sorted(started)
    at = {name: number for number, group in enumerate(groups) for name in group}
    for name, others in depends.items():
        for other in others:
            assert other == "elsewhere" or at[name] < at[other]
    for group in groups:
        assert all(started.index(one) > started.index(two) for one, two in pairwise(group))


def test_a_circle_is_one_group_and_no_hang() -> None:
    assert levels(["a", "b", "c"], {"a": ["b"], "b": ["a"]}) == [["c"], ["b", "a"]]
    assert levels(["a"], {"a": ["a"]}) == [["a"]]


# -- the node's start


@pytest.mark.parametrize(
    ("kept", "machine", "copied", "new"),
    [
        ("b", "m", False, False),
        (None, "m", False, True),
        ("", "m", False, True),
        ("b", "n", False, True),
        ("b", "m", True, True),
    ],
)
def test_when_a_start_is_a_new_one(kept: str | None, machine: str, copied: bool, new: bool) -> None:
    assert decide(kept, machine, "m", copied=copied) is new


async def test_the_start_is_kept_in_the_journal_until_it_is_ended(tmp_path: Path) -> None:
    async def settled(machine: str = "m1", *, copied: bool = False) -> str:
        journal = Journal(tmp_path / "journal.db")
        try:
            return (await settle_boot(journal, copied=copied, machine=machine)).id
        finally:
            journal.close()

    first = await settled()
    assert await settled() == first
    journal = Journal(tmp_path / "journal.db")
    await end_boot(journal, "of long ago")
    assert await settled() == first
    await end_boot(journal, first)
    await end_boot(journal, first)
    journal.close()
    second = await settled()
    assert second != first
    assert await settled() == second
    rebooted = await settled("m2")
    assert rebooted != second
    assert await settled("m2", copied=True) != rebooted


def test_a_journal_of_the_version_before_is_opened_and_has_the_table_then(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    db = sqlite3.connect(path)
    db.executescript(TABLES)
    db.execute("DROP TABLE components")
    db.execute("PRAGMA user_version=2")
    db.close()
    journal = Journal(path)
    assert all_rows(journal.db) == []
    assert journal.db.execute("PRAGMA user_version").fetchone() == (3,)
    journal.close()


async def test_a_start_that_was_broken_off_leaves_nobody_behind(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path / "journal.db")
    row = Row(n=1, name="m", owner="boss", boot="b", life=Life(spec=ComponentSpec(name="m", crank=TRUE)))
    await journal.commit(lambda db: save_row(db, row))

    def ground(components: Components) -> Ground:
        none: Any = None  # what runs nothing needs no keeper
        return Ground(
            journal=journal, keeper=none, nursery=none, bus=none, clock=Clock(), place=place(tmp_path),
            boot="b", changed=lambda: None, forgotten=components.forgotten,
        )  # fmt: skip

    components = Components(ground)
    for _ in range(2):
        await components.start()
        assert [task.get_name() for task in asyncio.all_tasks()].count("component m") == 1
    await components.close()
    journal.close()


# -- what is launched


def test_what_the_node_says_of_itself_wins_over_what_the_spec_sets(tmp_path: Path) -> None:
    spec = ComponentSpec(
        name="m",
        crank=CommandCrank(argv=("x",)),
        env=(("MINE", "spec"), ("BAKEMESH_INSTANCE", "forged")),
        parameters=(Parameter(name="rate-ms", value=7),),
    )
    found = launch.environment_of(spec, place(tmp_path), "i1")
    assert found["BAKEMESH_NODE"] == "Alpha"
    assert found["BAKEMESH_INSTANCE"] == "i1"
    assert found["BAKEMESH_NATS"] == "nats://a:1,nats://b:2"
    assert found["BAKEMESH_PARAM_RATE_MS"] == "7"
    assert found["MINE"] == "spec"


def test_a_start_file_is_the_owner_s_alone_and_says_all_that_a_host_needs(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "m.nk").touch()
    spec = ComponentSpec(name="m", crank=ScriptCrank(script="a.py", source="def crank(c): ..."))
    folder = launch.prepare(spec, place(tmp_path / "components", keys=keys), "i1")
    start = folder / "start.json"
    assert stat.S_IMODE(start.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    told = json.loads(start.read_text())
    assert ComponentSpec.from_json(json.dumps(told.pop("spec"))) == spec
    assert told == {
        "instance": "i1",
        "node": "Alpha",
        "nodeid": "alpha",
        "mesh": "psyclone",
        "nats": ["nats://a:1", "nats://b:2"],
        "creds": str(keys / "m.nk"),
        "tls": None,
        "data": str(folder / "data"),
    }
    other = ComponentSpec(name="n", crank=CommandCrank(argv=("x",)))
    assert json.loads(launch.told(other, place(tmp_path, keys=keys), "i2"))["creds"] is None


def test_what_runs_a_crank(tmp_path: Path) -> None:
    script = ComponentSpec(name="m", crank=ScriptCrank(script="a.py"))
    assert launch.argv_of(script, tmp_path)[1:] == ("-m", "bakemesh.crankhost", f"{tmp_path}/start.json")
    assert launch.missing(script) is None
    service = ComponentSpec(name="m", crank=ServiceCrank(service="axon"))
    assert launch.argv_of(service, tmp_path)[1:3] == ("-m", "bakemesh.axon")
    absent = ComponentSpec(name="m", crank=ServiceCrank(service="no-such"))
    assert launch.missing(absent) == "this installation has no service no-such"


def test_the_policy_is_the_spec_s_and_the_re_probe_comes_after_a_quiet_window() -> None:
    spec = ComponentSpec(
        name="m",
        crank=CommandCrank(argv=("x",)),
        restart="on-failure",
        max_restarts=5,
        restart_window_ms=2000,
    )
    policy = policy_of(spec)
    assert (policy.when, policy.max_restarts, policy.window_s, policy.probe_s) == ("on-failure", 5, 2.0, 2.0)
    assert policy_of(ComponentSpec(name="m", crank=spec.crank, restart_window_ms=10**8)).probe_s == 10**5


# -- rows


def test_a_row_comes_back_as_it_was_saved() -> None:
    db = sqlite3.connect(":memory:")
    db.executescript(TABLES)
    life = Life(
        spec=ComponentSpec(name="m", crank=CommandCrank(argv=("x",))), state=State.READY, instance="i"
    )
    row = Row(n=3, name="m", owner="boss", boot="b", life=life, maker=Maker(1, 2, 3), mark=Mark(4, 5, 6))
    other = Row(n=1, name="n", owner="boss", boot="b", life=life)
    save_row(db, row)
    save_row(db, other)
    save_row(db, row)
    assert all_rows(db) == [other, row]
    drop_row(db, 3)
    assert all_rows(db) == [other]
