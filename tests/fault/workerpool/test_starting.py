"""Workers that do not come up as they should: by real processes, speaking real bytes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

import pytest

from bakemesh.workerpool import EngineCrashed, Pool, RuntimeDirRefused, Settings
from bakemesh.workerpool.places import Place
from support.processes import children, gone
from support.waiting import eventually
from support.workerpools import named, pools, scripted, share


async def refused(tmp_path, behaviour: str, **settings) -> EngineCrashed:
    """What `start` says of such a worker; nothing of it is left."""
    before = set(children(os.getpid()))
    with pytest.raises(EngineCrashed) as caught:
        async with pools(tmp_path, scripted(behaviour), **settings):
            pass
    assert caught.value.stage == "start"
    assert set(children(os.getpid())) == before
    assert not named(str(tmp_path))
    assert not list((tmp_path / "run").rglob("*.sock"))
    return caught.value


async def test_a_worker_that_ends_before_its_hello_is_told_with_code_and_output(tmp_path):
    error = await refused(tmp_path, "exits")
    assert (error.exit_code, error.signal) == (7, None)
    assert "[stderr] cannot find my engine" in error.output
    assert "[stdout] something on stdout" in error.output


@pytest.mark.parametrize("behaviour", ["never_connects", "no_hello"])
async def test_a_worker_that_says_nothing_is_killed_at_the_handshakes_deadline(tmp_path, behaviour):
    error = await refused(tmp_path, behaviour, handshake_s=2.0)
    assert error.signal == 9
    assert "did not say HELLO within 2 s" in str(error)


async def test_the_started_worker_with_another_nonce_is_killed_at_once(tmp_path):
    error = await refused(tmp_path, "wrong_nonce")
    assert error.signal == 9
    assert "another nonce" in str(error)


async def test_another_version_ends_the_start_and_is_not_worth_another_try(tmp_path):
    error = await refused(tmp_path, "wrong_version")
    assert "version 2" in str(error)
    assert not error.safe_to_retry


@pytest.mark.parametrize("behaviour", ["half_hello", "large_hello"])
async def test_a_hello_that_is_none_is_killed(tmp_path, behaviour):
    assert "HELLO" in str(await refused(tmp_path, behaviour))


async def test_a_message_before_the_ack_is_a_violation_and_the_worker_is_started_again(tmp_path):
    # Its HELLO was good, so it may be taken for up for a moment; it is never up for long.
    async with pools(tmp_path, scripted("before_ack"), start=False) as world:
        starting = asyncio.ensure_future(world.pool.start())
        await asyncio.wait([starting])
        if starting.exception() is None:
            await eventually(lambda: world.pool.health().lanes[0].last_crash)
        assert "broke the protocol" in world.pool.health().lanes[0].last_crash
        await world.pool.close()


async def test_strangers_on_the_socket_hold_nobody_up_and_are_let_in_by_nothing(tmp_path):
    async with pools(tmp_path, scripted("after_strangers")) as world:
        model = await world.load()
        assert (await world.pool.embed(model.key, share([1, 2]))).n == 1
        strangers = named("\0stranger\0")
        assert strangers
        assert world.pid() not in strangers
        for pid in strangers:
            os.kill(pid, 9)


async def test_a_program_that_does_not_exist_is_said(tmp_path):
    with pytest.raises(EngineCrashed, match="no-such-worker"):
        async with pools(tmp_path, ("/no-such-worker",)):
            pass


async def test_the_sockets_are_private_and_gone_once_the_worker_is_in(tmp_path):
    seen = []
    async with pools(tmp_path, scripted("never_connects"), start=False, handshake_s=10.0) as world:
        starting = asyncio.ensure_future(world.pool.start())
        path = tmp_path / "run" / "synapse" / "workers" / "w0.sock"
        await eventually(path.exists)
        seen += [oct(folder.stat().st_mode & 0o777) for folder in list(path.parents)[:3]]
        assert oct(path.stat().st_mode & 0o777) == "0o600"
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    assert seen == ["0o700"] * 3
    assert not path.exists()
    assert not named(str(path))


async def test_what_a_dead_host_left_is_removed_but_a_file_that_is_no_socket_is_not(tmp_path):
    path = tmp_path / "run" / "synapse" / "workers" / "w0.sock"
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    async with pools(tmp_path, scripted("good")) as world:
        assert (await world.load()).dims == 1
    assert not (tmp_path / "run").exists()
    path.parent.mkdir(parents=True)
    path.write_text("somebody's notes")
    with pytest.raises((RuntimeDirRefused, EngineCrashed), match="no socket"):
        async with pools(tmp_path, scripted("good"), start_s=3.0):
            pass
    assert path.read_text() == "somebody's notes"


async def test_a_runtime_folder_may_be_taken_as_it_is_let_go(tmp_path):
    def hold() -> int:
        taken = 0
        for _ in range(300):
            with contextlib.suppress(RuntimeDirRefused):
                place = Place(tmp_path / "run")
                taken += 1
                assert (tmp_path / "run" / "pool.lock").is_file()  # it is this one's, and there
                place.close()
        return taken

    assert sum(await asyncio.gather(*(asyncio.to_thread(hold) for _ in range(4)))) > 0
    assert not (tmp_path / "run").exists()


async def test_a_runtime_folder_is_one_pools_at_a_time(tmp_path):
    async with pools(tmp_path, scripted("good")) as world:
        second = Pool(Settings(runtime_dir=world.folder / "run", command=scripted("good")))
        with pytest.raises(RuntimeDirRefused, match="another pool"):
            await second.start()
        assert (await world.load()).dims == 1


async def test_a_runtime_folder_with_too_long_a_name_is_said_with_the_limit(tmp_path):
    longer = tmp_path / ("x" * 120)
    longer.mkdir()
    with pytest.raises(EngineCrashed, match=r"allows 107: choose a shorter runtime folder"):
        async with pools(longer, scripted("good")):
            pass


async def test_a_worker_that_comes_late_but_in_time_is_taken_and_one_too_late_is_not(tmp_path):
    async with pools(tmp_path, scripted("slow_start"), handshake_s=60.0) as world:
        pid = world.pid()
        assert not gone(pid)
        assert world.pool.health().lanes[0].starts == 1
        assert (await world.load()).dims == 1
    assert gone(pid)
    error = await refused(tmp_path, "slow_start", handshake_s=0.5)
    assert error.signal == 9
    assert "did not say HELLO within 0.5 s" in str(error)
