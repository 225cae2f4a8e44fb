"""Key files on disk.

Guarantees: a file that is not only its owner's is never read, none is overwritten, and a new one is there
whole, with rights 0600, or not at all.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path

from bakemesh.hotkeys.document import HotkeyRefused, read, written
from bakemesh.protocol.axon.signatures import Hotkey

LARGEST = 64 * 1024
_OPEN_RIGHTS = 0o177  # whatever is more than 0600


class NotPrivate(Exception):
    """Raised when a file is not read as a key file: others may look into it, or it cannot be one."""


def load_hotkey(path: Path | str) -> Hotkey:
    """The key pair of a file. Raises HotkeyRefused."""
    where = f"key file {path}"
    try:
        text = private_text(path, LARGEST, "a small JSON document")
    except OSError as error:
        raise HotkeyRefused(
            f"{where}: {error.strerror}; `bakemesh hotkey new FILE` makes a new key"
        ) from None
    except NotPrivate as error:
        raise HotkeyRefused(f"{where}: {error}") from None
    return read(text, where)


def create_hotkey(path: Path | str) -> Hotkey:
    """Makes a new key pair and its file. Raises HotkeyRefused: one is there already, or it cannot be made."""
    path = Path(path)
    seed = secrets.token_bytes(32)
    hotkey = Hotkey.from_seed(seed)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(mode=0o700, parents=True)
        try:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(handle, "w", encoding="utf-8") as file:
                file.write(written(hotkey, seed))
                file.flush()
                os.fsync(handle)
            os.link(temporary, path)  # a rename would overwrite
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()
    except OSError as error:
        if isinstance(error, FileExistsError) and os.path.lexists(path):
            told = "it is there already and is never overwritten; give another name"
        else:
            told = f"{error.strerror}; give a name in a folder that can be written"
        raise HotkeyRefused(f"key file {path}: {told}") from None
    return hotkey


def wallet_hotkey(wallet: str, hotkey: str, base: Path | str = "~/.bittensor/wallets") -> Path:
    """Where the SDK keeps this hotkey. Raises HotkeyRefused for a name that leads elsewhere."""
    for what, name in (("wallet", wallet), ("hotkey", hotkey)):
        if not name or name in (".", "..") or "/" in name or "\0" in name:
            raise HotkeyRefused(f"{what} {name!r}: it is no plain name, such as `default`")
    return Path(base).expanduser() / wallet / "hotkeys" / hotkey


def private_text(path: Path | str, largest: int, holds: str) -> str:
    """The text of a key file, which `holds` says what it should be. Raises OSError where it cannot be opened,
    NotPrivate.
    """
    # Looked at after it is open, so that what is checked is what is read; a pipe does not hold us up.
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if problem := refusal(os.fstat(handle), os.geteuid()):
            raise NotPrivate(problem)
        with open(handle, "rb", closefd=False) as file:
            raw = file.read(largest + 1)
    finally:
        os.close(handle)
    if len(raw) > largest:
        raise NotPrivate(f"it has more than {largest} bytes; it holds {holds}")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise NotPrivate(f"it is not UTF-8 text; it holds {holds}") from None


def refusal(found: os.stat_result, uid: int) -> str | None:
    """Why a file with this state is not read as a key file; None: it may be."""
    if not stat.S_ISREG(found.st_mode):
        return "it is no regular file"
    if found.st_uid != uid:
        return f"its owner is the user {found.st_uid}, this is the user {uid}; a key file must be one's own"
    if stat.S_IMODE(found.st_mode) & _OPEN_RIGHTS:
        return f"its rights are {stat.S_IMODE(found.st_mode):04o}, they must be 0600 or 0400; chmod 600 it"
    return None
