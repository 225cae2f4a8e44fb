"""Takes a model into a node's cache, under an alias: a GGUF file, or the folder of one, on the node's disk.
It is looked at without any engine, copied (or linked) under its digest, and can be asked for when this ends.
An operator's right."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from bakemesh.cli.call import Call
from bakemesh.cli.exits import Exit, usage
from bakemesh.cli.inferring import SETTINGS, answered
from bakemesh.settings import add_flags

if TYPE_CHECKING:
    from bakemesh.inference import Inference, IngestProgress

EXAMPLE = """\
  bakemesh ingest all-MiniLM-L6-v2.gguf --alias minilm
  bakemesh ingest /models/small.gguf --alias small --node beta --set ctx_size=4096"""


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("file", metavar="FILE", help="a file or folder on the node's disk")
    parser.add_argument("--alias", required=True, metavar="A", help="the name that it is asked for by")
    parser.add_argument("--node", dest="target", metavar="N", help="the node, where there are several")
    parser.add_argument(
        "--weights",
        choices=("asis", "fastest"),
        default="asis",
        help="fastest: made into the type that the node's CPU runs fastest; default asis",
    )
    parser.add_argument(
        "--set",
        dest="config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a runtime key of the alias (ctx_size, threads, …); may be given several times",
    )
    add_flags(parser, SETTINGS)


def run(call: Call) -> int:
    """Takes it in."""
    config: dict[str, str] = {}
    for each in call.args.config:
        key, equals, value = each.partition("=")
        if not (key and equals):
            raise usage(f"--set {each}: expected KEY=VALUE")
        config[key] = value
    return answered(call, lambda inference: _ingest(call, inference, config))


async def _ingest(call: Call, inference: Inference, config: dict[str, str]) -> int:
    args, screen = call.args, call.screen
    shown = _Shown(call)
    try:
        done = await inference.ingest(
            Path(args.file).absolute(),
            args.alias,
            node=args.target,
            weights=args.weights,
            config=config or None,
            progress=shown,
        )
    finally:
        shown.close()
    if screen.machine:
        screen.event(
            "ingested", alias=done.alias, node=done.node_id, digest=done.digest, manifest=dict(done.manifest)
        )
    else:
        screen.say(f"{done.alias} on {done.node_id}: {done.digest}")
    return Exit.DONE


class _Shown:
    """Progress: an event each with --json, a bar on a terminal, else a line a stage."""

    def __init__(self, call: Call) -> None:
        from bakemesh.cli.screen import rich_on

        self._screen, self._stage = call.screen, ""
        self._bar = None
        if not call.screen.machine and rich_on(call.screen.err):
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(file=call.screen.err), transient=True)
            self._bar.start()
            self._task = self._bar.add_task(call.args.alias)

    def __call__(self, progress: IngestProgress) -> None:
        if self._screen.machine:
            self._screen.event("progress", stage=progress.stage, done=progress.done, total=progress.total)
        elif self._bar is not None:
            self._bar.update(
                self._task, description=progress.stage, completed=progress.done, total=progress.total or None
            )
        elif progress.stage != self._stage:
            self._screen.note(f"{progress.stage} …")
        self._stage = progress.stage

    def close(self) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.stop()
