"""Components beside their steps: controls, reports, live values, health, what SystemStatus says of them."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from bakemesh.builder.components.launch import Place
from bakemesh.builder.components.probe import Prober
from bakemesh.bus import Bus
from bakemesh.bus.replies import received
from bakemesh.processes import Keeper
from bakemesh.protocol.admit import Delivery
from bakemesh.protocol.builder.messages import BakeSuccess, Result
from bakemesh.protocol.builder.node import ComponentReport, ComponentWatch, RestartComponent
from bakemesh.protocol.builder.spec.component import CommandCrank, ComponentSpec, Health
from bakemesh.protocol.subjects import NO_KEY, build, pattern
from bakemesh.supervisor import Supervisor
from support.mesh import Mesh, mesh
from support.modules import (
    SLEEP,
    Board,
    board,
    everything_of,
    instances,
    module,
    order,
    recipe,
    rows_in,
    say,
)
from support.waiting import eventually

MODULES = ("m", "n", "far")


class Hall:
    """A guarded mesh, its Supervisor, eyes on SystemStatus, and the module's own connection."""

    def __init__(self, net: Mesh, boss: Supervisor, seen: Board, own: Bus, witness: Bus) -> None:
        self.net, self.boss, self.seen, self.own, self.witness = net, boss, seen, own, witness

    @property
    def state(self) -> Path:
        return self.net.node.state

    async def up(self, *steps: str) -> None:
        bake = await self.boss.bake(recipe(*steps), node_id="alpha")
        outcome = await bake.outcome()
        assert isinstance(outcome, BakeSuccess), outcome

    def instance(self, name: str = "m") -> str:
        found = rows_in(self.state)[name].life.instance
        assert found is not None
        return found


@pytest.fixture
async def hall(tmp_path: Path) -> AsyncIterator[Hall]:
    flags = ("--operator", "ops", "--on-stop", "stop")
    async with (
        mesh(tmp_path, *flags, modules=MODULES, witnesses=("witness",)) as net,
        net.supervisor("boss") as boss,
        net.connect("m") as own,
        net.connect("witness") as witness,
        board(witness) as seen,
    ):
        yield Hall(net, boss, seen, own, witness)
        assert await net.node.stop() == 0
        assert everything_of(net.node.state) == []
        assert "Traceback" not in net.node.log.read_text().replace("Traceback of the test", "")


# -- controls


async def test_stop_start_restart_and_remove(hall: Hall) -> None:
    await hall.up(module("m"))
    first = await hall.seen.until("m", "ready")
    async with hall.net.connect("boss") as bus:
        assert (await order(bus, "Stop", "m", issuer="boss")).accepted
        row = await hall.seen.until("m", "stopped")
        assert (row["reason"], row["pid"]) == ("stopped by boss", 0)
        assert instances("m", hall.state) == []
        assert (await order(bus, "Start", "m", issuer="boss")).accepted
        second = await hall.seen.until("m", "ready")
        assert (await order(bus, "Restart", "m", issuer="boss")).accepted
        third = await hall.seen.until(
            "m", lambda row: row["state"] == "ready" and row["pid"] != second["pid"]
        )
        assert len({first["pid"], second["pid"], third["pid"]}) == 3
        assert third["restarts"] == 0, "its policy restarted nothing"
        assert (await order(bus, "Remove", "m", issuer="boss")).accepted
        await hall.seen.without("m")
        await eventually(lambda: not (hall.state / "components" / "m").exists(), what="the folder's end")
        assert instances("m", hall.state) == []
        unknown = await order(bus, "Stop", "m", issuer="boss")
        assert (unknown.accepted, unknown.code) == (False, "unknown_component")
    await hall.up(module("m"))
    await hall.seen.until("m", "ready")


async def test_who_may_ask_what(hall: Hall) -> None:
    await hall.up(module("m"))
    async with hall.net.connect("other") as bus:
        stranger = await order(bus, "Stop", "m", issuer="other")
        assert stranger.code == "unauthorised"
        assert "other neither owns m" in stranger.summary
        forged = await order(bus, "Stop", "m", issuer="other", issuedby="boss")
        assert forged.code == "unauthorised"
        other_key = await order(bus, "Stop", "m", issuer="other", component="n")
        assert other_key.code == "malformed_message"
        subject = build(bus.mesh, "alpha", "other", "m", "Psyclone.Builder.ComponentControl.Explode")
        message = RestartComponent(component="m", issuedby="other")
        payload = bus.seal(message, type="Psyclone.Builder.ComponentControl.Explode").payload
        answer = received(subject, await bus.link.ask(subject, payload, 5)).message
        assert isinstance(answer, Result)
        assert answer.code == "malformed_verb"
        assert "Restart" in answer.summary
    async with hall.net.connect("ops") as bus:
        assert (await order(bus, "Stop", "m", issuer="ops")).accepted
    await hall.seen.until("m", "stopped")


# -- reports


async def test_a_report_makes_ready_and_one_of_another_instance_is_refused(hall: Hall) -> None:
    await hall.up(module("m", SLEEP, ready_ms=600_000, wait=False))
    await hall.seen.until("m", lambda row: row["pid"])
    stale = ComponentReport(component="m", instance="of-yesterday", state="ready", summary="here")
    answer = await say(hall.own, stale, party="m")
    assert (answer.accepted, answer.code, answer.verb) == (False, "unknown_component", "Report")
    assert (hall.seen.row("m") or {})["state"] == "starting"
    good = ComponentReport(component="m", instance=hall.instance(), state="ready", summary="here")
    assert (await say(hall.own, good, party="m")).accepted
    assert rows_in(hall.state)["m"].life.state == "ready", "journaled when it is answered"
    assert (await say(hall.own, good, party="m")).accepted, "said again it changes nothing"
    await hall.seen.until("m", "ready")


async def test_nobody_reports_for_another(hall: Hall) -> None:
    await hall.up(module("m", SLEEP, ready_ms=600_000, wait=False))
    message = ComponentReport(component="m", instance=hall.instance(), state="ready", summary="here")
    async with hall.net.connect("n") as bus:
        assert (await say(bus, message, party="n")).code == "unauthorised"
    unknown = message.model_copy(update={"component": "far"})
    async with hall.net.connect("far") as bus:
        assert (await say(bus, unknown, party="far")).code == "unknown_component"


async def test_a_reported_failure_is_the_reason_with_its_traceback(hall: Hall) -> None:
    gate = hall.net.folder / "gate"
    script = f"while [ ! -e {gate} ]; do sleep 0.02; done; exit 70"
    await hall.up(module("m", script, max_restarts=0))
    failed = ComponentReport(
        component="m",
        instance=hall.instance(),
        state="failed",
        summary="ValueError: no such thing",
        traceback="Traceback of the test\n" + "x" * 20_000 + "\nValueError: no such thing",
    )
    assert (await say(hall.own, failed, party="m")).accepted
    gate.touch()
    row = await hall.seen.until("m", "quarantined")
    assert "its crank failed (exit code 70): ValueError: no such thing" in row["reason"]
    assert row["reason"].endswith("ValueError: no such thing")
    assert len(row["reason"].encode()) <= 2048
    assert "Traceback of the test" not in row["reason"], "of a long traceback the end is kept"


async def test_a_flood_of_reports_is_refused_and_says_when_to_come_again(hall: Hall) -> None:
    await hall.up(module("m"))
    message = ComponentReport(component="m", instance=hall.instance(), state="ready", summary="here")
    answers = await asyncio.gather(*(say(hall.own, message, party="m") for _ in range(60)))
    limited = [answer for answer in answers if not answer.accepted]
    assert limited
    assert {answer.code for answer in limited} == {"rate_limited"}
    assert all(answer.retryms for answer in limited)


# -- live values


async def test_live_values_are_kept_within_bounds_and_go_with_their_instance(hall: Hall) -> None:
    await hall.up(module("m"))

    async def tell(key: str, value: str, party: str = "m") -> None:
        subject = build(hall.own.mesh, "alpha", party, NO_KEY, ComponentWatch.TYPE)
        await hall.own.publish(subject, ComponentWatch(component="m", key=key, value=value))

    for number in range(80):
        await tell(f"k{number}", str(number))
    await tell("k79", "last")
    row = await hall.seen.until("m", lambda row: row["watch"].get("k79") == "last")
    assert len(row["watch"]) == 72
    assert "k0" not in row["watch"]
    os.kill(row["pid"], signal.SIGKILL)
    await hall.seen.until(
        "m", lambda new: new["state"] == "ready" and new["pid"] != row["pid"] and not new["watch"]
    )


async def test_a_late_live_value_of_an_instance_before_is_not_shown_on_the_next(hall: Hall) -> None:
    await hall.up(module("m"))
    row, old = await hall.seen.until("m", "ready"), hall.instance()
    os.kill(row["pid"], signal.SIGKILL)
    await hall.seen.until("m", lambda new: new["state"] == "ready" and new["pid"] != row["pid"])
    subject = build(hall.own.mesh, "alpha", "m", NO_KEY, ComponentWatch.TYPE)
    for key, instance in (("late", old), ("present", hall.instance())):
        message = ComponentWatch(component="m", key=key, value="1", instance=instance)
        await hall.own.publish(subject, message)
    row = await hall.seen.until("m", lambda row: "present" in row["watch"])
    assert row["watch"] == {"present": "1"}


# -- health


async def test_a_component_that_fails_its_probes_is_ended_and_started_again(hall: Hall) -> None:
    sick = hall.net.folder / "sick"
    probe = f'<health command="/usr/bin/test ! -e {sick}" interval-ms="50" misses="2"/>'
    await hall.up(module("m", SLEEP, probe))
    first = await hall.seen.until("m", "ready")
    sick.touch()
    await hall.seen.until("m", lambda row: row["state"] in ("backoff", "starting"))
    sick.unlink()
    second = await hall.seen.until("m", lambda row: row["state"] == "ready" and row["pid"] != first["pid"])
    assert second["restarts"] >= 1
    assert "missed 2 health probes" in hall.net.node.log.read_text()
    assert instances("m", hall.state) == [second["pid"]]


async def test_a_probe_that_hangs_is_missed_and_nothing_of_it_is_left(hall: Hall) -> None:
    hang = hall.net.folder / "hang"
    script = f"if [ -e {hang} ]; then sleep 987; fi"
    probe = f'<health command="/bin/sh -c \'{script}\'" interval-ms="50" timeout-ms="200" misses="1"/>'
    await hall.up(module("m", SLEEP, probe, max_restarts=0, restart_window_ms=3_600_000))
    await hall.seen.until("m", "ready")
    hang.touch()
    row = await hall.seen.until("m", "quarantined")
    assert "no end within 200 ms" in row["reason"]

    def hanging() -> list[str]:
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    words = Path(f"/proc/{entry}/environ").read_bytes()
                    line = Path(f"/proc/{entry}/cmdline").read_bytes()
                except OSError:
                    continue
                if b"987" in line and b"BAKEMESH_COMPONENT=m\0" in words:
                    found.append(entry)
        return found

    await eventually(lambda: not hanging(), what="the end of the probe's processes")


async def test_a_keeper_that_is_lost_says_nothing_about_a_component(tmp_path: Path) -> None:
    keeper = await Keeper.start(uuid.uuid4().hex)
    await keeper.close()
    spec = ComponentSpec(name="m", crank=CommandCrank(argv=("true",)), health=Health(argv=("true",)))
    place = Place(folder=tmp_path, node="A", node_id="a", mesh="m", nats=(), environment={})
    prober = Prober(spec, "i", place, keeper, cast(Bus, None), lambda _why: None, lambda: True)
    assert await prober.once() is None


async def test_health_by_a_subject_of_its_own_is_any_answer(hall: Hall) -> None:
    await hall.up(module("m", SLEEP, '<health subject="M.Ping" interval-ms="50" misses="3"/>', wait=False))
    row = await hall.seen.until("m", lambda row: "nobody answers M.Ping" in row["reason"])
    assert row["state"] == "starting"
    asked: list[str] = []

    async def reply(delivery: Delivery) -> Result:
        asked.append(str(delivery.subject))
        return Result(verb="Ping", accepted=True, code="ok", summary="well")

    serving = await hall.own.serve(pattern(hall.own.mesh, "M.Ping", key="m"), reply)
    ready = await hall.seen.until("m", "ready")
    assert asked[0] == "psyclone.alpha.builder-alpha.m.M.Ping"
    await serving.stop()
    await hall.seen.until("m", lambda new: new["state"] != "ready" or new["pid"] != ready["pid"])


# -- what it is given, what is held


async def test_its_environment_folder_and_start_file(hall: Hall) -> None:
    inside = '<parameter name="rate-ms" type="Integer" value="7"/><env name="MINE" value="set"/>'
    await hall.up(module("m", SLEEP, inside))
    row = await hall.seen.until("m", "ready")
    words = Path(f"/proc/{row['pid']}/environ").read_bytes().decode().split("\0")
    given = dict(word.split("=", 1) for word in words if "=" in word)
    assert given["BAKEMESH_COMPONENT"] == "m"
    assert given["BAKEMESH_INSTANCE"] == hall.instance()
    assert given["BAKEMESH_PARAM_RATE_MS"] == "7"
    assert given["BAKEMESH_NODEID"] == "alpha"
    assert given["BAKEMESH_NATS"] == hall.net.url
    assert given["MINE"] == "set"
    assert "BAKEMESH_STEP_OF" not in given
    folder = hall.state / "components" / "m"
    assert os.readlink(f"/proc/{row['pid']}/cwd") == str(folder / "data")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "start.json").stat().st_mode & 0o777 == 0o600


async def test_limits_that_cannot_be_held_are_said_once(hall: Hall) -> None:
    cgroups = Path("/sys/fs/cgroup/cgroup.subtree_control")
    await hall.up(module("m", SLEEP, cpu_share="0.5"))
    await hall.seen.until("m", "ready")
    async with hall.net.connect("boss") as bus:
        await order(bus, "Restart", "m", issuer="boss")
    row = await hall.seen.until("m", "ready")
    if not cgroups.exists() or "cpu" not in cgroups.read_text():
        await eventually(lambda: hall.net.node.log.read_text().count("cpu-share is not held") == 1)
        assert "cpu-share is not held" in row["reason"]


async def test_components_are_stopped_those_first_that_depend_on_others(hall: Hall) -> None:
    ends = hall.net.folder / "ends"

    def one(name: str, **more: str) -> str:
        script = f'trap "sleep 0.2; echo {name} >> {ends}; exit 0" TERM; while :; do sleep 0.02; done'
        return module(name, script, **more)

    await hall.up(one("base"), one("middle", depends="base"), one("top", depends="middle"))
    assert await hall.net.node.stop() == 0
    assert ends.read_text().split() == ["top", "middle", "base"]
