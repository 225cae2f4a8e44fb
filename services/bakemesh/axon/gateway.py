"""What a gateway holds for as long as it runs: its hotkey, its limits, what it has seen.

    state = GatewayState(settings, hotkey)
    state.open()             reads what was seen before; may raise
    app.build(axon, state)
    state.close()

`missing`: by name, who says why the gateway is not ready; /readyz asks them, other parts add theirs.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from bakemesh.axon.denied import DenyList
from bakemesh.axon.limiter import Clients, Gate
from bakemesh.axon.metrics import Metrics
from bakemesh.axon.replay import Replay
from bakemesh.axon.settings import GatewaySettings
from bakemesh.protocol.axon.signatures import Hotkey

Missing = Callable[[], str | None]
HANDLERS = "axon-handler"  # what the threads of plain functions are called
_JOIN_S = 0.5


class GatewayState:
    """`now_ns`: the clock of nonces. `uuid`: of this run, as the real axon has one in its answers."""

    def __init__(
        self, settings: GatewaySettings, hotkey: Hotkey, *, now_ns: Callable[[], int] = time.time_ns
    ) -> None:
        limits = settings.limits
        self.settings, self.hotkey, self.now_ns = settings, hotkey, now_ns
        self.uuid = str(uuid.uuid1())
        self.denied = DenyList.read(settings.deny)
        self.gate = Gate(limits.in_flight)
        self.clients = Clients(limits.hotkey_rate, limits.hotkey_requests, limits.hotkeys)
        self.replay = Replay(
            settings.window, limits.nonces, limits.nonces_of_one(settings.window), settings.folder
        )
        self.executor = ThreadPoolExecutor(limits.threads, thread_name_prefix=HANDLERS)
        self.metrics = Metrics()
        self.metrics.watch("in_flight", "Requests that run.", lambda: self.gate.running)
        self.metrics.watch("hotkeys", "Hotkeys that are remembered.", lambda: len(self.clients))
        self.metrics.watch("nonces", "Nonces that are remembered.", lambda: len(self.replay))
        self.draining = False
        self.missing: dict[str, Missing] = {"replay": self._replay_fails, "draining": self._drains}

    def open(self) -> None:
        """Reads what was seen before. Raises FolderInUse, OSError."""
        self.replay.open(self.now_ns())

    def close(self) -> None:
        """Idempotent. Does not wait for threads."""
        self.replay.close()
        self.executor.shutdown(wait=False, cancel_futures=True)

    def unready(self) -> dict[str, str]:
        """What is missing, by name."""
        return {name: reason for name, ask in self.missing.items() if (reason := ask())}

    def _replay_fails(self) -> str | None:
        return "what was seen cannot be written down" if self.replay.failing else None

    def _drains(self) -> str | None:
        return "it is being stopped" if self.draining else None


def stuck_handlers() -> int:
    """How many plain functions still run though every gateway of this process is closed: the interpreter
    would wait for them for ever.
    """
    ours = [each for each in threading.enumerate() if each.name.startswith(HANDLERS)]
    until = time.monotonic() + _JOIN_S
    for thread in ours:
        thread.join(max(0.0, until - time.monotonic()))
    return sum(thread.is_alive() for thread in ours)
