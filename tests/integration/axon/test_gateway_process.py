"""The gateway as a process: by hand without a mesh and with one, as a component, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import aiohttp

from bakemesh.apikeys import add
from bakemesh.axon import parameters
from bakemesh.axon.service import own_hotkey
from bakemesh.hotkeys import create_hotkey
from bakemesh.protocol.axon import Synapse
from bakemesh.protocol.builder.messages import BakeSuccess
from bakemesh.protocol.psyspec import bringup, groups, load_psyspec
from support.axon import Answered, served_by_process, signed
from support.cluster import free_port
from support.examples import FOLDER, load
from support.mesh import mesh
from support.modules import board
from support.nats import connect, server

EXAMPLE = FOLDER / "axon" / "reverse.py"


def test_the_example_is_short() -> None:
    lines = [line for line in EXAMPLE.read_text().splitlines() if line.strip()]
    assert len(lines) < 40


async def test_the_example_serves_by_hand_without_a_mesh(tmp_path: Path) -> None:
    example = load("axon/reverse.py")
    async with served_by_process(tmp_path, str(EXAMPLE)) as running:
        assert running.told["routes"] == ["Synapse", "Reverse"]
        answer = await running.send(signed(example.Reverse(text="abc"), to=running.hotkey))
        assert json.loads(answer.body)["reversed"] == "cba"
        assert await running.stop() == 0


async def test_bakemesh_axon_becomes_the_gateway(tmp_path: Path) -> None:
    hotkey = tmp_path / "key.json"
    create_hotkey(hotkey)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "bakemesh.cli", "axon", str(EXAMPLE), f"--hotkey={hotkey}", "--bind=127.0.0.1:0"),
        *("--node=alpha", f"--state={tmp_path / 'state'}", "--hotkey-rate=5", "--max-body=1MiB"),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            word, _, facts = (await process.stdout.readline()).decode().partition(" ")
            assert word == "ready"
            assert json.loads(facts)["pid"] == process.pid
            process.terminate()
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


STUCK = """
import time
from bakemesh.edge import Axon
from bakemesh.protocol.axon import Synapse

class Stuck(Synapse):
    pass

def stuck(synapse: Stuck) -> Stuck:
    time.sleep(3600)
    return synapse

axon = Axon().attach(stuck)
"""


async def test_a_handler_that_never_returns_does_not_keep_the_process(tmp_path: Path) -> None:
    class Stuck(Synapse):
        pass

    (tmp_path / "stuck.py").write_text(STUCK)
    async with served_by_process(tmp_path, str(tmp_path / "stuck.py")) as running:
        answer = await running.send(signed(Stuck(), to=running.hotkey, timeout=0.2))
        assert answer.status == 408
        assert await running.stop() == 0
        assert "1 handlers did not end" in running.running.log.read_text()


async def run(*words: str, home: Path) -> tuple[int, str]:
    """Runs it to its end; its exit code and what it said."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bakemesh.axon", "--node=alpha", f"--state={home / 'state'}", *words),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(60):
            _, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, said.decode()


def test_a_key_of_a_wallet_is_the_gateways(tmp_path: Path) -> None:
    made = create_hotkey(tmp_path / "miner" / "hotkeys" / "default")
    other = create_hotkey(tmp_path / "miner" / "hotkeys" / "second")
    given = {"wallet": "miner", "wallets": str(tmp_path)}
    assert own_hotkey(parameters.read(given)).address == made.address
    assert own_hotkey(parameters.read({**given, "wallet-hotkey": "second"})).address == other.address


async def test_what_it_cannot_use_is_one_line_and_a_code(tmp_path: Path) -> None:
    hotkey, open_key = tmp_path / "key.json", tmp_path / "open.json"
    create_hotkey(hotkey)
    create_hotkey(open_key)
    open_key.chmod(0o644)
    (tmp_path / "bad.py").write_text("axon = 3")
    (tmp_path / "deny").write_text("who knows")
    example, key, bind = str(EXAMPLE), f"--hotkey={hotkey}", "--bind=127.0.0.1:0"
    for words, code, told in (
        ((example,), 2, "bakemesh hotkey new"),
        ((example, f"--hotkey={tmp_path / 'none'}"), 2, "No such file"),
        ((example, f"--hotkey={open_key}"), 2, "open.json"),
        ((str(tmp_path / "bad.py"), key), 2, "defines no routes"),
        ((example, key, f"--deny={tmp_path / 'deny'}"), 2, "line 1"),
        ((example, key, "--threads=none"), 2, "threads"),
        ((example, key, f"--tls-cert={hotkey}", f"--tls-key={hotkey}", bind), 1, "TLS"),
        ((example, key, "--bind=192.0.2.1:1"), 1, "cannot listen on 192.0.2.1:1"),
        ((key, "--nats=nats://127.0.0.1:1"), 5, ""),
        ((str(tmp_path / "no-start.json"),), 2, ""),
    ):
        got, said = await run(*words, home=tmp_path)
        assert (got, told in said) == (code, True), (words, said)
        assert "Traceback" not in said


async def test_with_a_bus_it_is_found_there_and_serves_the_mesh_too(tmp_path: Path) -> None:
    async with (
        server(tmp_path) as nats,
        served_by_process(tmp_path, str(EXAMPLE), f"--nats={nats.url}") as running,
        connect(nats.url, name="eyes") as bus,
    ):
        assert running.told["routes"] == ["Synapse", "Reverse", "TextPrompt", "Embedding", "Rerank"]
        info = json.loads((await bus.link.ask("$SRV.INFO.axon", b"", 5)).data)
        assert info["metadata"]["url"] == running.url
        assert info["metadata"]["hotkey"] == running.hotkey
        async with running.session.get(running.url + "/readyz") as answer:
            assert answer.status == 503
            assert (await answer.json())["missing"] == {"mesh": "no synapse module takes work"}
        async with running.session.get(running.url + "/v1/models") as answer:
            assert answer.status == 401
        assert await running.stop() == 0


async def test_keys_of_another_file(tmp_path: Path) -> None:
    key = add(tmp_path / "elsewhere", "app", datetime.now(UTC))
    flag = f"--api-keys={tmp_path / 'elsewhere'}"
    async with (
        server(tmp_path) as nats,
        served_by_process(tmp_path, f"--nats={nats.url}", flag) as running,
    ):
        for given, status in ((key, 503), ("bm-" + 43 * "x", 401)):  # 503: known, and there is no module
            headers = {"authorization": f"Bearer {given}"}
            async with running.session.get(running.url + "/v1/models", headers=headers) as answer:
                assert answer.status == status
        assert await running.stop() == 0


SPEC = """<psySpec name="p"><module name="edge">
  <crank service="axon"/>
  <parameter name="hotkey" type="String" value="{hotkey}"/>
  <parameter name="bind" type="String" value="127.0.0.1:{port}"/>
  <parameter name="routes" type="String" value="{routes}"/>
  <parameter name="{extra}" type="Integer" value="4"/>
</module></psySpec>"""


async def test_a_psyspec_brings_it_up(tmp_path: Path) -> None:
    hotkey = create_hotkey(tmp_path / "edge.json")
    example = load("axon/reverse.py")
    port = free_port()
    spec = SPEC.format(hotkey=tmp_path / "edge.json", port=port, routes=EXAMPLE, extra="threads")
    async with (
        mesh(tmp_path, guard=False) as net,
        net.connect("eyes") as bus,
        board(bus) as seen,
        aiohttp.ClientSession() as session,
    ):
        async with net.supervisor("boss") as boss:
            (group,) = groups(load_psyspec(spec), "alpha", "alpha")
            bake = await boss.bake(bringup(group), node_id="alpha")
            outcome = await bake.outcome()
        assert isinstance(outcome, BakeSuccess), outcome
        await seen.until("edge", "ready", within=60)
        request = signed(example.Reverse(text="abc"), to=hotkey.address)
        url = f"http://127.0.0.1:{port}{request.path}"
        async with session.post(url, headers=request.headers, data=request.body) as answer:
            found = Answered(answer.status, answer.headers, await answer.read())
        assert json.loads(found.body)["reversed"] == "cba"
        assert await net.node.stop() == 0


async def test_a_parameter_that_is_none_is_told_to_the_builder(tmp_path: Path) -> None:
    create_hotkey(tmp_path / "edge.json")
    spec = SPEC.format(hotkey=tmp_path / "edge.json", port=0, routes=EXAMPLE, extra="thread")
    spec = spec.replace('name="edge"', 'name="edge" restart="never"')
    async with (
        mesh(tmp_path, guard=False) as net,
        net.connect("eyes") as bus,
        board(bus) as seen,
        net.supervisor("boss") as boss,
    ):
        (group,) = groups(load_psyspec(spec), "alpha", "alpha")
        await boss.bake(bringup(group), node_id="alpha")
        row = await seen.until("edge", lambda now: "'thread'" in str(now.get("reason")), within=60)
        assert "threads" in str(row["reason"])
