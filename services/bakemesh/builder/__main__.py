"""`python -m bakemesh.builder`: settings, signals, exit codes. Logs go to stderr, one `ready {…}` line to stdout.

Exit codes: 0 stopped · 2 bad settings · 5 bus unreachable · 6 the node has a Builder already · 1 anything else.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys

from bakemesh import logs
from bakemesh.builder.journal import JournalRefused
from bakemesh.builder.service import NodeTaken, run
from bakemesh.builder.settings import BuilderSettings, environment_of
from bakemesh.bus.errors import BadCredentials, BusError, BusUnreachable
from bakemesh.bus.settings import BusSettings, Credentials
from bakemesh.processes import KeeperFailed
from bakemesh.settings import SettingRefused, add_flags, find_toml, flags_of, load, settle_node
from bakemesh.settings.node import NodeRefused

DONE, FAILED, USAGE, UNREACHABLE, TAKEN = 0, 1, 2, 5, 6


def resolve(argv: list[str]) -> BuilderSettings:
    """Flags, environment, file, default. Raises SettingRefused, NodeRefused, BadCredentials."""
    parser = argparse.ArgumentParser(prog="bakemesh builder", description="Runs this node's Builder.")
    add_flags(parser)
    flags = flags_of(parser.parse_args(argv))
    settings = load(flags, os.environ, find_toml(None, os.environ, settings_folder()))
    logs.setup(settings.log_format, settings.log_level)
    node = settle_node(settings)
    bus = BusSettings(
        servers=settings.nats,
        mesh=settings.mesh,
        name="builder",
        node_id=node.id,
        credentials=Credentials.of(settings.creds),
    )
    return BuilderSettings(
        bus=bus,
        node=node.name,
        node_id=node.id,
        state=settings.state,
        operators=frozenset(settings.operators),
        accept_forwarded=settings.accept_forwarded,
        max_bakes=settings.max_bakes,
        store_max_bytes=settings.store_max_bytes,
        nodes_expected=settings.nodes_expected,
        durability=settings.durability,
        kill_grace_s=settings.kill_grace_ms / 1000,
        unreachable_s=settings.unreachable_ms / 1000,
        control_rate=settings.control_rate,
        recipe_rate=settings.recipe_rate,
        outbox_max_bytes=settings.outbox_max_bytes,
        environment=environment_of(os.environ),
    )
