"""Bring-up of many trivial components to ready, against supervisord: half are `sleep infinity`, half Python
cranks.

Ready is the same on both sides: a program lives (`ready-ms="0"`, `startsecs=0`), a crank host has said that
it is ready and that was answered. Ours: from the start of a Builder on an empty folder to the end of the
bring-up recipe that a Startup Supervisor would send. The peer: from the start of supervisord, which starts
everything by itself, until every crank host was answered and every program lives; the crank hosts are the
same programs with the same start files, and the answer comes from a stand-in for the Builder in this process.
The server runs before on both sides.

A component of ours has a shim, a journal row and a place in SystemStatus, which supervisord's has not. Most
of what both take is the start of the Python programs: CPU seconds up to ready are told for each side.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import common
import psutil

from bakemesh.protocol.psyspec import bringup, groups, load_psyspec
from bakemesh.supervisor import Supervisor

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # the stand-in for a Builder

from support.cranks import desk, spec

NODE = "bench"
MESH = "psyclone"
SCRIPT = "async def crank(api):\n    async for _ in api.messages():\n        pass\n"
LONG_S = 300.0
POLL_S = 0.02


def recipe(programs: int, cranks: int) -> str:
    """The bring-up of a PsySpec with so many modules."""
    text = "".join(
        f'<module name="program{number}" ready-ms="0"><crank command="sleep infinity"/></module>'
        for number in range(programs)
    )
    text += "".join(
        f'<module name="crank{number}"><crank function="crank" script="crank.py">{SCRIPT}</crank></module>'
        for number in range(cranks)
    )
    psyspec = load_psyspec(f'<psySpec name="bench"><node name="{NODE}"/>{text}</psySpec>')
    (group,) = groups(psyspec, NODE, NODE)
    return bringup(group)


def cpu_of(processes: list[psutil.Process]) -> float:
    """CPU seconds of those that live, and of their children that do not."""
    found = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        found += times.user + times.system + times.children_user + times.children_system
    return found


def with_shims(builder: int, state: Path) -> list[psutil.Process]:
    """A Builder, what is below it, its components and their shims."""
    found = {each.pid: each for each in below(builder)}
    for process in psutil.process_iter():
        try:
            if process.cwd().startswith(str(state / "components")):
                found[process.pid] = process
                shim = process.parent()
                if shim is not None and shim.name() == "bakemesh-shim":
                    found[shim.pid] = shim
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return list(found.values())


def below(pid: int) -> list[psutil.Process]:
    """A process and what is below it."""
    itself = psutil.Process(pid)
    return [itself, *itself.children(recursive=True)]


async def ours(xml: str, numbers: dict[str, list[float]]) -> float:
    """Seconds of ours."""
    async with (
        common.folder() as where,
        common.server(where) as nats,
        Supervisor.connect(nats.url, "boss") as boss,
    ):
        began = time.perf_counter()
        builder = await common.builder(where, nats.url, "--on-stop=stop", node_id=NODE)
        try:
            sent = time.perf_counter()
            bake = await boss.bake(xml, node_id=NODE, result_timeout_s=60)
            outcome = await bake.outcome()
            took = time.perf_counter() - began
            if outcome.outcome != "success":
                raise SystemExit(f"bring-up: {outcome.summary}")
            numbers["ours_recipe_s"].append(time.perf_counter() - sent)
            numbers["ours_cpu_s"].append(cpu_of(with_shims(builder.pid, where / "builder")))
            numbers["ours_builder_cpu_s"].append(common.cpu_s(builder.pid))
        finally:
            builder.process.terminate()
            async with asyncio.timeout(LONG_S):
                await builder.process.wait()
    return took


@asynccontextmanager
async def supervisord(where: Path, url: str, programs: int, cranks: int) -> Any:
    """It, with everything that it is to start."""
    lines = [
        "[supervisord]",
        "nodaemon=true",
        "silent=true",
        "minfds=8192",
        *(
            f"{key}={where / name}"
            for key, name in (("logfile", "log"), ("pidfile", "pid"), ("childlogdir", ""))
        ),
    ]
    for name, command in commands(where, url, programs, cranks).items():
        lines += [f"[program:{name}]", f"command={command}", f"directory={where}"]
        lines += ["startsecs=0", "redirect_stderr=true", f"stdout_logfile={where / name}.log"]
    (where / "supervisord.conf").write_text("\n".join(lines) + "\n")
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("supervisord")), "-c", str(where / "supervisord.conf")
    )
    try:
        yield process
    finally:
        process.terminate()
        async with asyncio.timeout(LONG_S):
            await process.wait()


def commands(where: Path, url: str, programs: int, cranks: int) -> dict[str, str]:
    """What is run, by name; the crank hosts' start files are written here."""
    found = {f"program{number}": "sleep infinity" for number in range(programs)}
    for number in range(cranks):
        name = f"crank{number}"
        folder = where / "components" / name
        (folder / "data").mkdir(parents=True)
        given = {
            "spec": json.loads(spec(name, SCRIPT).to_json()),
            "instance": f"{name}-1",
            "node": NODE,
            "nodeid": NODE,
            "mesh": MESH,
            "nats": [url],
            "creds": None,
            "tls": None,
            "data": str(folder / "data"),
        }
        (folder / "start.json").write_text(json.dumps(given))
        found[name] = f"{sys.executable} -m bakemesh.crankhost {folder / 'start.json'}"
    return found


async def until(check: Callable[[], bool]) -> None:
    """Looks again and again."""
    while not check():  # noqa: ASYNC110 - what supervisord has started is seen in /proc alone
        await asyncio.sleep(POLL_S)


async def peer(programs: int, cranks: int, numbers: dict[str, list[float]]) -> float:
    """Seconds of supervisord."""
    async with (
        common.folder() as where,
        common.server(where) as nats,
        desk(nats.url, node_id=NODE) as builder,
    ):
        began = time.perf_counter()
        async with supervisord(where, nats.url, programs, cranks) as process, asyncio.timeout(LONG_S):
            await until(lambda: sum(each.state == "ready" for each in builder.reports) >= cranks)
            if any(each.state != "ready" for each in builder.reports):
                raise SystemExit(f"a crank failed: {builder.reports}")
            await until(lambda: sum(each.name() == "sleep" for each in below(process.pid)) == programs)
            took = time.perf_counter() - began
            numbers["supervisord_cpu_s"].append(cpu_of(below(process.pid)))
            numbers["supervisord_itself_cpu_s"].append(common.cpu_s(process.pid))
    return took


async def measure(count: int, turns: int) -> None:
    report = common.Report("bringup")
    programs = count // 2
    cranks = count - programs
    xml = recipe(programs, cranks)
    numbers: dict[str, list[float]] = {
        "ours_recipe_s": [],
        "ours_cpu_s": [],
        "ours_builder_cpu_s": [],
        "supervisord_cpu_s": [],
        "supervisord_itself_cpu_s": [],
    }
    found = await common.rounds(
        turns,
        {"ours": lambda: ours(xml, numbers), "supervisord": lambda: peer(programs, cranks, numbers)},
    )
    what = f"bring-up of {count} components"
    report.claim(
        f"{what}, supervisord's time in ours", common.ratio(found["supervisord"], found["ours"]), at_least=1
    )
    report.claim(
        f"{what}, supervisord's CPU in ours",
        common.ratio(numbers["supervisord_cpu_s"], numbers["ours_cpu_s"]),
    )
    report.claim(f"{what}, ours, s", statistics.median(found["ours"]))
    report.numbers = {**found, **numbers, "cpus": os.cpu_count()}
    report.finish()


if __name__ == "__main__":
    args = common.arguments(__doc__, count=200, rounds=3)
    common.run(measure(args.count, args.rounds))
