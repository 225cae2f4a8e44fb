"""docs/axon.md on serving: its file, command lines, PsySpec and tables are run, or held to the code."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from bakemesh.axon.limiter import BURST_S
from bakemesh.axon.parameters import ROWS
from bakemesh.axon.settings import Limits
from bakemesh.dendrite import Dendrite, Target
from bakemesh.edge import Axon, load
from bakemesh.hotkeys import create_hotkey
from bakemesh.protocol.axon import TextPrompt
from bakemesh.protocol.axon.freshness import AHEAD_MS, BACK_MS
from bakemesh.protocol.builder.messages import BakeSuccess
from bakemesh.protocol.psyspec import bringup, groups, load_psyspec
from support.axon import ALICE, BOB, Process, gateway, served_by_process, signed
from support.cluster import free_port
from support.commandline import PROGRAM, environment
from support.examples import FOLDER
from support.mesh import mesh
from support.modules import board
from support.openaiedge import edge
from support.recorded import CHARLIE
from support.synapse import fake_model
from support.waiting import eventually

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "axon.md").read_text("utf-8")
EXAMPLE = FOLDER / "axon" / "reverse.py"


def section(title: str) -> str:
    """A part of the guide."""
    level = re.match("#+", title)
    assert level
    _, there, rest = GUIDE.partition(f"\n{title}\n")
    assert there, title
    return re.split(rf"\n#{{1,{len(level[0])}}} ", rest)[0]


def commands(title: str) -> list[str]:
    """The command lines of a part."""
    lines = [line.strip() for line in section(title).splitlines() if line.startswith("    bakemesh ")]
    return [re.sub(r"\s{2,}# .*", "", line) for line in lines]


def block(title: str, language: str) -> str:
    """The one code block of a part."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", section(title), re.MULTILINE | re.DOTALL)
    return str(found)


async def run(command: str, folder: Path, **environ: str) -> tuple[int, str]:
    """Exit code and stdout of a command line, which is `bakemesh …`."""
    program, *words = shlex.split(command)
    assert program == "bakemesh"
    process = await asyncio.create_subprocess_exec(
        *(*PROGRAM, *words),
        cwd=folder,
        env=environment(folder, **environ),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(60):
            said, complained = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, said.decode() + complained.decode()


async def test_the_file_serves_as_its_guide_says(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(block("## Serve a synapse", "python"))
    axon = load(path)
    count, spell = (axon.routes[name].synapse for name in ("Count", "Spell"))
    async with edge(tmp_path / "mesh", axon=axon) as at:
        assert json.loads((await at.gateway.post(count(text="one two"))).body)["words"] == 2
        for asked in (count(text="one"), TextPrompt(prompt="a")):
            answer = await at.gateway.post(asked, by=CHARLIE)
            assert (answer.status, "not registered" in answer.message) == (403, True)
        answer = await at.gateway.post(count(text=""))
        assert (answer.status, answer.message) == (422, "text is empty")
        async with Dendrite(CHARLIE) as dendrite:
            target = Target(at.gateway.host, at.gateway.port, ALICE.address)
            assert [part async for part in dendrite.stream(target, spell(text="abc"))] == ["a", "b", "c"]
        assert (await at.gateway.post(TextPrompt(prompt="abc", temperature=0))).status == 200
    assert axon.routes["Spell"].limit_s == 20
    assert axon.guarded is not None
    assert axon.guarded.priority_fn is not None
    assert BOB.address in path.read_text()


@asynccontextmanager
async def as_written(command: str, folder: Path, url: str) -> AsyncIterator[Process]:
    """The gateway of a command line of the guide, on a free port, with the bus at `url`."""
    program, verb, *words = shlex.split(command.replace("nats://127.0.0.1:4222", url))
    assert (program, verb) == ("bakemesh", "axon")
    where = words.index("--hotkey")
    assert words[where + 1] == "axon.json"
    del words[where : where + 2]
    words = [str(ROOT / word) if word.startswith("examples/") else word for word in words]
    async with served_by_process(folder, *words) as running:
        yield running


async def test_the_command_lines_of_serving(tmp_path: Path) -> None:
    new, alone, before_mesh = commands("## Serve a synapse")
    code, address = await run(new, tmp_path)
    assert (code, (tmp_path / "axon.json").exists()) == (0, True)
    assert re.fullmatch(r"5\w{47}\n", address)
    async with as_written(alone, tmp_path / "state", "") as running:
        assert running.told["routes"] == ["Synapse", "Reverse"]
    async with (
        mesh(tmp_path / "mesh", guard=False) as net,
        as_written(before_mesh, tmp_path / "state", net.url) as running,
    ):
        assert running.told["routes"] == ["Synapse", "TextPrompt", "Embedding", "Rerank"]


async def test_the_command_lines_of_calling_and_of_keys(tmp_path: Path) -> None:
    reverse, text = commands("## Call a synapse")
    async with edge(tmp_path / "mesh", axon=load(EXAMPLE)) as at:
        for command, told in ((reverse, '"reversed": "dekab"'), (text, "79 110 101 44 ")):  # "One,", echoed
            given = command.replace("http://127.0.0.1:8091", at.gateway.url).replace("5Axon…", ALICE.address)
            code, said = await run(given.replace("examples/", f"{FOLDER}/"), tmp_path)
            assert (code, told in said) == (0, True), said
    new, show = commands("## Keys")
    addresses = [await run(command, tmp_path) for command in (new, show)]
    assert addresses[0] == addresses[1]
    assert (await run(new, tmp_path))[0] == 2  # never overwrites
    for command in commands("### Keys"):
        code, said = await run(command, tmp_path)
        assert code == 0, said


async def test_the_streams_few_lines(tmp_path: Path) -> None:
    (line,) = [line for line in section("## Call a synapse").splitlines() if "async for part" in line]
    program = f"async def parts(dendrite, axon, TextPrompt):\n{line}\n        yield part\n"
    found: dict[str, object] = {}
    exec(program, found)
    async with edge(tmp_path) as at, Dendrite(BOB) as dendrite:
        target = Target(at.gateway.host, at.gateway.port, ALICE.address)
        parts = [part async for part in found["parts"](dendrite, target, TextPrompt)]  # type: ignore[operator]
    assert "".join(parts).startswith("79 110 101 44 ")


async def test_the_psyspec_brings_gateway_and_module_up(tmp_path: Path) -> None:
    text = block("## Serve a synapse", "xml")
    example = (FOLDER / "axon" / "mesh.xml").read_text()
    assert example.partition("-->\n")[2] == text
    hotkey, port = create_hotkey(tmp_path / "axon.json"), free_port()
    model = fake_model(tmp_path, "chat", kind="generate")
    changed = text.replace("/etc/bakemesh/axon.json", str(tmp_path / "axon.json"))
    changed = changed.replace("0.0.0.0:8091", f"127.0.0.1:{port}")
    fake = (("engine", "String", "fake"), ("workers", "Integer", 1), ("model.chat", "String", model))
    said = "".join(f'<parameter name="{name}" type="{kind}" value="{value}"/>' for name, kind, value in fake)
    changed = changed.replace('<crank service="synapse"/>', f'<crank service="synapse"/>{said}')
    url = f"http://127.0.0.1:{port}"
    async with (
        mesh(tmp_path, guard=False) as net,
        net.connect("eyes") as bus,
        board(bus) as seen,
        net.supervisor("boss") as boss,
        aiohttp.ClientSession() as session,
    ):
        (group,) = groups(load_psyspec(changed), "alpha", "alpha")
        bake = await boss.bake(bringup(group), node_id="alpha")
        assert isinstance(await bake.outcome(), BakeSuccess)
        await seen.until("gateway", "ready", within=60)

        async def is_ready() -> bool:
            async with session.get(url + "/readyz") as answer:
                return answer.status == 200

        await eventually(is_ready, what="the gateway hears of the module")
        request = signed(TextPrompt(prompt="abc", temperature=0), to=hotkey.address)
        async with session.post(url + request.path, headers=request.headers, data=request.body) as answer:
            assert (answer.status, (await answer.json())["completion"]) == (200, "97 98 99 ")


DEFAULTS = Limits()


@pytest.mark.parametrize(
    ("flag", "told"),
    [
        ("max-header", f"{DEFAULTS.header_bytes >> 10} KiB, {DEFAULTS.headers} headers"),
        ("max-body", f"{DEFAULTS.body_bytes >> 20} MiB"),
        ("max-connections", DEFAULTS.connections),
        ("max-requests", f"{DEFAULTS.in_flight} at once"),
        ("hotkey-requests", f"{DEFAULTS.hotkey_requests} at once"),
        ("hotkey-rate", f"{DEFAULTS.hotkey_rate:g} a second"),
        ("request-ms", int(DEFAULTS.request_s * 1000)),
        ("header-ms", int(DEFAULTS.header_s * 1000)),
        ("body-ms", int(DEFAULTS.body_s * 1000)),
        ("keep-alive-ms", int(DEFAULTS.keep_alive_s * 1000)),
        ("threads", DEFAULTS.threads),
        ("nonce-window-ms", f"{BACK_MS} back"),
        ("nonce-ahead-ms", f"{AHEAD_MS} ahead"),
        ("max-hotkeys", DEFAULTS.hotkeys),
        ("max-nonces", DEFAULTS.nonces),
    ],
)
def test_a_limit_s_row_has_its_default(flag: str, told: object) -> None:
    rows = [line for line in section("### Limits").splitlines() if f"`--{flag}`" in line]
    assert len(rows) == 1, flag
    assert str(told) in rows[0].split("|")[2]


def test_every_limit_has_a_row_and_nginx_takes_what_the_gateway_takes() -> None:
    named = set(re.findall(r"`--([a-z-]+)`", section("### Limits")))
    limits = {name for name, row in ROWS.items() if row.limit}
    assert named == limits | {"nonce-window-ms", "nonce-ahead-ms"}
    assert BURST_S == 2
    proxy = block("## Behind nginx", "nginx")
    assert f"client_max_body_size {DEFAULTS.body_bytes >> 20}m;" in proxy
    assert f"large_client_header_buffers 4 {DEFAULTS.header_bytes >> 10}k;" in proxy
    assert f"proxy_read_timeout {DEFAULTS.request_s:g}s;" in proxy
    assert "underscores_in_headers on;" in proxy


def test_every_flag_that_is_named_is_one() -> None:
    own = {*ROWS, "nats", "state", "name"}
    others = {"axon-hotkey", "stream", "hotkey", "file"}  # of call and of axon-key
    for flag in re.findall(r"--([a-z][a-z-]+)", GUIDE):
        assert flag in own | others, flag


async def test_who_looks_after_it_is_told_what_the_guide_says() -> None:
    async with gateway(Axon()) as at:
        assert b'"alive"' in (await at.get("/healthz")).body
        for path in re.findall(r"`(/[a-z]+)`", section("## Serve a synapse")):
            assert (await at.get(path)).status == 200, path
