"""Writing a bake's Data: bytes as they came, stdout's to stdout and stderr's to stderr.

A reader of ours that is slow holds back our reading, never the connection: writes run beside the loop. One
that goes away (`| head`) ends the writing, not the bake.
"""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING

from bakemesh.cli.progress import Quiet
from bakemesh.cli.screen import Screen

if TYPE_CHECKING:
    from bakemesh.protocol.builder.messages import BakeData


class Writer:
    """Writes chunks. `only`: the one stream that is wanted, None for both."""

    def __init__(self, screen: Screen, progress: Quiet, only: str | None = None) -> None:
        self._screen, self._progress, self._only = screen, progress, only
        self._gone = False

    async def write(self, chunk: BakeData) -> None:
        """One chunk."""
        if self._only is not None and chunk.stream != self._only:
            return
        if self._screen.machine:
            self._screen.event(
                "data",
                seq=chunk.seq,
                stepindex=chunk.stepindex,
                attempt=chunk.attempt,
                stream=chunk.stream,
                path=chunk.path,
                data=base64.b64encode(chunk.data).decode(),
                finalchunk=bool(chunk.finalchunk),
                partial=bool(chunk.partial),
                aborted=bool(chunk.aborted),
            )
            return
        if chunk.aborted:
            self._progress.say(f"step {chunk.stepindex}: {chunk.stream} was cut off when its Builder died")
        if not chunk.data or self._gone:
            return
        target = self._screen.err if chunk.stream == "stderr" else self._screen.out
        self._progress.before_output()
        try:
            await asyncio.to_thread(_write, target.buffer, chunk.data)
        except BrokenPipeError:
            self._gone = True
            self._progress.say("nobody reads the output any more; the bake goes on without it")
            return
        self._progress.after_output(chunk.data[-1:])


def _write(target: object, data: bytes) -> None:
    target.write(data)  # type: ignore[attr-defined]
    target.flush()  # type: ignore[attr-defined]
