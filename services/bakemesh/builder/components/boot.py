"""The node's start: what its components, and who brought them up, belong to.

A new one where the machine was started anew, where the last stop stopped the node's components on purpose,
and on a folder that was copied; a crash or an upgrade of the Builder keeps it.
"""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass
from pathlib import Path

from bakemesh.builder.journal.journal import Journal
from bakemesh.builder.journal.records import Db, get_meta, set_meta

_BOOT, _MACHINE = "node boot", "machine boot"


@dataclass(frozen=True, slots=True)
class Boot:
    """`id` is what SystemStatus says."""

    id: str


def machine_boot() -> str:
    """This start of the machine."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return "unknown"


def decide(kept: str | None, kept_machine: str | None, machine: str, *, copied: bool) -> bool:
    """Pure: whether this is a new start of the node."""
    return copied or not kept or kept_machine != machine


async def settle_boot(journal: Journal, *, copied: bool, machine: str | None = None) -> Boot:
    """This start of the node; kept in the journal."""
    machine = machine or machine_boot()
    kept = get_meta(journal.db, _BOOT)
    new = decide(kept, get_meta(journal.db, _MACHINE), machine, copied=copied)
    boot = Boot(uuid.uuid4().hex if new or not kept else kept)

    def work(db: Db) -> None:
        set_meta(db, _BOOT, boot.id)
        set_meta(db, _MACHINE, machine)

    await journal.commit(work)
    return boot


def begin_boot(db: Db, fresh: str) -> None:
    """In the same write as what goes with it: the next start of the node has this id."""
    set_meta(db, _BOOT, fresh)


async def end_boot(journal: Journal, boot: str) -> None:
    """The node's components are about to be stopped on purpose: the next start is a new one, however far
    this one's stop gets. Where `boot` is ended already nothing changes."""

    def work(db: Db) -> None:
        if get_meta(db, _BOOT) == boot:
            begin_boot(db, uuid.uuid4().hex)

    await journal.commit(work)
