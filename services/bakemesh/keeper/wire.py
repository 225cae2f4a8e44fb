"""Frames to and from the Builder: one SEQPACKET message each, fields joined by NUL bytes, descriptors with
it.

| from → to | fields |
|---|---|
| Builder → keeper | `start`, request, stdio letters (out of `ioe`), argc, cwd, argv…, NAME=value… |
| | `large`, request, stdio letters: the start frame is in the memfd at the end of the descriptors |
| | `drop`, request: kill its minder, which does not listen |
| keeper → Builder | `ready`, version; `gone`, request, killed, survivors… (a dead minder's step was killed) |
| Builder → minder | `kill`, grace in ms; `sweep` |
| minder → Builder | `started`, pid, start time, minder; or `refused`, stage, errno |
| | `exited`, wait status, max RSS in KiB, CPU in µs, cut (1: killed because the keeper died) |
| | `none`, killed, max RSS, CPU: nothing lives; `alive`, killed, survivors…: seconds after KILL |

Descriptors of a start: the minder's own connection, then stdin, stdout, stderr as the letters say. A survivor
is four fields: pid, name, state, wchan. An empty message is the end of the connection. No field can hold a
NUL: the system allows none in arguments, variables and paths.
"""

import os
from _socket import CMSG_SPACE, MSG_CMSG_CLOEXEC, MSG_CTRUNC, SCM_RIGHTS, SOL_SOCKET, socket
from _struct import unpack

VERSION = 1
LARGEST = 80 * 1024
STDIO = b"ioe"
MOST_FDS = 5  # connection, three of stdio, memfd


class Broken(ValueError):
    """Raised when a frame is not one of the known ones."""


class Start:
    """A request to start a process; everything is bytes, as the system takes it."""

    __slots__ = ("argv", "cwd", "env", "ident", "stdio")

    def __init__(
        self, ident: int, stdio: bytes, argv: list[bytes], env: dict[bytes, bytes], cwd: bytes
    ) -> None:
        self.ident = ident
        self.stdio = stdio
        self.argv = argv
        self.env = env
        self.cwd = cwd


def receive(connection: socket) -> tuple[bytes, list[int], bool]:
    """One frame, its descriptors, and whether some of them were lost. Empty at the end; may block."""
    try:
        data, ancillary, flags, _ = connection.recvmsg(LARGEST, CMSG_SPACE(MOST_FDS * 4), MSG_CMSG_CLOEXEC)
    except ConnectionResetError:  # the other end died with something unread
        return b"", [], False
    fds: list[int] = []
    for level, kind, payload in ancillary:
        if level == SOL_SOCKET and kind == SCM_RIGHTS:
            fds += unpack(f"{len(payload) // 4}i", payload[: len(payload) // 4 * 4])
    return data, fds, bool(flags & MSG_CTRUNC)


def send(connection: socket, *fields: bytes | int) -> None:
    """Sends one frame. An end that is gone is no error: whoever must know watches for it."""
    frame = b"\0".join([field if isinstance(field, bytes) else b"%d" % field for field in fields])
    try:  # noqa: SIM105 - contextlib is an import more, and this runs in every minder
        connection.send(frame)
    except (BrokenPipeError, ConnectionResetError):
        pass


def head(frame: bytes) -> tuple[bytes, int]:
    """Kind and request of a frame to the keeper, without reading the rest. Raises Broken."""
    fields = frame.split(b"\0", 2)
    try:
        return fields[0], int(fields[1])
    except (IndexError, ValueError):
        raise Broken(f"no start frame: {frame[:80]!r}") from None


def split_fds(stdio: bytes, fds: list[int]) -> tuple[list[int], int]:
    """stdin, stdout, stderr (-1: not given) and memfd (-1: none) of a start. Raises Broken."""
    rest = fds[len(stdio) :]
    if len(fds) < len(stdio) or len(rest) > 1 or any(letter not in STDIO for letter in stdio):
        raise Broken(f"stdio {stdio!r} with {len(fds)} descriptors")
    given = dict(zip(stdio, fds, strict=False))
    return [given.get(letter, -1) for letter in STDIO], rest[0] if rest else -1


def parse_start(frame: bytes) -> Start:
    """The whole of a start frame. Raises Broken."""
    fields = frame.split(b"\0")
    try:
        kind, ident, stdio, argc, cwd = fields[:5]
        count = int(argc)
        argv, pairs = fields[5 : 5 + count], fields[5 + count :]
        if kind != b"start" or count < 1 or len(argv) != count:
            raise ValueError
        env = {}
        for pair in pairs:
            name, equals, value = pair.partition(b"=")
            if not equals:
                raise ValueError
            env[name] = value
        return Start(int(ident), stdio, argv, env, cwd)
    except ValueError:
        raise Broken(f"no start frame: {frame[:80]!r}") from None


def read_memory(fd: int) -> bytes:
    """A frame that came as a memfd, whole."""
    size = os.fstat(fd).st_size
    parts = []
    at = 0
    while at < size:
        part = os.pread(fd, size - at, at)
        if not part:
            break
        parts.append(part)
        at += len(part)
    return b"".join(parts)
