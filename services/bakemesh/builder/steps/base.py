"""The small interface of every step kind: `run(context, stop) -> StepResult`.

A step never publishes, journals or reads a clock by itself; everything it may touch is in its context.
`stop` says why it should end; a step ends soon after and answers with what it left behind. Timeouts, retries
and `on-failure` are the session's business, not a step's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bakemesh.protocol.builder.codes import Code, StepOutcome, Verb
from bakemesh.protocol.builder.spec.model import Step
from bakemesh.protocol.identity import Identity

if TYPE_CHECKING:
    from bakemesh.builder.components.component import Component
    from bakemesh.builder.components.life import Event
    from bakemesh.builder.components.records import Maker
    from bakemesh.processes import Keeper
    from bakemesh.protocol.builder.spec.component import ComponentSpec


class StopReason(StrEnum):
    """Why a running step is to end."""

    CANCEL = "cancel"
    SKIP = "skip"
    RETRY = "retry"
    TIMEOUT = "timeout"
    SHUTDOWN = "shutdown"  # the Builder stops: the step dies, the journal decides at the next start


class Stop:
    """One request to stop, made at most once; the first reason stands."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.reason: StopReason | None = None

    def request(self, reason: StopReason) -> None:
        """Asks the step to end. A second call changes nothing."""
        if self.reason is None:
            self.reason = reason
            self._event.set()

    async def wait(self) -> StopReason:
        """Returns the reason once there is one."""
        await self._event.wait()
        assert self.reason is not None
        return self.reason


@dataclass(frozen=True, slots=True)
class StepResult:
    """How an attempt ended. `summary` is the Builder's own words, never a child's output.

    `code` is set where the bake's Failed must carry something else than `step_failed`. `lost`: the attempt
    says nothing about the step, for what minded its processes was killed; a retryable step is run again
    whatever its `retries`.
    """

    outcome: StepOutcome
    summary: str
    exitcode: int | None = None
    code: Code | None = None
    lost: bool = False


class Output(Protocol):
    """Where a step's payload goes. Waiting in `write` *is* the backpressure."""

    async def write(self, stream: str, data: bytes) -> None:
        """Takes bytes of `stream`, stdout or stderr; returns when they are journaled or held in bounds."""

    async def end(self, stream: str) -> None:
        """The last chunk of `stream`: sent at once, with finalchunk where the stream wrote anything."""

    async def passthrough(
        self, stream: str, data: bytes, *, path: str, finalchunk: bool, partial: bool, aborted: bool
    ) -> None:
        """A child recipe's chunk, passed as the child cut it."""


class Pushes(Protocol):
    """Data that the Supervisor pushed for this bake."""

    async def wait(self, request: str) -> bytes:
        """The whole push for `request`, all parts joined; waits until the last part is there."""


class Children(Protocol):
    """Child recipes of this step's attempt; journaled, so that a crash leaves none running unseen."""

    async def follow(self, context: StepContext, stop: Stop) -> StepResult:
        """Sends the step's inner recipe to its node, follows it to its end and passes its Data on."""

    async def control(self, verb: Verb) -> None:
        """Passes Pause or Start on to the child that is followed; returns at once."""


class ComponentHost(Protocol):
    """The node's components (`components.host`)."""

    async def create(
        self, spec: ComponentSpec, owner: str, maker: Maker | None = None, *, again: bool = False
    ) -> tuple[Component, bool]:
        """The component as it is wanted, and whether this started or changed it. Raises NotYours,
        CannotRun.
        """

    def find(self, name: str) -> Component | None:
        """The component of that name."""

    async def ask(self, name: str, event: Event) -> bool:
        """Tells a component something; False where there is none."""


@dataclass(slots=True)
class StepContext:
    """All that an attempt of a step may touch."""

    identity: Identity
    step: Step
    attempt: int
    folder: Path  # the bake's own folder; `cwd` and `into` start here
    expand: Callable[[str], str]  # references; raises ReferenceFailed (the step fails and says so)
    output: Output
    progress: Callable[
        [int | None, str | None], Awaitable[None]
    ]  # percent of this step, summary → interim Status
    ask: Callable[[str], Awaitable[None]]  # interim Status with request=<name>
    pushes: Pushes
    keep_entry: Callable[[str, bytes], Awaitable[None]]  # for later ${entry:…} and stdin-entry
    entry: Callable[[str], bytes]
    processes: Keeper
    environment: Mapping[str, str]  # the chosen list a child starts from, never the Builder's own
    kill_grace_s: float = 2.0
    children: Children | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic  # seconds
    components: ComponentHost | None = None
    maker: Maker | None = None  # this attempt, as the maker of a component
    again: bool = False  # the attempt before was cut off by a restart of the Builder


class StepRunner(Protocol):
    """A step kind."""

    async def run(self, context: StepContext, stop: Stop) -> StepResult:
        """Runs one attempt to its end. Raises nothing but programming errors: what goes wrong is a result."""
