"""A bake as its Supervisor holds it: progress, output, controls, pushes, the end.

A handle is cheap and has no task of its own; any number of iterators may run on one. `waiting` is true
while nothing was heard: the node is down or busy, and the recipe waits for it in the inbox. Left out:
making and sending recipes (`recipe`, `sending`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING

from bakemesh.bus.errors import RequestTimeout
from bakemesh.protocol import subjects
from bakemesh.protocol.builder.codes import Code, Verb
from bakemesh.protocol.builder.messages import BakeOutcome, BakeStatus, Result
from bakemesh.protocol.identity import Identity
from bakemesh.supervisor import deliver, push
from bakemesh.supervisor.control import ask, control_message
from bakemesh.supervisor.data import DataReader
from bakemesh.supervisor.errors import RecipeRejected, ResultTimeout
from bakemesh.supervisor.status import StatusFeed, StatusReader

if TYPE_CHECKING:
    from bakemesh.bus.replies import InboxReply
    from bakemesh.supervisor.session import Supervisor

CONTROL_S = 5.0
PUSH_RESULT_S = 30.0
LOST_S = 1.0


class Bake:
    """One bake. Made by `Supervisor.bake`, `send` and `attach`."""

    def __init__(self, supervisor: Supervisor, identity: Identity, feed: StatusFeed) -> None:
        self._supervisor = supervisor
        self._feed = feed
        self.identity = identity
        self.result: Result | None = None

    def __repr__(self) -> str:
        state = "waiting" if self.waiting else self.latest.summary if self.latest else "accepted"
        return f"<Bake {self.recipe_id} on {self.identity.node_id}: {state}>"

    # -- what is known without waiting

    @property
    def recipe_id(self) -> str:
        """The correlation key, `<supervisor>-<recipe>-N`."""
        return self.identity.recipe_id

    @property
    def node(self) -> str:
        """The name of the node that bakes it."""
        return self.identity.node

    @property
    def node_id(self) -> str:
        """The id of the node that bakes it."""
        return self.identity.node_id

    @property
    def waiting(self) -> bool:
        """Whether nothing was heard of the Builder yet: the recipe waits in the inbox."""
        return self.result is None and self.latest is None

    @property
    def latest(self) -> BakeStatus | None:
        """The Status with the highest serial that was heard so far."""
        return self._feed.log.latest

    @property
    def terminal(self) -> BakeOutcome | None:
        """The bake's last message, once it was heard."""
        return self._feed.log.terminal

    # -- the reverse streams

    def status(self) -> StatusReader:
        """Every Status and outcome message from serial 1, once, in order, up to the terminal.

        Raises (while iterating) RecipeRejected where a waiting recipe was refused in the end, StatusPruned
        where the beginning is no longer stored, Closed when the Supervisor closes.
        """
        return self._supervisor.track(self._feed.reader())

    def data(self, *, follow: bool = True) -> DataReader:
        """Every Data message from seq 1 to the end of the bake; without `follow` to what is stored now.

        Raises (while iterating) IntegrityError, DataPruned, DataLate, and what `status` raises.
        """
        node = self.identity.node_id
        reader = DataReader(
            self._feed,
            lambda start, end: self._supervisor.streams.data(self.identity, start, end),
            lambda: self._supervisor.streams.data_is_late(node),
            follow=follow,
        )
        return self._supervisor.track(reader)

    async def outcome(self) -> BakeOutcome:
        """Waits for the end: BakeSuccess, BakeFailed or BakeCancelled. Raises RecipeRejected, Closed."""
        return await self._feed.outcome()

    async def accepted(self, timeout: float | None = None) -> Result | None:
        """Waits until the Builder took the recipe, however long its node is down; its Result.

        None where the Result was lost and the bake's own Status says that the node has it. Raises
        RecipeRejected; ResultTimeout after `timeout` seconds.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._feed.until(lambda: self.result is not None or self.latest is not None)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOST_S):  # Status may overtake it
                        await self._feed.until(lambda: self.result is not None)
        except TimeoutError:
            raise ResultTimeout(f"recipe {self.recipe_id}", self.node_id, timeout or 0.0) from None
        if self.result is not None and not self.result.accepted:
            raise RecipeRejected(self.result)
        return self.result

    def take_result(self, result: Result) -> None:
        """The Result of a recipe that had to wait; a refusal ends who iterates."""
        self.result = result
        if not result.accepted:
            self._feed.refuse(RecipeRejected(result))
        self._feed.news()

    async def catch_up(self) -> None:
        """Reads what the status stream holds now, so that `latest` and `terminal` are what is stored."""
        await self._feed.catch_up()
        if self.latest is not None:
            self.identity = self.latest.identity

    # -- steering

    async def pause(self) -> Result:
        """Holds the bake at the next step boundary."""
        return await self.control(Verb.PAUSE)

    async def start(self) -> Result:
        """Resumes a paused bake, or withdraws a pending pause."""
        return await self.control(Verb.START)

    async def cancel(self) -> Result:
        """Ends the bake at once, killing a running step's whole process tree."""
        return await self.control(Verb.CANCEL)

    async def skip_step(self) -> Result:
        """Skips the step at the cursor, killing it where it runs."""
        return await self.control(Verb.SKIP_STEP)

    async def retry_step(self) -> Result:
        """Runs the step at the cursor again; it must be `retryable="yes"`."""
        return await self.control(Verb.RETRY_STEP)

    async def control(self, verb: Verb, *, timeout: float = CONTROL_S) -> Result:
        """Sends a control. A refusal is a Result with `accepted` false, not an exception.

        Raises NodeUnreachable at once where no Builder listens on the node, ResultTimeout after `timeout`
        seconds.
        """
        answer = await self._ask(verb, timeout)
        if answer.code == Code.STALE_CTRLSEQ:
            # This machine's clock was set back, or another process of our name was quicker: the acks on
            # Status say how far this issuer has come.
            await self._feed.catch_up()
            answer = await self._ask(verb, timeout)
        return answer

    async def _ask(self, verb: Verb, timeout: float) -> Result:
        supervisor, identity = self._supervisor, self.identity
        sequence = supervisor.controls.next(identity.key, time.time_ns() // 1_000_000)
        message = control_message(verb, identity, sequence, supervisor.name)
        return await ask(
            supervisor.bus,
            supervisor.name,
            identity.node_id,
            identity.recipe_id,
            message,
            f"{verb} of {self.recipe_id}",
            timeout,
        )

    async def push(self, request: str, data: bytes | str, *, timeout: float = PUSH_RESULT_S) -> Result:
        """Answers the `<requestdata>` step named `request`; up to 64 MiB, sent in parts.

        Gives the last part's Result, or that of the first part that was refused. Raises MessageTooLarge
        before anything is sent, NotStored, and ResultTimeout: the push is stored then, and waits for the
        node.
        """
        supervisor, identity = self._supervisor, self.identity
        bus = supervisor.bus
        subject = subjects.build(
            bus.mesh, identity.node_id, supervisor.name, identity.recipe_id, subjects.BAKE_DATA_PUSH
        )
        with contextlib.ExitStack() as replies:
            pending: deque[tuple[int, InboxReply]] = deque()
            result: Result | None = None
            # Stored first, answered later: a node that is down finds the whole push when it is back. A
            # refusal of an early part that is here already saves the rest.
            for message in push.parts(identity, request, data, bus.max_payload):
                reply = replies.enter_context(bus.inbox_reply())
                await deliver.store(bus, subject, bus.seal(message), reply.subject)
                pending.append((message.part, reply))
                result = await deliver.result_if_there(pending[0][1])
                if result is not None:
                    pending.popleft()
                    if not result.accepted:
                        return result
            while pending:
                part, reply = pending.popleft()
                try:
                    result = await deliver.result(reply, timeout)
                except RequestTimeout as error:
                    what = f"part {part} of the push {request!r} to {self.recipe_id}"
                    raise ResultTimeout(what, identity.node_id, timeout) from error
                if not result.accepted:
                    break
        assert result is not None  # a push has at least one part, and each has its Result
        return result

    async def close(self) -> None:
        """Lets go of the bake; it goes on. Iterators on it end with Closed. Not needed before the
        Supervisor's end.
        """
        await self._supervisor.release(self)
