"""The numbers of scheduling; every wait has one."""

from __future__ import annotations

from dataclasses import dataclass

from bakemesh.protocol.inference.requests import MAX_ITEMS


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`bytes_in_flight`: of all requests that have no answer yet. `items`, `tokens`: the most of one request.
    `max_queue_s`: how long a request may wait before it begins; `max_load_s`: the same while its model is on
    its way into memory. `load_s`: for a LOAD itself. `memory_bytes`: of all models on lanes of this process,
    each copy counted; None: as much as there is. Seconds.
    """

    bytes_in_flight: int = 64 << 20
    items: int = MAX_ITEMS
    tokens: int = 4 << 20
    max_queue_s: float = 5.0
    max_load_s: float = 120.0
    load_s: float = 900.0
    quantum_tokens: int = 512
    quantum_s: float = 0.08  # what an interactive request may have to wait for: fewer tokens on a slow lane
    quantum_items: int = 256  # the worker protocol's limit
    least_tokens: int = 96  # a batch below this is not divided among idle lanes: engines are slower there
    interactive_turns: int = 3  # to one of bulk
    bulk_waits_s: float = 0.25
    memory_bytes: int | None = None
    lane_pause_s: float = 0.05  # before a lane that refused is asked again; doubled each time, up to
    lane_pause_most_s: float = 1.0
    shun_s: float = 60.0  # a lane that could not load a model that others have

    def __post_init__(self) -> None:
        """Raises ValueError for settings that cannot be."""
        for name in ("bytes_in_flight", "items", "tokens", "quantum_tokens", "quantum_items"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be 1 or more")
        if self.memory_bytes is not None and self.memory_bytes < 1:
            raise ValueError(f"memory_bytes is {self.memory_bytes}; it must be 1 or more, or None")
