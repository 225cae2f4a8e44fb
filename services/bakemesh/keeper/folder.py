"""A component's folder, as its shim holds it: the lock, who runs, how it ended, the socket.

Guarantees: one shim at a time has a folder (a lock that ends with the shim, whatever ends it); every file is
complete or not there, replaced by a rename; the room for the exit file is taken before the start, so that a
disk that fills later does not swallow an exit. The folder may have a path of any length, and may be moved:
everything is named from its descriptor. Leaves out: surviving a power loss; after that nothing runs anyway.

    shim.id    instance, boot, shim, shim_start, pid, start (0: not begun), began (wall), mark (0: none), held
    shim.exit  instance, boot, pid, start, status (of wait), at (wall), reason, killed, rss (KiB), cpu (µs)
    shim.sock  the socket of the shim that runs

The first two are lines `name value`.
"""

import os
from _socket import AF_UNIX, SOCK_CLOEXEC, SOCK_SEQPACKET, socket
from fcntl import LOCK_EX, LOCK_NB, flock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from bakemesh.keeper import tree
else:
    import tree

IDENTITY, EXIT, SOCKET = b"shim.id", b"shim.exit", b"shim.sock"
_NEW = b".new"
_ROOM = 2048  # bytes of an exit file: empty lines fill it up
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
BACKLOG = 8


class Folder:
    """Opened and locked; raises OSError, EWOULDBLOCK where another shim has it."""

    def __init__(self, path: bytes) -> None:
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        flock(self.fd, LOCK_EX | LOCK_NB)
        self.boot = tree.read("/proc/sys/kernel/random/boot_id").strip()
        self.forget(EXIT)  # of an instance before this one
        self._exit = os.open(EXIT + _NEW, _WRITE, 0o600, dir_fd=self.fd)
        if os.write(self._exit, b"\n" * _ROOM) != _ROOM:
            raise OSError(28, os.strerror(28))

    def forget(self, name: bytes) -> None:
        """Removes a file where it is there."""
        try:  # noqa: SIM105 - contextlib is an import more
            os.unlink(name, dir_fd=self.fd)
        except FileNotFoundError:
            pass

    def listen(self) -> socket:
        """The socket on which a Builder finds the shim."""
        self.forget(SOCKET)
        listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC)
        before = os.umask(0o177)
        try:
            listener.bind(b"/proc/self/fd/%d/%s" % (self.fd, SOCKET))  # a path has 107 bytes at most
        finally:
            os.umask(before)
        listener.listen(BACKLOG)
        listener.setblocking(False)
        return listener

    def write_identity(self, text: bytes) -> None:
        """Says who runs. Raises OSError on a full disk."""
        fd = os.open(IDENTITY + _NEW, _WRITE, 0o600, dir_fd=self.fd)
        try:
            if os.write(fd, text) != len(text):
                raise OSError(28, os.strerror(28))
        finally:
            os.close(fd)
        os.rename(IDENTITY + _NEW, IDENTITY, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def write_exit(self, text: bytes) -> bool:
        """Says how it ended; False where the disk does not take it. In a folder that was removed nobody will
        ever look: there it counts as said.
        """
        try:
            os.pwrite(self._exit, text.ljust(_ROOM, b"\n"), 0)
            os.rename(EXIT + _NEW, EXIT, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        except OSError:
            return os.fstat(self.fd).st_nlink == 0
        return True

    def withdraw(self) -> None:
        """Nothing was started: leaves no trace of it."""
        for name in (EXIT + _NEW, IDENTITY, SOCKET):
            self.forget(name)


def lines(**values: bytes | int) -> bytes:
    """The text of a file."""
    return b"".join(
        name.encode() + b" " + (value if isinstance(value, bytes) else b"%d" % value) + b"\n"
        for name, value in values.items()
    )
