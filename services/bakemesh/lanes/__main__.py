"""`python -m bakemesh.lanes START.JSON`, as a component of a Builder; `python -m bakemesh.lanes [flags]`, by
hand. Logs go to stderr; by hand the first line on stdout is `ready {…}`.

Exit codes: 0 stopped · 2 bad settings, no usable start file · 5 bus unreachable · 69 the Builder does not
know this start · 70 the component failed · 1 anything else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path

from bakemesh import logs
from bakemesh.bus import Bus, loop
from bakemesh.bus.errors import BadCredentials, BusError, BusUnreachable
from bakemesh.bus.settings import BusSettings, Credentials
from bakemesh.crank.serviced import Ready, run_component
from bakemesh.crank.start import ServiceStart, StartRefused
from bakemesh.lanes.service import run
from bakemesh.lanes.settings import (
    ENGINES,
    SERVICE,
    LanesSettings,
    ParameterRefused,
    cores,
    of_parameters,
    workers_of,
)
from bakemesh.protocol import names
from bakemesh.protocol.errors import NameRefused
from bakemesh.settings import SettingRefused, add_flags, find_toml, flags_of, load, settle_node
from bakemesh.settings.node import NodeRefused
from bakemesh.workerpool import EngineCrashed, RuntimeDirRefused

log = logging.getLogger(__name__)
DONE, FAILED, USAGE, UNREACHABLE = 0, 1, 2, 5
FLAGS = ("nats", "node", "state", "creds", "mesh", "log-format", "log-level")
CLOSE_S = 1.0
_POOL_S = 1.5  # of the shutdown time, for the workers' own end


def parser() -> argparse.ArgumentParser:
    """By hand."""
    made = argparse.ArgumentParser(prog="bakemesh lanes", description="Offers engine workers to the mesh.")
    made.add_argument("start", nargs="?", metavar="START.JSON", help="as a Builder starts it")
    made.add_argument("--name", default=SERVICE, help="its party; its lanes are NAME-w0, … [%(default)s]")
    made.add_argument("--workers", type=int, help="how many lanes [one a core]")
    made.add_argument("--engine", choices=ENGINES, default=ENGINES[0], help="[%(default)s]")
    made.add_argument("--cache", type=Path, metavar="DIR", help="of artifacts [STATE/lanes/cache]")
    add_flags(made, FLAGS)
    return made


def resolve(given: argparse.Namespace) -> tuple[LanesSettings, BusSettings]:
    """Flags, environment, file, default. Raises SettingRefused, NodeRefused, NameRefused,
    ParameterRefused."""
    toml = find_toml(given.setting_config, os.environ, Path.cwd())
    settings = load(flags_of(given), os.environ, toml)
    node = settle_node(settings)
    names.check_own_node_id(node.id)
    name = names.check("module", given.name)
    logs.setup(settings.log_format, settings.log_level, node=node.id, component=name)
    folder = settings.state / SERVICE
    made = LanesSettings(
        node=node.name,
        node_id=node.id,
        name=name,
        folder=folder / name,
        cache=given.cache.absolute() if given.cache else folder / "cache",
        workers=cores() if given.workers is None else workers_of(given.workers),
        engine=given.engine,
    )
    bus = BusSettings(
        servers=settings.nats,
        mesh=settings.mesh,
        name=name,
        node_id=node.id,
        credentials=Credentials(nkey_file=settings.creds) if settings.creds else None,
        close_timeout_s=CLOSE_S,
    )
    return made, bus


async def by_hand(settings: LanesSettings, wanted: BusSettings) -> None:
    """Runs until TERM or INT."""
    stop = asyncio.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sign, stop.set)

    def ready() -> None:
        told = {"node": settings.node, "nodeid": settings.node_id, "pid": os.getpid()}
        print("ready", json.dumps({**told, "name": settings.name, "lanes": settings.workers}), flush=True)

    async with await Bus.connect(wanted) as bus:
        await run(bus, settings, stop, ready=ready)


def component(path: Path) -> int:
    """Runs the component that the start file describes."""
    try:
        start = ServiceStart.read(path, SERVICE)
    except (StartRefused, OSError) as error:
        return _say(error, USAGE)
    logs.setup_component(os.environ, node=start.node_id, component=start.name)

    async def work(bus: Bus, stop: asyncio.Event, ready: Ready) -> None:
        settings = of_parameters(  # what is wrong with them, the Builder is told
            start.parameters(),
            node=start.node,
            node_id=start.node_id,
            name=start.name,
            data=start.data,
            drain_s=max(0.0, start.shutdown_s - _POOL_S),
        )
        await run(bus, settings, stop, ready=ready)

    return loop.run(run_component(start, work))


def main(argv: list[str] | None = None) -> int:
    """The process: returns its exit code, having said on stderr what was wrong."""
    given = parser().parse_args(sys.argv[1:] if argv is None else argv)
    if given.start is not None:
        return component(Path(given.start))
    try:
        settings, bus = resolve(given)
    except (SettingRefused, NodeRefused, NameRefused, ParameterRefused) as error:
        return _say(error, USAGE)
    try:
        loop.run(by_hand(settings, bus))
    except BusUnreachable as error:
        return _say(error, UNREACHABLE)
    except BadCredentials as error:
        return _say(error, USAGE)
    except (BusError, EngineCrashed, RuntimeDirRefused, OSError) as error:
        return _say(error, FAILED)
    except Exception:
        log.exception("the lane host failed")
        return FAILED
    return DONE


def _say(error: BaseException, code: int) -> int:
    print(f"bakemesh lanes: {error}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
