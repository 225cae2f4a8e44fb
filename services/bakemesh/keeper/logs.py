"""A component's output: a file that it appends to itself, turned over by its shim.

No pipe: one that lost its reader kills who writes to it. Guarantees: on file systems that can take the
front off a file (ext4, xfs, f2fs) nothing is ever lost: the front is copied to `out.log.1`, then taken off.
Elsewhere the file is copied to its end and emptied; what is written between the last read and the emptying
is lost: microseconds of it, or as long as a busy machine gives the shim no turn between the two. Joined,
oldest first, the files are the output in its order, and only a shim killed between copy and cut leaves a
piece twice; a line may begin in one and end in the next. A quiet file costs nothing: the kernel tells of its
first write (by dnotify, for inotify's instances are few). One that grows is looked at every 20 to 500 ms,
more often the faster it does, and gets larger than its limit by what comes in between.
`RESERVE` bytes are set aside beyond the end, so that a full disk reaches the component only after that; until
then the shim makes room by giving up the oldest output.
"""

import os
from _signal import SIGIO, signal  # type: ignore[import-not-found]
from errno import EDQUOT, ENOSPC
from fcntl import DN_MODIFY, F_NOTIFY, fcntl

TYPE_CHECKING = False
if TYPE_CHECKING:
    from bakemesh.keeper import kernel
else:
    import kernel

NAME = b"out.log"
_COPY = NAME + b".new"
RESERVE = 256 * 1024
SHORTEST_S, LONGEST_S = 0.02, 0.5  # between looks at a file that grows
QUIET_S = 5.0  # at one that does not, should the kernel's word not come
MOST_CHASES = 50  # reads of what was written during a copy: a fast writer must not hold the shim for ever


class Log:
    """`out.log` in a folder, with `files` older ones kept, each about `limit` bytes. Raises OSError."""

    def __init__(self, folder: int, limit: int, files: int) -> None:
        self.folder = folder
        self.limit = max(1, limit)
        self.files = files
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self.fd = os.open(NAME, flags, 0o600, dir_fd=folder)
        self.block = os.fstatvfs(self.fd).f_bsize
        self.cuts_front = True
        self.size = os.fstat(self.fd).st_size
        self.reserves = True
        self.reserved = 0  # the end of what is set aside
        self.looked = 0.0
        self.due = 0.0
        self.pause = SHORTEST_S
        self.told = True  # until the kernel refuses
        signal(SIGIO, self.touched)
        self.reserve()

    def touched(self, *_: object) -> None:
        """The kernel's word that something in the folder was written."""
        self.due = 0.0
        self.pause = SHORTEST_S

    def work(self, now: float) -> float:
        """Turns over and makes room where that is due; returns when to look again."""
        if now < self.due:
            return self.due
        size = os.fstat(self.fd).st_size
        if size == self.size:
            self.looked = now
            self.due = now + (QUIET_S if self.told else LONGEST_S)
            if self.told:
                self.ask()
                size = os.fstat(self.fd).st_size  # what was written before that is not told
        if size != self.size:
            self.grew(size, now)
        return self.due

    def grew(self, size: int, now: float) -> None:
        """Turns over where it is time; the next look comes before what is set aside can be used up."""
        rate = abs(size - self.size) / max(now - self.looked, SHORTEST_S)
        if size > self.limit:
            self.turn_over(size)
        self.size = os.fstat(self.fd).st_size
        self.reserve()
        room = max(0, min(self.limit - self.size, RESERVE))
        self.pause = max(SHORTEST_S, min(LONGEST_S, self.pause * 2, room / rate / 2))
        self.looked = now
        self.due = now + self.pause

    def ask(self) -> None:
        """Asks for a signal at the next write, once."""
        try:
            fcntl(self.folder, F_NOTIFY, DN_MODIFY)
        except OSError:
            self.told = False  # a kernel without it

    def finish(self) -> None:
        """Nobody writes any more: a last look, and what was set aside is given back."""
        size = os.fstat(self.fd).st_size
        if size > self.limit:
            self.turn_over(size)
        os.ftruncate(self.fd, os.fstat(self.fd).st_size)

    def turn_over(self, size: int) -> None:
        """Moves the file's content to an older one, piece by piece where the file system allows it."""
        while self.cuts_front and size > self.limit:
            length = max(1, self.limit // self.block) * self.block
            if size <= length:
                return
            try:
                if not self.files or self.copied(length, chase=False):
                    kernel.cut_front(self.fd, length)
                    self.reserved -= length
                    self.shift()
                else:
                    break
            except OSError:
                self.cuts_front = False
            size = os.fstat(self.fd).st_size
        if size > self.limit:
            if self.files and self.copied(size, chase=True):
                self.shift()
            else:  # none is wanted, or there is no room, though every older file was given up
                os.ftruncate(self.fd, 0)
            self.reserved = 0

    def copied(self, length: int, chase: bool) -> bool:
        """Copies the front to a new file; `chase`: on to the end, and empties the log.

        Gives up the oldest files where there is no room, and says False where that is not enough.
        """
        while True:
            try:
                self.copy(length, chase)
            except OSError as wrong:
                if wrong.errno not in (ENOSPC, EDQUOT):
                    raise
                self.forget(_COPY)
                if not self.drop_oldest():
                    return False
            else:
                return True

    def copy(self, length: int, chase: bool) -> None:
        """One try of it."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        fd = os.open(_COPY, flags, 0o600, dir_fd=self.folder)
        try:
            at = 0
            chases = MOST_CHASES if chase else 0
            while True:
                while at < length:
                    sent = os.sendfile(fd, self.fd, at, length - at)
                    if not sent:
                        break
                    at += sent
                length = os.fstat(self.fd).st_size
                if not chases or at >= length:
                    break
                chases -= 1
            if chase:  # at once: what comes in between is lost
                os.ftruncate(self.fd, 0)
        finally:
            os.close(fd)

    def shift(self) -> None:
        """The copy becomes the first of the older ones, each of them one older, the last goes."""
        if not self.files:
            return
        for number in range(self.files, 0, -1):
            older = self.older(number)
            newer = self.older(number - 1) if number > 1 else _COPY
            try:  # noqa: SIM105 - contextlib is an import more
                os.rename(newer, older, src_dir_fd=self.folder, dst_dir_fd=self.folder)
            except FileNotFoundError:
                pass

    def reserve(self) -> None:
        """Sets room aside; where there is none, older output makes way, at last the newest too."""
        size = os.fstat(self.fd).st_size
        while self.reserves and size + RESERVE // 2 > self.reserved:
            try:
                kernel.reserve(self.fd, size, RESERVE)
            except OSError as wrong:
                if wrong.errno not in (ENOSPC, EDQUOT):
                    self.reserves = False  # not to be had on this file system: it is a net
                    return
                if self.drop_oldest():
                    continue
                self.reserved = 0
                if size < RESERVE:
                    return  # what fills the disk is not this
                os.ftruncate(self.fd, 0)
                size = 0
            else:
                self.reserved = size + RESERVE

    def drop_oldest(self) -> bool:
        """Removes the oldest of the older files; False where there is none."""
        return any(self.forget(self.older(number)) for number in range(self.files, 0, -1))

    def older(self, number: int) -> bytes:
        """The name of an older file."""
        return NAME + b".%d" % number

    def forget(self, name: bytes) -> bool:
        """Removes a file; whether it was there."""
        try:
            os.unlink(name, dir_fd=self.folder)
        except FileNotFoundError:
            return False
        return True
