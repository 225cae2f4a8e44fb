"""A crank host from its start to its end: both kinds of cranks, what wakes them, how they fail and stop."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.builder.messages import Result
from bakemesh.protocol.builder.spec.component import Health, Post, Trigger
from support.cranks import NODE, crankhost, desk, spec
from support.nats import server
from support.waiting import eventually

ASYNC = """
async def crank(api):
    print("begun", api.name, api.node, api.node_id, api.parameter("limit"), flush=True)
    async for message in api.messages():
        await api.post("Say", {"trigger": message.trigger, "type": message.type, "n": message.entries["N"],
                               "sender": message.sender, "node": message.node_id, "id": message.id})
        api.watch("last", message.entries["n"])
    api.log.info("no more", extra={"went_on": api.should_continue()})
"""
PLAIN = ASYNC.replace("async def", "def").replace("async for", "for").replace("await ", "")


@pytest.mark.parametrize("source", [ASYNC, PLAIN], ids=["async", "plain"])
async def test_both_kinds_are_woken_by_pattern_post_show_and_stop(tmp_path: Path, source: str):
    of = spec(
        "counter",
        source,
        triggers={"Pressed": "Robot.Button.*.*", "Any": "Robot.Button.left.*", "Other": "Robot.Lamp"},
        parameters={"limit": 10},
    )
    async with server(tmp_path) as nats, desk(nats.url) as builder:
        async with crankhost(tmp_path, nats.url, of) as host:
            await builder.ready(host)
            await builder.post("Robot.Button.left.down", {"n": 1}, party="hand", node="alpha")
            await builder.post("Robot.Button.left", {"n": 2})  # a segment too few for both
            await builder.post("Robot.Button.left.down.long", {"n": 3})
            await builder.post("Robot.Button.right.up", {"n": 4})
            await builder.post("Robot.Lamp", {"n": 5})
            heard = await builder.said(4)
            assert [(each["trigger"], each["n"]) for each in heard] == [
                ("Pressed", 1),
                ("Any", 1),
                ("Pressed", 4),
                ("Other", 5),
            ]
            assert (heard[0]["sender"], heard[0]["node"]) == ("hand", "alpha")
            assert heard[0]["id"] == heard[1]["id"] != heard[2]["id"]
            assert len(bytes.fromhex(heard[0]["id"])) == 16
            await eventually(lambda: builder.shown("counter").get("last") == "5", what="the live value")
            assert {watch.instance for watch in builder.watches} == {host.instance}
            assert await host.stop() == 0
        assert f"begun counter {NODE}-host {NODE} 10" in host.out
        assert "no more" in host.out
        assert "component=counter" in host.out
        assert "went_on=False" in host.out
        assert "Traceback" not in host.out
        assert len(builder.heard()) == 4


async def test_after_delays_and_a_wait_has_a_timeout(tmp_path: Path):
    source = """
async def crank(api):
    assert await api.wait_for_message(timeout=0) is None
    assert await api.wait_for_message(timeout=0.01) is None
    await api.post("Say", {"waiting": 1})
    for _ in range(2):
        message = await api.wait_for_message()
        await api.post("Say", {"trigger": message.trigger})
"""
    triggers = (
        Trigger(name="Late", type="Robot.Tick", after_ms=300),
        Trigger(name="Soon", type="Robot.Tick"),
    )
    of = spec("clock", source, triggers=triggers)
    async with (
        server(tmp_path) as nats,
        desk(nats.url) as builder,
        crankhost(tmp_path, nats.url, of) as host,
    ):
        await builder.said(1)
        began = asyncio.get_running_loop().time()
        await builder.post("Robot.Tick")
        heard = await builder.said(3)
        assert [each.get("trigger") for each in heard] == [None, "Soon", "Late"]
        assert asyncio.get_running_loop().time() - began >= 0.3
        assert await host.ended() == 0  # it returned


async def test_a_failure_is_reported_with_its_own_lines_and_ends_the_host_with_70(tmp_path: Path):
    source = """
async def crank(api):
    await api.post("Say", {"a": 1})
    broken(api)

def broken(api):
    raise RuntimeError("the valve " + "is stuck")
"""
    async with server(tmp_path) as nats, desk(nats.url) as builder:
        async with crankhost(tmp_path, nats.url, spec("pump", source, script="parts/pump.py")) as host:
            assert await host.ended() == 70
        report = builder.failure(host)
        assert report.summary == "line 7: RuntimeError: the valve is stuck"
        assert report.traceback is not None
        assert 'raise RuntimeError("the valve " + "is stuck")' in report.traceback
        assert "crankhost" not in report.traceback
        assert report.traceback in host.out


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
@pytest.mark.parametrize(
    ("body", "code", "told"),
    [
        ("import sys; sys.exit()", 0, None),
        ("import sys; sys.exit(3)", 70, "sys.exit(3)"),
        ("raise KeyboardInterrupt", 70, "KeyboardInterrupt"),
        ("import asyncio; raise asyncio.CancelledError", 70, "CancelledError"),
        (
            "api.parameter('limt')",
            70,
            "no parameter 'limt'; its parameters are 'limit'; did you mean 'limit'?",
        ),
        ("WAIT api.post('Sya', {})", 70, "no post 'Sya'; its posts are 'Say'; did you mean 'Say'?"),
        ("WAIT api.post('Say', {'x': object()})", 70, "entry 'x' (object) cannot be sent"),
        ("WAIT api.post('Say', {'x': 1, 'X': 2})", 70, "differ only in case"),
        ("WAIT api.post('Say', [1])", 70, "must be a map"),
        ("api.watch('', 1)", 70, "watch: key ''"),
        ("api.supervisor", 70, "is a <module>; write <supervisor name='odd'>"),
    ],
)
async def test_whatever_a_crank_raises_is_told(
    tmp_path: Path, body: str, code: int, told: str | None, plain: bool
):
    head = "def crank(api):" if plain else "async def crank(api):"
    source = f"{head}\n    {body.replace('WAIT ', '' if plain else 'await ')}\n"
    async with server(tmp_path) as nats, desk(nats.url) as builder:
        async with crankhost(tmp_path, nats.url, spec("odd", source, parameters={"limit": 1})) as host:
            assert await host.ended() == code, host.out
        if told is None:
            assert [each.state for each in builder.reports] == ["ready"]
        else:
            assert told in builder.failure(host).summary


@pytest.mark.parametrize(
    ("source", "script", "function", "told"),
    [
        ("def crank(api) pass", "a.py", "crank", "script 'a.py' cannot be loaded: line 1: SyntaxError"),
        ("import nothing_of_that_name", "a.py", "crank", "line 1: ModuleNotFoundError"),
        ("import sys\nsys.exit(1)", "a.py", "crank", "sys.exit(1)"),
        ("def crunk(api): ...", "a.py", "crank", "no function 'crank'; it has crunk; did you mean 'crunk'?"),
        ("crank = 5", "a.py", "crank", "is no function but int"),
        ("def crank(): ...", "a.py", "crank", "must take one argument, the api"),
        (None, "/nowhere/a.py", "crank", "script '/nowhere/a.py' cannot be read"),
        (None, "a.py", "crank", "no absolute path"),
        ("def crank(api): return later()\nasync def later(): ...", "a.py", "crank", "make it `async def`"),
    ],
)
async def test_a_script_that_cannot_be_run_is_reported(
    tmp_path: Path, source: str | None, script: str, function: str, told: str
):
    async with server(tmp_path) as nats, desk(nats.url) as builder:
        of = spec("odd", source, script=script, function=function)
        async with crankhost(tmp_path, nats.url, of) as host:
            assert await host.ended() == 70
        assert told in builder.failure(host).summary


async def test_an_absolute_script_with_a_module_beside_it(tmp_path: Path):
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "beside.py").write_text("WORD = 'beside'")
    script = tmp_path / "place" / "main.py"
    script.write_text("import beside\nasync def go(api):\n    await api.post('Say', {'w': beside.WORD})\n")
    async with server(tmp_path) as nats, desk(nats.url) as builder:
        of = spec("odd", None, script=str(script), function="go")
        async with crankhost(tmp_path, nats.url, of) as host:
            assert await host.ended() == 0
        assert (await builder.said(1)) == [{"w": "beside"}]


STUBBORN = """
import time
def crank(api):
    api.post("Say", {"begun": 1})
    while True:
        time.sleep(0.01)
"""
DEAF = """
import asyncio
async def crank(api):
    await api.post("Say", {"begun": 1})
    try:
        await asyncio.Event().wait()
    finally:
        print("cleaned up", flush=True)
"""
WAITING = """
def crank(api):
    api.post("Say", {"begun": 1})
    while True:
        api.wait_for_message(timeout=0.01)
"""


@pytest.mark.parametrize(
    ("source", "printed"),
    [(STUBBORN, ""), (DEAF, "cleaned up"), (WAITING, "")],
    ids=["stubborn", "deaf", "waiting"],
)
async def test_a_crank_that_does_not_stop_is_cut_off_in_its_shutdown_time(
    tmp_path: Path, source: str, printed: str
):
    async with server(tmp_path) as nats, desk(nats.url) as builder:
        async with crankhost(tmp_path, nats.url, spec("odd", source, shutdown_ms=800)) as host:
            await builder.said(1)
            assert await host.stop() == 0
        assert "did not return within the 0.6 s" in host.out
        assert printed in host.out
        assert [each.state for each in builder.reports] == ["ready"]


async def test_the_crank_is_called_when_a_builder_has_accepted_it_and_not_before(tmp_path: Path):
    source = "async def crank(api):\n    await api.post('Say', {'begun': 1})\n"
    async with server(tmp_path) as nats, crankhost(tmp_path, nats.url, spec("early", source)) as host:
        await eventually(lambda: "nobody answers" in host.out, what="a report that nobody takes")
        async with desk(nats.url) as builder:
            verdicts = [
                Result(verb="Report", accepted=False, code=Code.RATE_LIMITED, summary="later", retryms=1),
                Result(verb="Report", accepted=True, code=Code.OK, summary="noted"),
            ]
            said_before: list[int] = []

            def answer(_: object) -> Result:
                said_before.append(len(builder.heard()))
                return verdicts.pop(0)

            builder.answer = answer
            await builder.said(1)
            assert said_before == [0, 0]
            assert await host.ended() == 0


async def test_a_start_that_no_builder_knows_ends_without_its_crank(tmp_path: Path):
    source = "def crank(api):\n    print('called')\n"
    async with server(tmp_path) as nats, desk(nats.url) as builder:
        builder.answer = lambda _: Result(
            verb="Report", accepted=False, code=Code.UNKNOWN_COMPONENT, summary="not mine"
        )
        async with crankhost(tmp_path, nats.url, spec("stale", source)) as host:
            assert await host.ended() == 69
        assert "called" not in host.out
        assert "not mine" in host.out


@pytest.mark.parametrize("away", ["bus", "builder"])
async def test_term_ends_every_wait_before_the_call(tmp_path: Path, away: str):
    async with server(tmp_path) as nats:
        url = nats.url if away == "builder" else "nats://127.0.0.1:9"
        async with crankhost(tmp_path, url, spec("early", "def crank(api): ...")) as host:
            word = "nobody answers" if away == "builder" else "waiting for the bus"
            await eventually(lambda: word in host.out, what=word)
            assert await host.stop() == 0


async def test_what_the_builder_hands_over_wakes_the_trigger_that_it_names(tmp_path: Path):
    source = ASYNC.replace('"id": message.id', '"created": message.created').replace("10", "")
    of = spec(
        "web",
        source,
        triggers={"Cohort": "Psyclone.Builder.Cohort.Message"},
        parameters={"limit": 1},
        health=Health(subject="Web.Alive"),
    )
    async with (
        server(tmp_path) as nats,
        desk(nats.url) as builder,
        crankhost(tmp_path, nats.url, of) as host,
    ):
        await builder.ready(host)
        kind = "Psyclone.Builder.Cohort.Message"
        taken = await builder.deliver("web", "Cohort", kind, {"n": 7})
        assert (taken.verb, taken.accepted, taken.code) == ("Deliver", True, "ok")
        assert [
            (each["trigger"], each["n"], each["sender"], each["node"]) for each in await builder.said(1)
        ] == [("Cohort", 7, "boss", "alpha")]
        refused = await builder.deliver("web", "Cohrt", kind, {"n": 7})
        assert (refused.accepted, refused.code) == (False, "malformed_message")
        assert "did you mean 'Cohort'?" in refused.summary
        alive = await builder.probe("web", "Web.Alive")
        assert (alive.verb, alive.summary) == ("Health", "alive")


async def test_a_megabyte_is_posted_and_what_the_server_does_not_take_is_told(tmp_path: Path):
    source = """
async def crank(api):
    message = await api.wait_for_message()
    await api.post("Big", {"data": message.entries["data"]})
    await api.post("Big", {"data": bytes(64 << 20)})
"""
    of = spec("big", source, triggers={"In": "Robot.Big"}, posts=(Post(name="Big", type="Robot.Back"),))
    async with server(tmp_path) as nats, desk(nats.url) as builder:
        await builder.listen("Robot.Back")
        async with crankhost(tmp_path, nats.url, of) as host:
            await builder.ready(host)
            data = os.urandom(1 << 20)
            await builder.post("Robot.Big", {"data": data})
            assert (await builder.said(1, "Robot.Back"))[0]["data"] == data
            assert await host.ended() == 70
        assert "the server takes at most" in builder.failure(host).summary


async def test_a_slow_crank_loses_the_oldest_and_says_so(tmp_path: Path):
    source = """
import asyncio, pathlib
async def crank(api):
    await api.post("Say", {"begun": 1})
    while not pathlib.Path("go").exists():
        await asyncio.sleep(0.01)
    async for message in api.messages():
        if message.trigger == "End":
            return
        await api.post("Say", {"n": message.entries["n"]})
"""
    of = spec("slow", source, triggers={"Tick": "Robot.Tick", "End": "Robot.End"})
    async with server(tmp_path) as nats, desk(nats.url) as builder:
        async with crankhost(tmp_path, nats.url, of) as host:
            await builder.said(1)
            for n in range(5000):
                await builder.post("Robot.Tick", {"n": n})
            await builder.post("Robot.End")
            await eventually(
                lambda: builder.shown("slow").get("dropped") == str(5001 - 4096), what="the count"
            )
            (host.folder / "data" / "go").touch()
            assert await host.ended() == 0
        await eventually(lambda: len(builder.heard()) == 4096, what="what was kept")
        assert [each["n"] for each in builder.heard()[1:]] == list(range(5000 - 4095, 5000))
        assert host.out.count("the oldest that are not durable are dropped") == 1


async def test_one_wait_at_a_time(tmp_path: Path):
    source = """
import asyncio
async def crank(api):
    first = asyncio.create_task(api.wait_for_message())
    await asyncio.sleep(0)
    await api.wait_for_message()
"""
    async with server(tmp_path) as nats, desk(nats.url) as builder:
        async with crankhost(tmp_path, nats.url, spec("two", source)) as host:
            assert await host.ended() == 70
        assert "CrankOver: one task of a crank waits" in builder.failure(host).summary


@pytest.mark.parametrize("content", ["{", "[]", '{"spec": {}}'])
async def test_a_start_file_that_is_none_is_a_clear_line(tmp_path: Path, content: str):
    async with server(tmp_path) as nats, crankhost(tmp_path, nats.url, spec("x", "")) as host:
        await host.kill9()
        (host.folder / "start.json").write_text(content)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bakemesh.crankhost",
            str(host.folder / "start.json"),
            stderr=asyncio.subprocess.PIPE,
        )
        _, told = await process.communicate()
        assert process.returncode == 2
        assert told.startswith(b"bakemesh crankhost: ")
        assert b"Traceback" not in told
