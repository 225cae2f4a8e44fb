"""Where a worker's socket lies, within what the platform allows for a path.

`<runtime_dir>/synapse/workers/<worker_id>.sock`; where that is too long, `<runtime_dir>/wk-<16 hex>.sock`.
Windows: a named pipe. Source: protocol/worker-v1.md, "Transport".
"""

from __future__ import annotations

import hashlib

LIMITS = {"linux": 108, "darwin": 104}
_SMALLEST = 104


class PathTooLong(ValueError):
    """Raised when no path below the runtime folder is short enough: start-up ends with it."""

    def __init__(self, path: str, limit: int) -> None:
        super().__init__(
            f"socket path {path!r} has {len(path.encode())} bytes; this platform allows {limit - 1}: "
            "choose a shorter runtime folder"
        )


def socket_path(runtime_dir: str, worker_id: str, platform: str) -> str:
    """The path of a worker's socket. `platform` as `sys.platform`. Raises PathTooLong."""
    digest = hashlib.sha256(worker_id.encode()).hexdigest()[:16]
    if platform == "win32":
        return rf"\\.\pipe\bakemesh-{hashlib.sha256(f'{runtime_dir}/{worker_id}'.encode()).hexdigest()[:32]}"
    limit = LIMITS.get(platform, _SMALLEST)
    root = runtime_dir.rstrip("/")
    for path in (f"{root}/synapse/workers/{worker_id}.sock", f"{root}/wk-{digest}.sock"):
        if len(path.encode()) < limit:  # its end is a NUL
            return path
    raise PathTooLong(path, limit)
