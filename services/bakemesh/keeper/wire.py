"""Frames to and from the Builder: one SEQPACKET message each, fields joined by NUL bytes, descriptors with
it.

| from → to | fields |
|---|---|
| Builder → keeper | `start`, request, stdio letters (out of `ioe`), argc, cwd, argv…, NAME=value… |
| | `shim`, request, stdio letters (none), the fields of `Order`, then a start frame: a component |
| | `large`, request, stdio letters, `start` or `shim`: that frame is in a memfd, the last descriptor |
| | `drop`, request: kill its minder, which does not listen |
| keeper → Builder | `ready`, version; `gone`, request, killed, survivors… (a dead minder's step was killed) |
| Builder → minder | `kill`, grace in ms; `sweep` |
| minder → Builder | `started`, pid, start time, minder; or `refused`, stage, errno |
| | `exited`, wait status, max RSS in KiB, CPU in µs, cut (1: killed because the keeper died) |
| | `none`, killed, max RSS, CPU: nothing lives; `alive`, killed, survivors…: seconds after KILL |
| Builder → shim | `kill`, grace in ms; `status` |
| shim → Builder | `running`, pid, start time, shim, its start time, began in µs, instance, what is held |
| | `refused`, `alive`, as above; `over`, lines of the exit file: nothing lives, and the shim ends |

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


class Order:
    """A request to start a component, its fields in the order of the frame; what is not wanted is 0 or empty.

    `folder` is the component's own; `mark` makes its processes known (`kernel.mark`); `memory` is in bytes,
    `cpu` in thousandths of a core. `leave` is the cgroup to go to, out of that of steps; `cgroup` is to be
    made: its controllers hold the limits.
    """

    __slots__ = (
        "cgroup",
        "cpu",
        "folder",
        "instance",
        "leave",
        "log_bytes",
        "log_files",
        "mark",
        "memory",
        "start",
    )

    def __init__(self, fields: list[bytes], start: Start) -> None:
        self.cgroup, cpu, self.folder, self.instance, self.leave, *numbers = fields
        self.cpu = int(cpu)
        self.log_bytes, self.log_files, self.mark, self.memory = map(int, numbers)
        self.start = start


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


def command(connection: socket) -> tuple[bytes, bytes]:
    """A command of the Builder to a minder or shim and what goes with it; an empty one at the end."""
    frame, fds, _ = receive(connection)
    for fd in fds:
        os.close(fd)
    verb, _, rest = frame.partition(b"\0")
    return verb, rest


def send(connection: socket, *fields: bytes | int) -> bool:
    """Sends one frame; False at an end that is gone, which is no error: whoever must know watches for it."""
    frame = b"\0".join([field if isinstance(field, bytes) else b"%d" % field for field in fields])
    try:
        connection.send(frame)
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


def head(frame: bytes) -> tuple[bytes, int]:
    """Kind and request of a frame to the keeper, without reading the rest. Raises Broken."""
    fields = frame.split(b"\0", 2)
    try:
        return fields[0], int(fields[1])
    except (IndexError, ValueError):
        raise Broken(f"no start frame: {frame[:80]!r}") from None


def is_shim(frame: bytes) -> bool:
    """Whether a frame to the keeper asks for a shim, and not for a minder."""
    return frame.startswith(b"shim\0") or (frame.startswith(b"large\0") and frame.endswith(b"\0shim"))


def stdio_letters(frame: bytes) -> bytes:
    """Which of the process's stdio come with a frame as descriptors. Raises Broken."""
    fields = frame.split(b"\0", 3)
    if len(fields) < 4:
        raise Broken(f"no start frame: {frame[:80]!r}")
    return fields[2]


def whole(frame: bytes, memory: int) -> bytes:
    """The frame itself, or what it stands for where that came as a memfd."""
    return read_memory(memory) if frame.startswith(b"large\0") else frame


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


def parse_order(frame: bytes) -> Order:
    """The whole of a shim frame. Raises Broken."""
    count = len(Order.__slots__)
    fields = frame.split(b"\0", 2 + count)
    try:
        if fields[0] != b"shim" or len(fields) != 3 + count:
            raise ValueError
        return Order(fields[3:-1], parse_start(fields[-1]))
    except ValueError:
        raise Broken(f"no shim frame: {frame[:80]!r}") from None


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
