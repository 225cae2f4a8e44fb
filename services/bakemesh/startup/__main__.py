"""`python -m bakemesh.startup [PSYSPEC]`: settings, signals, exit codes. Logs go to stderr, lines to stdout
(`telling`), the first of them `ready {…}`.

Exit codes: 0 stopped · 2 bad settings, a PsySpec that is refused · 5 bus unreachable · 6 the state folder
has a Startup Supervisor already · 1 anything else.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sqlite3
import sys
from pathlib import Path

from bakemesh import logs
from bakemesh.bus import loop
from bakemesh.bus.errors import BadCredentials, BusError, BusUnreachable
from bakemesh.bus.settings import BusSettings, Credentials
from bakemesh.protocol import names
from bakemesh.protocol.errors import NameRefused
from bakemesh.protocol.psyspec import PsySpecRefused, bundle
from bakemesh.protocol.rights import startup_name
from bakemesh.settings import SettingRefused, add_flags, find_toml, flags_of, load, settle_node
from bakemesh.settings.node import NodeRefused
from bakemesh.startup.folder import StartupTaken
from bakemesh.startup.journal import JournalRefused
from bakemesh.startup.service import run
from bakemesh.startup.settings import StartupSettings
from bakemesh.startup.telling import to_stdout
from bakemesh.supervisor import SupervisorError

log = logging.getLogger(__name__)
DONE, FAILED, USAGE, UNREACHABLE, TAKEN = 0, 1, 2, 5, 6
CLOSE_S = 1.0


def resolve(argv: list[str]) -> StartupSettings:
    """Flags, environment, file, default, and the PsySpec's text. Raises SettingRefused, NodeRefused,
    NameRefused, PsySpecRefused, OSError.
    """
    parser = argparse.ArgumentParser(
        prog="bakemesh startup", description="Runs this node's Startup Supervisor."
    )
    parser.add_argument("psyspec", nargs="?", metavar="PSYSPEC")
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
        name="startup",
        node_id=node.id,
        identity=startup_name(node.id),
        credentials=Credentials(nkey_file=settings.creds) if settings.creds else None,
        close_timeout_s=CLOSE_S,
    )
    return StartupSettings(
        bus=bus,
        node=node.name,
        node_id=node.id,
        state=settings.state,
        operators=frozenset(settings.operators),
        psyspec=read_file(Path(namespace.psyspec)) if namespace.psyspec else None,
    )


def read_file(path: Path) -> tuple[str, str]:
    """A PsySpec's bundled text, and its file. Raises PsySpecRefused, OSError."""
    text = path.read_text("utf-8")
    return bundle(text, file=str(path), read=lambda name: Path(name).read_text("utf-8")), str(path)


async def serve(settings: StartupSettings) -> None:
    """Runs until TERM or INT."""
    stop = asyncio.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sign, stop.set)

    def ready() -> None:
        to_stdout("ready", {"node": settings.node, "nodeid": settings.node_id, "pid": os.getpid()})

    await run(settings, stop, ready=ready, line=to_stdout)


def main(argv: list[str] | None = None) -> int:
    """The process: returns its exit code, having said on stderr what was wrong."""
    try:
        settings = resolve(sys.argv[1:] if argv is None else argv)
    except (SettingRefused, NodeRefused, NameRefused, PsySpecRefused, OSError) as error:
        return _say(error, USAGE)
    try:
        loop.run(serve(settings))
    except StartupTaken as error:
        return _say(error, TAKEN)
    except BusUnreachable as error:
        return _say(error, UNREACHABLE)
    except (BadCredentials, JournalRefused, PsySpecRefused) as error:
        return _say(error, USAGE)
    except (BusError, SupervisorError, sqlite3.Error, OSError) as error:
        return _say(error, FAILED)
    except Exception:
        log.exception("the Startup Supervisor failed")
        return FAILED
    return DONE


def _say(error: BaseException, code: int) -> int:
    print(f"bakemesh startup: {error}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
