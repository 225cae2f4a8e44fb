"""`python -m bakemesh.synapse START.JSON` as a component, or with flags by hand. Logs go to stderr; by hand
the first line on stdout is `ready {…}`.

Exit codes: 0 stopped · 2 bad settings or parameters, a model that cannot be used · 5 bus unreachable · 69 the
Builder does not know this start · 70 it failed as a component · 1 anything else.
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
from typing import Final

from bakemesh import logs
from bakemesh.bus import Bus, loop
from bakemesh.bus.errors import BadCredentials, BusError, BusUnreachable
from bakemesh.bus.settings import BusSettings, Credentials
from bakemesh.crank.serviced import Ready, run_component
from bakemesh.crank.start import ServiceStart, StartRefused
from bakemesh.protocol import names
from bakemesh.protocol.errors import NameRefused
from bakemesh.settings import SettingRefused, add_flags, find_toml, flags_of, load, settle_node
from bakemesh.settings.node import NodeRefused
from bakemesh.synapse import parameters
from bakemesh.synapse.lanes.base import LaneFailed
from bakemesh.synapse.models.aliases import AliasesDamaged
from bakemesh.synapse.parameters import Given, ParametersRefused
from bakemesh.synapse.service import ModelMissing, run, work
from bakemesh.synapse.settings import FOLDER, SERVICE, SynapseSettings
from bakemesh.telemetry import TelemetryRefused
from bakemesh.workerpool import WorkerPoolError

log = logging.getLogger(__name__)
DONE, FAILED, USAGE, UNREACHABLE = 0, 1, 2, 5
CLOSE_S: Final = 1.0
END_S: Final = 1.5  # of the shutdown time, for the end of the workers
LEAST_GRACE_S: Final = 0.25


def of_component(start: ServiceStart) -> SynapseSettings:
    """The settings of a component. Raises ParametersRefused."""
    return SynapseSettings(
        bus=start.bus(),
        node=start.node,
        node_id=start.node_id,
        folder=start.data,
        parameters=parameters.read(start.parameters()),
        grace_s=max(LEAST_GRACE_S, start.shutdown_s - END_S),
    )


def of_flags(argv: list[str]) -> SynapseSettings:
    """Flags, environment, file, default. Raises SettingRefused, NodeRefused, NameRefused,
    ParametersRefused.
    """
    parser = argparse.ArgumentParser(prog="bakemesh synapse", description="Runs one synapse module.")
    add_flags(parser)
    add_arguments(parser)
    namespace = parser.parse_args(argv)
    toml = find_toml(namespace.setting_config, os.environ, Path.cwd())
    settings = load(flags_of(namespace), os.environ, toml)
    node = settle_node(settings)
    names.check_own_node_id(node.id)
    logs.setup(settings.log_format, settings.log_level, node=node.id)
    bus = BusSettings(
        servers=settings.nats,
        mesh=settings.mesh,
        name=SERVICE,
        node_id=node.id,
        identity=namespace.name,
        credentials=Credentials(nkey_file=settings.creds) if settings.creds else None,
        close_timeout_s=CLOSE_S,
    )
    return SynapseSettings(
        bus=bus,
        node=node.name,
        node_id=node.id,
        folder=settings.state / FOLDER,
        parameters=parameters.read(given(namespace)),
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is said of a module beside the settings of every verb."""
    parser.add_argument("--name", default=SERVICE, help="its name on the bus; default %(default)s")
    for name in parameters.NAMES:
        parser.add_argument(f"--{name}", metavar="VALUE")
    parser.add_argument("--model", action="append", default=[], metavar="ALIAS[.KEY]=VALUE")


def given(namespace: argparse.Namespace) -> Mapping[str, Given]:
    """The flags as parameters: `--model chat=x.gguf --model chat.ctx_size=4096`. Raises ParametersRefused."""
    found: dict[str, Given] = {}
    for name in parameters.NAMES:
        if (value := getattr(namespace, name.replace("-", "_"))) is not None:
            found[name] = value
    for each in namespace.model:
        key, equals, value = each.partition("=")
        if not equals or not value:
            raise ParametersRefused([f"--model {each!r}: ALIAS=PATH or ALIAS.KEY=VALUE is meant"])
        path = "." not in key
        found[f"{parameters.MODEL}{key}"] = os.fspath(Path(value).absolute()) if path else value
    return found


async def by_hand(settings: SynapseSettings) -> None:
    """Runs until TERM or INT."""
    stop = asyncio.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sign, stop.set)

    def ready() -> None:
        facts = {"node": settings.node, "nodeid": settings.node_id, "pid": os.getpid()}
        print(f"ready {json.dumps(facts)}", flush=True)

    await run(settings, stop, ready)


def component(path: Path) -> int:
    """Runs what the start file describes."""
    try:
        start = ServiceStart.read(path, SERVICE)
    except (StartRefused, OSError) as error:
        return _say(error, USAGE)
    logs.setup_component(os.environ, node=start.node_id, component=start.name)

    async def its_work(bus: Bus, stop: asyncio.Event, ready: Ready) -> None:
        await work(of_component(start), bus, stop, ready)  # what is wrong with it, the Builder is told

    return loop.run(run_component(start, its_work))


def main(argv: list[str] | None = None) -> int:
    """The process: returns its exit code, having said on stderr what was wrong."""
    given_argv = sys.argv[1:] if argv is None else argv
    if len(given_argv) == 1 and not given_argv[0].startswith("-"):
        return component(Path(given_argv[0]))
    try:
        settings = of_flags(given_argv)
    except (SettingRefused, NodeRefused, NameRefused, ParametersRefused, OSError) as error:
        return _say(error, USAGE)
    try:
        loop.run(by_hand(settings))
    except BusUnreachable as error:
        return _say(error, UNREACHABLE)
    except (BadCredentials, ModelMissing, AliasesDamaged, TelemetryRefused) as error:
        return _say(error, USAGE)
    except (BusError, WorkerPoolError, LaneFailed, OSError) as error:
        return _say(error, FAILED)
    except Exception:
        log.exception("the module failed")
        return FAILED
    return DONE


def _say(error: BaseException, code: int) -> int:
    print(f"bakemesh synapse: {error}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
