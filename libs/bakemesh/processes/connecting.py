"""The way to a shim: by the socket in its component's folder, whatever the length of the path."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from pathlib import Path

from bakemesh.processes import frames
from bakemesh.processes.records import SOCKET

ANSWER_S = 5.0
AGAIN_S = 0.01


async def connect(folder: Path, shim: int) -> socket.socket | None:
    """A connection to the shim that has this pid; None where it does not listen there."""
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # The path of a socket has 107 bytes at most.
        return await _connect(f"/proc/self/fd/{opened}/{SOCKET}", shim)
    finally:
        os.close(opened)


async def _connect(path: str, shim: int) -> socket.socket | None:
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    try:
        async with asyncio.timeout(ANSWER_S):
            while True:
                try:
                    control.connect(path)
                    break
                except BlockingIOError:  # as many wait as may
                    await asyncio.sleep(AGAIN_S)
        credentials = control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        if struct.unpack("3i", credentials)[0] == shim:
            return control
    except (OSError, TimeoutError):
        pass
    except BaseException:
        control.close()
        raise
    control.close()
    return None


async def ask(control: socket.socket) -> frames.Running | frames.Over | None:
    """Who runs below the shim, or how it ended; None where it says nothing of that."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError, TimeoutError, frames.FrameBroken):
        async with asyncio.timeout(ANSWER_S):
            await loop.sock_sendall(control, frames.status())
            while data := await loop.sock_recv(control, 64 * 1024):
                frame = frames.parse(data)
                if isinstance(frame, frames.Running | frames.Over):
                    return frame
    return None
