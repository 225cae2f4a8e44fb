"""Crank hosts by a fork of a nursery behave as executed ones: woken, stopped, failing, killed."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bakemesh.builder.components import launch
from bakemesh.processes import Keeper, Nursery
from support.cranks import NODE, Forked, crankhost, desk, spec
from support.nats import server
from support.processes import new_marker
from support.waiting import eventually

ASYNC = """
async def crank(api):
    print("begun", api.name, api.node_id, api.parameter("limit"))
    async for message in api.messages():
        await api.post("Say", {"n": message.entries["N"], "id": message.id})
        api.watch("last", message.entries["n"])
    api.log.info("no more")
"""
PLAIN = ASYNC.replace("async def", "def").replace("async for", "for").replace("await ", "")


@pytest.fixture(params=["fork", "exec"])
def way(request: pytest.FixtureRequest) -> str:
    """How a host is started."""
    return str(request.param)


@asynccontextmanager
async def nursery(way: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Nursery | None]:
    """One that serves hosts of this process's environment; None to execute them."""
    if way == "exec":
        yield None
        return
    monkeypatch.setattr("bakemesh.processes.nursery.FIRST_S", 60.0)
    token = new_marker()
    async with await Keeper.start(token) as keeper:
        made = Nursery(keeper, token, launch.nurse({**os.environ, **UNBUFFERED}))
        try:
            yield made
        finally:
            await made.close()


UNBUFFERED = {"PYTHONUNBUFFERED": os.environ.get("PYTHONUNBUFFERED", "1")}


@pytest.mark.parametrize("source", [ASYNC, PLAIN], ids=["async", "plain"])
async def test_it_is_woken_posts_shows_and_stops(
    tmp_path: Path, way: str, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = spec("counter", source, triggers={"Pressed": "Robot.Button.*"}, parameters={"limit": 10})
    async with (
        server(tmp_path) as nats,
        desk(nats.url) as builder,
        nursery(way, monkeypatch) as nurse,
        crankhost(tmp_path, nats.url, of, nursery=nurse, environment=UNBUFFERED) as host,
    ):
        await builder.ready(host)
        if isinstance(host.process, Forked):
            parent = (
                Path(f"/proc/{host.process.shimmed.shim}/stat").read_text().rpartition(") ")[2].split()[1]
            )
            assert nurse is not None
            assert int(parent) == nurse.pid
        for number in range(3):
            await builder.post("Robot.Button.left", {"n": number})
        heard = await builder.said(3)
        assert [each["n"] for each in heard] == [0, 1, 2]
        assert len({each["id"] for each in heard}) == 3
        await eventually(lambda: builder.shown("counter").get("last") == "2", what="the live value")
        assert await host.stop() == 0
        assert f"begun counter {NODE} 10" in host.out
        assert "no more" in host.out
        assert "component=counter" in host.out
        assert "Traceback" not in host.out


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("async def crank(api):\n    raise RuntimeError('the valve ' + 'is stuck')", "line 2: RuntimeError"),
        ("def crank(api):\n    import sys; sys.exit(3)", "sys.exit(3)"),
        ("import no_such_module", "ModuleNotFoundError"),
        ("def crank(:", "SyntaxError"),
    ],
    ids=["raises", "exits", "import", "syntax"],
)
async def test_a_failure_is_told_with_its_own_lines(
    tmp_path: Path, way: str, source: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server(tmp_path) as nats, desk(nats.url) as builder, nursery(way, monkeypatch) as nurse:
        of = spec("pump", source)
        async with crankhost(tmp_path, nats.url, of, nursery=nurse, environment=UNBUFFERED) as host:
            assert await host.ended() == 70
        report = builder.failure(host)
        assert told in report.summary
        assert report.traceback is not None
        assert "nursery.py" not in report.traceback
        assert "runpy" not in report.traceback
        assert report.traceback in host.out


async def test_a_signal_is_its_end(tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of = spec("one", ASYNC, parameters={"limit": 1})
    async with (
        server(tmp_path) as nats,
        desk(nats.url) as builder,
        nursery(way, monkeypatch) as nurse,
        crankhost(tmp_path, nats.url, of, nursery=nurse, environment=UNBUFFERED) as host,
    ):
        await builder.ready(host)
        await host.kill9()
        assert await host.ended() == -signal.SIGKILL
