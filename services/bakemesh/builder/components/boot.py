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
    new: bool


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
    boot = Boot(uuid.uuid4().hex if new or not kept else kept, new)

    def work(db: Db) -> None:
        set_meta(db, _BOOT, boot.id)
        set_meta(db, _MACHINE, machine)

    await journal.commit(work)
    return boot


async def end_boot(journal: Journal) -> None:
    """The node's components are about to be stopped on purpose: the next start is a new one, however far
    this one's stop gets."""
    await journal.commit(lambda db: set_meta(db, _BOOT, ""))
