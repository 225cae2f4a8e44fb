"""A request is served once: also after a restart, after a kill -9, and where nothing can be written down."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import ClassVar

import pytest

from bakemesh.axon.gateway import GatewayState
from bakemesh.axon.journal import FolderInUse, Journal
from bakemesh.axon.settings import GatewaySettings
from bakemesh.edge import Axon
from bakemesh.protocol.axon import Synapse
from bakemesh.protocol.axon.freshness import Window
from support.axon import ALICE, gateway, served_by_process, signed


class Echo(Synapse):
    required_hash_fields: ClassVar = ("text",)
    text: str = ""


async def echo(synapse: Echo) -> Echo:
    return synapse


async def test_what_was_seen_is_known_after_a_restart(tmp_path: Path) -> None:
    request = signed(Echo(text="once"))
    for expected in (200, 401, 401):
        async with gateway(Axon().attach(echo), folder=tmp_path / "seen") as at:
            assert (await at.send(request)).status == expected
            assert (await at.post(Echo())).status == 200


async def test_what_is_stale_is_forgotten(tmp_path: Path) -> None:
    now = time.time_ns()
    async with gateway(Axon().attach(echo), folder=tmp_path / "seen", now_ns=lambda: now) as at:
        await at.post(Echo(), nonce=now)
        assert len(at.state.replay) == 1
        now += 30_000_000_000
        await at.post(Echo(), nonce=now)
        assert len(at.state.replay) == 1
    async with gateway(Axon().attach(echo), folder=tmp_path / "seen", now_ns=lambda: now) as at:
        assert len(at.state.replay) == 1


async def test_the_disk_holds_two_windows_however_long_it_runs(tmp_path: Path) -> None:
    now = time.time_ns()
    folder = tmp_path / "seen"
    async with gateway(Axon().attach(echo), folder=folder, now_ns=lambda: now) as at:
        for _ in range(50):
            now += 1_000_000_000
            request = signed(Echo(), nonce=now)
            assert (await at.send(request)).status == 200
            assert (await at.send(request)).status == 401
            assert sum(path.stat().st_size for path in folder.iterdir()) <= 32 * 30


async def test_a_clock_that_jumps_lets_nothing_in_twice(tmp_path: Path) -> None:
    began = now = time.time_ns()
    async with gateway(Axon().attach(echo), folder=tmp_path / "seen", now_ns=lambda: now) as at:
        request = signed(Echo(), nonce=began)
        assert (await at.send(request)).status == 200
        for seconds in (-1, -60, 9, 3600, 5, 0):
            now = began + seconds * 1_000_000_000
            assert (await at.send(request)).status == 401


async def test_what_a_clock_that_was_ahead_made_forgotten_is_not_let_in_again(tmp_path: Path) -> None:
    began = now = time.time_ns()
    async with gateway(Axon().attach(echo), folder=tmp_path / "seen", now_ns=lambda: now) as at:
        request = signed(Echo(), nonce=began)
        assert (await at.send(request)).status == 200
        now = began + 3600 * 1_000_000_000
        assert (
            await at.post(Echo(), nonce=now)
        ).status == 200  # and what is stale by this clock is forgotten
        now = began
        answer = await at.send(request)
        assert answer.status == 401
        assert "clock of this axon was set back" in answer.message
        now = began + 20 * 1_000_000_000
        assert (await at.post(Echo(), nonce=now)).status == 200


async def test_what_cannot_be_written_down_is_not_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Journal, *_: object) -> None:
        raise OSError(28, "No space left on device")

    async with gateway(Axon().attach(echo), folder=tmp_path / "seen") as at:
        with monkeypatch.context() as broken:
            broken.setattr(Journal, "write", full)
            answer = await at.post(Echo())
            assert answer.status == 503
            assert "retry-after" in answer.headers
            assert (await at.get("/readyz")).status == 503
        assert (await at.post(Echo())).status == 200
        assert (await at.get("/readyz")).status == 200


def test_a_folder_has_one_gateway(tmp_path: Path) -> None:
    first = Journal(tmp_path, Window()).open()
    state = GatewayState(GatewaySettings(folder=tmp_path), ALICE)
    with pytest.raises(FolderInUse, match="--name"):
        state.open()
    first.close()
    state.open()
    state.close()


ROUTES = """
from typing import ClassVar
from bakemesh.edge import Axon
from bakemesh.protocol.axon import Synapse

class Echo(Synapse):
    required_hash_fields: ClassVar = ("text",)
    text: str = ""

async def echo(synapse: Echo) -> Echo:
    return synapse

axon = Axon().attach(echo)
"""


async def test_what_was_served_is_known_after_kill_9(tmp_path: Path) -> None:
    file = tmp_path / "routes.py"
    file.write_text(ROUTES)
    async with served_by_process(tmp_path, str(file), "--nonce-window-ms=600000") as running:
        requests = [signed(Echo(text=str(n)), to=running.hotkey) for n in range(20)]
        for request in requests:
            assert (await running.send(request)).status == 200
        for _ in range(2):
            await running.kill9()
            await running.start()
            for request in requests:
                answer = await running.send(request)
                assert answer.status == 401
                assert "seen already" in json.loads(answer.body)["message"]
        assert os.stat(tmp_path / "state" / "axon" / "seen" / "seen-0").st_size >= 20 * 32
        assert await running.stop() == 0
