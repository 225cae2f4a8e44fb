"""`python -m bakemesh.axon START.JSON`, as a component of a Builder; `python -m bakemesh.axon [FILE.py …]
[flags]`, by hand. Logs go to stderr; by hand the first line on stdout is `ready {…}`.

By hand it has a bus where one is named (`--nats`, the environment, bakemesh.toml, a running `bakemesh up`),
or where there is no FILE.py; so a gateway of one's own synapses needs no mesh.

Exit codes: 0 stopped · 2 bad settings, a bad key or routes file, no usable start file · 5 bus unreachable ·
69 the Builder does not know this start · 70 the component failed · 1 anything else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from bakemesh import logs
from bakemesh.axon import parameters
from bakemesh.axon.denied import DenyListRefused
from bakemesh.axon.gateway import stuck_handlers
from bakemesh.axon.parameters import Given, ParametersRefused
from bakemesh.axon.service import AxonSettings, NothingToServe, Serves, run
from bakemesh.axon.settings import SERVICE
from bakemesh.bus import Bus, loop
from bakemesh.bus.errors import BadCredentials, BusError, BusUnreachable
from bakemesh.bus.settings import BusSettings, Credentials
from bakemesh.crank.serviced import Ready, run_component
from bakemesh.crank.start import ServiceStart, StartRefused
from bakemesh.edge import AttachRefused, FileRefused
from bakemesh.hotkeys import HotkeyRefused
from bakemesh.protocol import names
from bakemesh.protocol.errors import NameRefused
from bakemesh.settings import Origin, SettingRefused, add_flags, find_toml, flags_of, load, settle_node
from bakemesh.settings.node import NodeRefused

log = logging.getLogger(__name__)
DONE, FAILED, USAGE, UNREACHABLE = 0, 1, 2, 5
FLAGS = ("nats", "node", "state", "creds", "mesh", "log-format", "log-level")
API_KEYS = "api-keys"  # as bakemesh.cli.verbs.axon_key has it in the state folder
CLOSE_S = 1.0
_END_S = 1.0  # of the shutdown time, for what is behind the requests


def parser() -> argparse.ArgumentParser:
    """By hand."""
    made = argparse.ArgumentParser(prog="bakemesh axon", description="Runs one gateway.", allow_abbrev=False)
    made.add_argument("files", nargs="*", metavar="FILE.py", help="synapses of your own")
    made.add_argument("--name", default=SERVICE, help="its name on the bus and in the state folder")
    for name, row in parameters.ROWS.items():
        if name != "routes":
            made.add_argument(f"--{name}", metavar="VALUE", help=row.text.replace("%", "%%"))
    add_flags(made, FLAGS)
    return made


def resolve(given: argparse.Namespace) -> tuple[AxonSettings, BusSettings | None]:
    """Flags, environment, file, default. Raises SettingRefused, NodeRefused, NameRefused,
    ParametersRefused."""
    toml = find_toml(given.setting_config, os.environ, Path.cwd())
    settings = load(flags_of(given), os.environ, toml)
    node = settle_node(settings)
    names.check_own_node_id(node.id)
    name = names.check("module", given.name)
    logs.setup(settings.log_format, settings.log_level, node=node.id, component=name)
    made = AxonSettings(
        node=node.name,
        node_id=node.id,
        name=name,
        folder=settings.state / SERVICE if name == SERVICE else settings.state / SERVICE / name,
        api_keys=settings.state / SERVICE / API_KEYS,
        parameters=parameters.read(_flags(given)),
    )
    if given.files and settings.kind("nats") is Origin.DEFAULT:
        return made, None
    bus = BusSettings(
        servers=settings.nats,
        mesh=settings.mesh,
        name=name,
        node_id=node.id,
        credentials=Credentials(nkey_file=settings.creds) if settings.creds else None,
        close_timeout_s=CLOSE_S,
    )
    return made, bus


def _flags(given: argparse.Namespace) -> Mapping[str, Given]:
    """The flags as parameters."""
    found: dict[str, Given] = {}
    for name in parameters.NAMES:
        value = getattr(given, name.replace("-", "_"), None)
        if value is not None:
            found[name] = value
    if given.files:
        found["routes"] = ",".join(str(Path(file).absolute()) for file in given.files)
    return found


async def by_hand(settings: AxonSettings, wanted: BusSettings | None) -> None:
    """Runs until TERM or INT."""
    stop = asyncio.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sign, stop.set)

    def ready(serves: Serves) -> None:
        told = {"node": settings.node, "nodeid": settings.node_id, "pid": os.getpid(), "name": settings.name}
        told |= {"url": serves.url, "hotkey": serves.hotkey, "routes": list(serves.routes)}
        print("ready", json.dumps(told), flush=True)

    if wanted is None:
        await run(settings, stop, ready)
    else:
        async with await Bus.connect(wanted) as bus:
            await run(settings, stop, ready, bus)


def component(path: Path) -> int:
    """Runs the component that the start file describes."""
    try:
        start = ServiceStart.read(path, SERVICE)
    except (StartRefused, OSError) as error:
        return _say(error, USAGE)
    logs.setup_component(os.environ, node=start.node_id, component=start.name)

    async def work(bus: Bus, stop: asyncio.Event, ready: Ready) -> None:
        settings = AxonSettings(
            node=start.node,
            node_id=start.node_id,
            name=start.name,
            folder=start.data,
            api_keys=start.data / API_KEYS,
            parameters=parameters.read(start.parameters()),  # what is wrong with it, the Builder is told
            drain_s=max(0.0, start.shutdown_s - _END_S),
        )
        await run(settings, stop, lambda _: ready(), bus)

    return loop.run(run_component(start, work))


def main(argv: list[str] | None = None) -> int:
    """The process: returns its exit code, having said on stderr what was wrong."""
    words = sys.argv[1:] if argv is None else argv
    if len(words) == 1 and words[0].endswith(".json"):
        return component(Path(words[0]))
    try:
        settings, bus = resolve(parser().parse_args(words))
    except (SettingRefused, NodeRefused, NameRefused, ParametersRefused) as error:
        return _say(error, USAGE)
    try:
        loop.run(by_hand(settings, bus))
    except BusUnreachable as error:
        return _say(error, UNREACHABLE)
    except (
        BadCredentials,
        HotkeyRefused,
        FileRefused,
        AttachRefused,
        DenyListRefused,
        NothingToServe,
    ) as error:
        return _say(error, USAGE)
    except (BusError, OSError) as error:
        return _say(error, FAILED)
    except Exception:
        log.exception("the gateway failed")
        return FAILED
    return DONE


def _say(error: BaseException, code: int) -> int:
    print(f"bakemesh axon: {error}", file=sys.stderr)
    return code


def entry() -> NoReturn:
    """Ends the process, also where a handler never returns."""
    code = main()
    if stuck := stuck_handlers():
        log.warning("%d handlers did not end; they are left", stuck)
        logging.shutdown()
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    entry()
