"""A component ends, and its exit file cannot be written: the folder is gone, or something is in its place."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

from support.attempts import keeping
from support.processes import Components, gone
from support.waiting import eventually


async def test_the_shim_of_a_folder_that_was_removed_ends_with_its_component(tmp_path: Path) -> None:
    async with keeping() as keeper, Components(tmp_path) as components:
        shimmed = await keeper.launch(components.spec(["/bin/sleep", "1000"]))
        shimmed.close()
        shutil.rmtree(tmp_path / "it")
        os.kill(shimmed.pid, signal.SIGKILL)
        await eventually(lambda: gone(shimmed.shim), what="the end of the shim")


async def test_a_shim_that_cannot_write_the_exit_waits_asleep_until_it_can(tmp_path: Path) -> None:
    async with keeping() as keeper, Components(tmp_path) as components:
        shimmed = await keeper.launch(components.spec(["/bin/sleep", "1000"]))
        shimmed.close()
        (tmp_path / "it" / "shim.exit").mkdir()
        os.kill(shimmed.pid, signal.SIGKILL)
        await eventually(lambda: gone(shimmed.pid), what="the end of the component")
        await eventually(lambda: state_of(shimmed.shim) == "S", what="a shim that sleeps")
        (tmp_path / "it" / "shim.exit").rmdir()
        await eventually(lambda: gone(shimmed.shim), what="the end of the shim")
        assert b"status" in (tmp_path / "it" / "shim.exit").read_bytes()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
