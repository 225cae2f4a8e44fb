"""`main(start)`: one crank host's life in this process, from the start file's map to the exit code.

Nothing is done at import time and no thread is started before, so that a process which has imported this can
fork and call it. The script is loaded first, in the main thread; what it prints goes where the process's
output goes, at once, line by line.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bakemesh import logs
from bakemesh.crank.start import Start, StartRefused
from bakemesh.crankhost import host, script
from bakemesh.crankhost.failing import Failure, failure_of

USAGE: Final = 2


def main(given: Mapping[str, Any], folder: Path) -> int:
    """Runs the component that the map describes; `folder` is where its file was. Gives the exit code."""
    try:
        start = Start.of(given, folder)
    except StartRefused as error:
        print(f"bakemesh crankhost: {error}", file=sys.stderr)
        return USAGE
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    logs.setup_component(os.environ, node=start.node_id, component=start.name)
    loaded, file = _loaded(start)
    return asyncio.run(_run(start, loaded, file))


def _loaded(start: Start) -> tuple[host.Loaded, str]:
    file = start.crank.script
    try:
        path = script.place(start.crank, start.folder)
        file = str(path)
        return script.load(path, start.crank), file
    except script.ScriptRefused as error:
        return Failure(str(error), ""), file
    except BaseException as error:  # noqa: BLE001 - a script may raise anything; it is told, not obeyed
        return failure_of(error, file, f"script {start.crank.script!r} cannot be loaded: "), file


async def _run(start: Start, loaded: host.Loaded, file: str) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(sign, stop.set)
    return await host.run(start, loaded, file, stop)
