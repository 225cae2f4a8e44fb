"""A component of a Builder before this one, found again: by its folder and the name of its instance.

Guarantees: never by a pid alone: the shim is pinned by a pidfd, its start time, the boot and the peer of its
socket are compared, and it names its instance itself. Whatever is answered but a `Shimmed`, nothing of the
instance is alive: so that it can be started again and is never doubled.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import Callable
from pathlib import Path

from bakemesh.processes import frames, marks, records
from bakemesh.processes.connecting import AGAIN_S, ANSWER_S, ask, connect
from bakemesh.processes.shimmed import Shimmed, say
from bakemesh.processes.spec import ShimExit, Survivor, check_instance
from bakemesh.processes.sweeping import sweep_to_the_last

END_S = 5.0


async def adopt(
    folder: Path, instance: str, on_survivors: Callable[[tuple[Survivor, ...]], object] = say
) -> Shimmed | ShimExit | None:
    """The component where it runs, how it ended where it does not, None where nothing is known of it.

    What lives of the instance without a shim that answers is killed first, however long that takes: who
    survives SIGKILL is told every few seconds. Raises ValueError.
    """
    check_instance(instance)
    identity = records.read_identity(folder, instance)
    if identity is not None and identity.boot != records.boot_id():
        return records.read_exit(folder, instance) or _LOST
    shim = None
    if identity is not None:
        mark = marks.component_mark(instance) if identity.marked else None
        shim = records.pin(identity.shim, identity.shim_start, mark)
    if identity is not None and shim is not None:
        try:
            signal.pidfd_send_signal(shim, signal.SIGCONT)  # one that is stopped would not answer
            found = await _reach(folder, identity, shim)
            if isinstance(found, Shimmed):
                return found
            await _end(shim)
            if found is not None:
                return found
        except ProcessLookupError:
            pass
        finally:
            os.close(shim)
    # Read after the shim's death was seen: it writes before it ends.
    end = records.read_exit(folder, instance)
    if end is not None:
        return end
    known = identity is not None and records.read_identity(folder, instance) is not None
    killed = await sweep_to_the_last(instance, on_survivors)
    return _LOST if known or killed else None


_LOST = ShimExit(None, None, lost=True, at=None)


async def _reach(folder: Path, identity: records.Identity, shim: int) -> Shimmed | ShimExit | None:
    """Asks the shim while it lives; again where another Builder's connection, newer, ended this one."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + ANSWER_S
    dead = select.poll()
    dead.register(shim, select.POLLIN)
    while loop.time() < deadline and not dead.poll(0):
        control = await connect(folder, identity.shim)
        if control is not None:
            try:
                answer = await ask(control)
            except BaseException:
                control.close()
                raise
            if isinstance(answer, frames.Running) and answer.instance == identity.instance:
                return Shimmed(folder, answer, control)
            control.close()
            if isinstance(answer, frames.Over):
                return records.parse_exit(answer.text, identity.instance)
        await asyncio.sleep(AGAIN_S)
    return None


async def _end(shim: int) -> None:
    """Waits for a shim that is about to end; one that hangs is killed."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(shim, ended.set)
    try:
        async with asyncio.timeout(END_S):
            await ended.wait()
    except TimeoutError:
        signal.pidfd_send_signal(shim, signal.SIGKILL)
        await ended.wait()
    finally:
        loop.remove_reader(shim)
