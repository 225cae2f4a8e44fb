"""Components that are forks of a nursery: the same as executed ones, and never worse off for it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bakemesh.processes import Keeper, Nurse, Nursery, ShimExit, Shimmed, ShimSpec, adopt
from support.processes import PATH, Components, gone, new_marker
from support.waiting import eventually

MODULE = "support.portrait"
COMMON = {**PATH, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(Path(__file__).parents[2]), "LANG": "C.UTF-8"}
WAIT = "import time; print('up'); time.sleep(25)"
BUSY = "a nursery comes up in half a second, on a busy machine in many"


class Room:
    """A keeper, a nursery beside it, and what they start."""

    def __init__(self, keeper: Keeper, nursery: Nursery, components: Components) -> None:
        self.keeper, self.nursery, self.components = keeper, nursery, components

    def spec(self, *code: str, name: str = "it", env: dict[str, str] | None = None, **more: Any) -> ShimSpec:
        """A component that runs the code."""
        argv = [sys.executable, "-m", MODULE, *code]
        return self.components.spec(argv, name, env={**COMMON, **(env or {})}, module=MODULE, **more)

    async def start(self, how: str, *code: str, **more: Any) -> Shimmed:
        """It, by `fork` or by `exec`; fails where it was the other one."""
        spec = self.spec(*code, **more)
        shimmed = await (self.nursery if how == "fork" else self.keeper).launch(spec)
        assert self.way(shimmed) == how
        return shimmed

    def way(self, shimmed: Shimmed) -> str:
        """How it was started."""
        parent = int(Path(f"/proc/{shimmed.shim}/stat").read_text().rpartition(") ")[2].split()[1])
        return "fork" if parent == self.nursery.pid else "exec"


@asynccontextmanager
async def room(folder: Path, preload: str = "json", **settings: Any) -> AsyncIterator[Room]:
    token = new_marker()
    async with Components(folder) as components, await Keeper.start(token) as keeper:
        nursery = Nursery(keeper, token, Nurse(MODULE, preload=preload, common=COMMON), **settings)
        try:
            yield Room(keeper, nursery, components)
        finally:
            await nursery.close()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tested is the nursery, and not that a start does not wait for it for ever."""
    monkeypatch.setattr("bakemesh.processes.nursery.FIRST_S", 60.0)


async def test_a_fork_is_what_an_exec_would_be(tmp_path: Path) -> None:
    found = []
    async with room(tmp_path) as here:
        assert here.nursery.pid is None, "nobody wanted it yet"
        for how in ("exec", "fork"):
            env = {"WORD": "grün", "TZ": "Asia/Tokyo"}
            shimmed = await here.start(how, env=env, instance=f"one-{how}")
            assert (await shimmed.ended()).code == 0, here.components.text()
            found.append(json.loads(here.components.text().replace(f"one-{how}", "one")))
            (tmp_path / "it" / "out.log").unlink()
    executed, forked = found
    assert forked == executed
    assert forked["environ"][0] == "BAKEMESH_INSTANCE=one"
    assert len(forked["descriptors"]) == 3
    assert forked["path"][0] == str(tmp_path / "it")


@pytest.mark.parametrize("how", ["fork", "exec"])
async def test_every_end_is_told_the_same(tmp_path: Path, how: str) -> None:
    ends: dict[str, tuple[int | None, int | None, str]] = {
        "pass": (0, None, ""),
        "import sys; sys.exit(7)": (7, None, ""),
        "import sys; sys.exit('no more')": (1, None, "no more"),
        "1 / 0": (1, None, "ZeroDivisionError: division by zero"),
        "raise KeyboardInterrupt": (None, signal.SIGINT, "KeyboardInterrupt"),
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)": (None, signal.SIGTERM, ""),
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": (None, signal.SIGKILL, ""),
        "import atexit; atexit.register(print, 'last')": (0, None, "last"),
        "import threading, time; threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()": (
            0,
            None,
            "late",
        ),
        "import os; os._exit(9)": (9, None, ""),
    }
    async with room(tmp_path) as here:
        for number, (code, (exit_code, by_signal, said)) in enumerate(ends.items()):
            shimmed = await here.start(how, code, name=str(number))
            end = await shimmed.ended()
            text = here.components.text(str(number))
            assert (end.code, end.signal, end.lost) == (exit_code, by_signal, False), (code, text)
            assert (said in text) if said else text == "", code


async def test_a_stop_at_once_ends_it_and_so_does_one_later(tmp_path: Path) -> None:
    async with room(tmp_path) as here:
        for wait in (False, True):
            shimmed = await here.start("fork", WAIT)
            if wait:
                await eventually(lambda: "up" in here.components.text())
            await shimmed.stop(20)
            assert (await shimmed.ended()).signal == signal.SIGTERM
            assert gone(shimmed.pid)


async def test_it_is_found_again_and_dies_with_its_shim(tmp_path: Path) -> None:
    async with room(tmp_path) as here:
        spec = here.spec(WAIT)
        first = await here.nursery.launch(spec)
        first.close()
        second = await adopt(spec.folder, spec.instance)
        assert isinstance(second, Shimmed)
        assert second.pid == first.pid
        os.kill(second.shim, signal.SIGKILL)
        end = await second.ended()
        assert end.lost
        assert gone(first.pid)


async def test_components_outlive_their_nursery_and_the_next_are_not_held_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with room(tmp_path, first_pause_s=0.05) as here:
        spec = here.spec(WAIT, name="old")
        old = await here.nursery.launch(spec)
        assert here.way(old) == "fork"
        nurse = here.nursery.pid
        assert nurse is not None
        os.kill(nurse, signal.SIGKILL)
        new = await here.nursery.launch(here.spec(WAIT, name="new"))
        await eventually(lambda: "up" in here.components.text("new"))
        assert not gone(old.pid)
        old.close()
        again = await adopt(spec.folder, spec.instance)
        assert isinstance(again, Shimmed)
        await eventually(lambda: here.nursery.pid not in (None, nurse), within=60, what=BUSY)
        third = await here.start("fork", WAIT, name="third")
        for each in (again, new, third):
            await each.stop(0)
    assert sum("no nursery" in record.message for record in caplog.records) == 1


async def test_starts_that_wait_when_it_dies_are_all_made_once(tmp_path: Path) -> None:
    async with room(tmp_path) as here:
        await (await here.start("fork", "pass")).ended()
        nurse = here.nursery.pid
        assert nurse is not None
        os.kill(nurse, signal.SIGSTOP)
        code = "import os; print(os.getpid())"
        specs = [here.spec(code, name=f"n{number}") for number in range(40)]
        starts = [asyncio.create_task(here.nursery.launch(spec)) for spec in specs]
        await asyncio.sleep(0)  # each has its turn, and waits in the nursery's queue or in this process
        os.kill(nurse, signal.SIGKILL)
        for start in starts:
            assert (await (await start).ended()).code == 0
        for spec in specs:
            assert len(here.components.text(spec.folder.name).splitlines()) == 1


async def test_one_that_hangs_is_killed_and_its_starts_are_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with room(tmp_path) as here:
        await (await here.start("fork", "pass")).ended()
        nurse = here.nursery.pid
        assert nurse is not None
        monkeypatch.setattr("bakemesh.processes.nursery.HUNG_S", 0.05)
        os.kill(nurse, signal.SIGSTOP)
        started = await asyncio.gather(*(here.nursery.launch(here.spec("pass", name=n)) for n in "abc"))
        assert [(await each.ended()).code for each in started] == [0, 0, 0]
        assert gone(nurse)


@pytest.mark.parametrize("preload", ["no.such.module", "support.threaded"])
async def test_without_a_nursery_components_are_executed_and_it_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, preload: str
) -> None:
    async with room(tmp_path, preload, first_pause_s=0.01) as here:
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                shimmed = await here.nursery.launch(here.spec("pass"))
                assert await shimmed.ended() == ShimExit(
                    0, None, lost=False, at=pytest.approx(shimmed.began, abs=60), max_rss_kib=_ANY, cpu_s=_ANY
                )
        assert here.nursery.pid is None
    assert sum("no nursery" in record.message for record in caplog.records) == 1


class _Any:
    def __eq__(self, _: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


_ANY: Any = _Any()


async def test_who_needs_an_interpreter_of_its_own_is_executed(tmp_path: Path) -> None:
    async with room(tmp_path) as here:
        await (await here.start("fork", "pass")).ended()
        for env in ({"PYTHONHASHSEED": "7"}, {"LC_ALL": "C"}, {"LD_BIND_NOW": "1"}):
            shimmed = await here.nursery.launch(here.spec(WAIT, env=env))
            assert here.way(shimmed) == "exec", env
            await shimmed.stop(0)
        other = await here.nursery.launch(here.components.spec(["sleep", "25"], env=COMMON))
        assert here.way(other) == "exec"
        await other.stop(0)


async def test_fifty_at_once_are_fifty(tmp_path: Path) -> None:
    code = "import os, random, uuid; print(os.environ['N'], random.random(), uuid.uuid4())"
    async with room(tmp_path) as here:
        starts = [
            here.nursery.launch(here.spec(code, name=f"n{number}", env={"N": str(number)}))
            for number in range(50)
        ]
        ends = await asyncio.gather(*(each.ended() for each in await asyncio.gather(*starts)))
        assert [end.code for end in ends] == [0] * 50
        words = [here.components.text(f"n{number}").split() for number in range(50)]
        assert [int(first) for first, _, _ in words] == list(range(50))
        assert len({second for _, second, _ in words}) == 50, "each has randomness of its own"


async def test_a_large_environment_is_all_there_and_the_mark_is_seen(tmp_path: Path) -> None:
    env = {f"LARGE{number}": "x" * 5000 for number in range(20)}
    code = "import os, time; print(sum(map(len, os.environ.values()))); time.sleep(25)"
    async with room(tmp_path) as here:
        shimmed = await here.start("fork", code, env=env)
        text = await eventually(here.components.text)
        assert int(text) > 20 * 5000
        shown = Path(f"/proc/{shimmed.pid}/environ").read_bytes().split(b"\0")
        assert shown[0] == f"BAKEMESH_INSTANCE={shimmed.instance}".encode()
        assert b"LARGE0=" + b"x" * 5000 in shown
        await shimmed.stop(0)


async def test_forks_share_what_the_nursery_imported(tmp_path: Path) -> None:
    """Of the memory of many the most is there once."""
    code = f"import pydantic, ssl; {WAIT}"
    shares: dict[str, float] = {}
    async with room(tmp_path, "support.heavy") as here:
        for how in ("fork", "exec"):
            started = [await here.start(how, code, name=f"{how}{number}") for number in range(5)]
            for number in range(5):
                await eventually(lambda name=f"{how}{number}": "up" in here.components.text(name), within=60)
            shares[how] = sum(_private_kib(each.pid) for each in started) / 5
            for each in started:
                await each.stop(0)
    assert shares["fork"] < shares["exec"] / 2, shares


def _private_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
