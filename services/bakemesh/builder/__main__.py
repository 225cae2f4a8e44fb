"""`python -m bakemesh.builder`: settings, signals, exit codes. Logs go to stderr, one `ready {…}` line to
stdout.

Exit codes: 0 stopped, also while it starts · 2 bad settings, another mesh's state folder · 5 bus
unreachable · 6 the node has a Builder already, or was taken by one · 7 the node was asked down · 1 anything
else.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from pathlib import Path

from bakemesh import logs
from bakemesh.builder.folder import NodeTaken, StateRefused
from bakemesh.builder.journal import JournalBroken, JournalRefused
from bakemesh.builder.nodelife import NodeDown
from bakemesh.builder.service import run
from bakemesh.builder.settings import BuilderSettings, environment_of
from bakemesh.bus import loop
from bakemesh.bus.errors import BadCredentials, BusError, BusUnreachable
from bakemesh.bus.settings import BusSettings, Credentials
from bakemesh.processes import KeeperFailed
from bakemesh.protocol import names
from bakemesh.protocol.errors import NameRefused
from bakemesh.settings import SettingRefused, add_flags, find_toml, flags_of, load, settle_node
from bakemesh.settings.node import NodeRefused

log = logging.getLogger(__name__)
DONE, FAILED, USAGE, UNREACHABLE, TAKEN, DOWN = 0, 1, 2, 5, 6, 7
CLOSE_S = 1.0  # for the connection to send what is pending


def resolve(argv: list[str]) -> BuilderSettings:
    """Flags, environment, file, default. Raises SettingRefused, NodeRefused, NameRefused."""
    parser = argparse.ArgumentParser(prog="bakemesh builder", description="Runs this node's Builder.")
    add_flags(parser)
    namespace = parser.parse_args(argv)
    toml = find_toml(namespace.setting_config, os.environ, Path.cwd())
    settings = load(flags_of(namespace), os.environ, toml)
    node = settle_node(settings)
    names.check_own_node_id(node.id)
    logs.setup(settings.log_format, settings.log_level, node=node.id)
    bus = BusSettings(
        servers=settings.nats,
        mesh=settings.mesh,
        name="builder",
        node_id=node.id,
        identity=f"builder-{node.id}",
        credentials=Credentials(nkey_file=settings.creds) if settings.creds else None,
        close_timeout_s=CLOSE_S,
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
        stop_components=settings.on_stop == "stop",
        keys=settings.keys_dir,
        environment=environment_of(os.environ),
    )


async def serve(settings: BuilderSettings) -> None:
    """Runs until TERM or INT."""
    stop = asyncio.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sign, stop.set)

    def ready() -> None:
        told = {"node": settings.node, "nodeid": settings.node_id, "pid": os.getpid()}
        with contextlib.suppress(OSError):
            print("ready", json.dumps(told), flush=True)

    await run(settings, stop, ready=ready)


def main(argv: list[str] | None = None) -> int:
    """The process: returns its exit code, having said on stderr what was wrong."""
    try:
        settings = resolve(sys.argv[1:] if argv is None else argv)
    except (SettingRefused, NodeRefused, NameRefused) as error:
        return _say(error, USAGE)
    try:
        loop.run(serve(settings))
    except NodeTaken as error:
        return _say(error, TAKEN)
    except NodeDown:
        return DOWN
    except BusUnreachable as error:
        return _say(error, UNREACHABLE)
    except (BadCredentials, StateRefused) as error:
        return _say(error, USAGE)
    except (BusError, JournalBroken, JournalRefused, KeeperFailed, OSError) as error:
        return _say(error, FAILED)
    except Exception:
        log.exception("the Builder failed")
        return FAILED
    return DONE


def _say(error: BaseException, code: int) -> int:
    print(f"bakemesh builder: {error}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
