"""A node that is taken out of work: Drain, Resume and Down.

    serving ── Drain ──→ draining: recipes refused, bakes end ──→ components stopped, in reverse ──→ drained
       ↑                    └──────────────── Resume ────────────────────┴───────────────────────────┘
    any of them ── Down ──→ the same way, and then the Builder ends (NodeDown)

Once Down begins to stop components it cannot be undone: the node's start is ended, what was stopped belongs
to it, and in the same write the Down becomes the next start's. So a Builder that dies from here on is
followed by one that finishes it; only when all has stopped it is forgotten (`forget`).

The Result comes at once; how far it is, SystemStatus says. What was asked is journaled before it is answered
and holds over a restart of the Builder, until Resume or a new boot of the node. Child recipes of bakes that
run here are taken all the same, for those bakes could not end without them. Left out: how a component is
stopped (`components`), what a Builder does with them at TERM.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, replace

from bakemesh.builder.bake.session import Session
from bakemesh.builder.bake.state import Control, Refused
from bakemesh.builder.clock import Clock
from bakemesh.builder.components.boot import begin_boot
from bakemesh.builder.journal import Journal
from bakemesh.builder.journal.records import Db, get_meta, set_meta
from bakemesh.builder.kitchen import Kitchen
from bakemesh.builder.rates import Buckets
from bakemesh.builder.results import limited, result_of
from bakemesh.protocol.admit import Delivery, Refusal
from bakemesh.protocol.builder.codes import Code, Verb
from bakemesh.protocol.builder.messages import Result
from bakemesh.protocol.builder.node import NodeControl, NodeVerb
from bakemesh.protocol.rights import builder_name

log = logging.getLogger(__name__)
KEY = "drain"  # in the journal
LOOK_S = 5.0


class NodeDown(Exception):
    """Raised when the node was asked down and has nothing left that runs."""


@dataclass(frozen=True, slots=True)
class Drain:
    """That the node is taken out of work. `deadline`: µs since the epoch, from then on bakes are cancelled;
    None: they are waited for. `boot`: of the node, for a new one takes recipes again. `ended`: the start in
    which it was asked is over, and Resume comes too late.
    """

    boot: str
    issuedby: str
    down: bool
    deadline: int | None
    ended: bool = False

    def text(self) -> str:
        """As it is journaled."""
        return json.dumps(asdict(self))


def read(text: str | None, boot: str) -> Drain | None:
    """What the journal holds, where it is of this boot."""
    if not text:
        return None
    drain = Drain(**json.loads(text))
    return drain if drain.boot == boot else None


def asked(
    before: Drain | None, verb: NodeVerb, issuedby: str, timeout_ms: int | None, *, now: int, boot: str
) -> Drain | None:
    """What a request makes of it. A later Drain has its own time; a node that goes down is not kept by it."""
    if verb is NodeVerb.RESUME:
        return None
    deadline = None if timeout_ms is None else now + timeout_ms * 1000
    down = verb is NodeVerb.DOWN or (before is not None and before.down)
    return Drain(boot, issuedby, down, deadline, before is not None and before.ended)


async def forget(journal: Journal) -> None:
    """What was asked of this start of the node is over with it."""
    await journal.commit(lambda db: set_meta(db, KEY, ""))


def described(drain: Drain | None, before: Drain | None, bakes: int) -> str:
    """The Result's summary."""
    if drain is None:
        return "takes recipes" if before is not None else "takes recipes; it was not draining"
    word = "going down" if drain.down else "draining"
    left = f"{bakes} bake{'' if bakes == 1 else 's'} to end first" if bakes else "no bake runs"
    return f"{word}: {left}"


class NodeLife:
    """Answers NodeControl, and carries it out in `run`.

    `allowed`: whether a party may ask; `stop_components` (given whether the node goes down) returns when none
    runs, `resume_components` begins to start those again that it stopped.
    """

    def __init__(
        self,
        kitchen: Kitchen,
        boot: str,
        clock: Clock,
        *,
        allowed: Callable[[str], bool],
        buckets: Buckets,
        stop_components: Callable[[bool], Awaitable[None]],
        resume_components: Callable[[], Awaitable[None]],
    ) -> None:
        self.kitchen, self.boot, self.clock = kitchen, boot, clock
        self._allowed, self._buckets = allowed, buckets
        self._stop_components, self._resume_components = stop_components, resume_components
        self._news = asyncio.Event()
        self._turn = asyncio.Lock()  # one change of `drain` after the other
        self._stopped: Drain | None = None  # for which the components are stopped
        # Components may have been stopped for it: by an earlier Builder too, dead before it resumed them.
        self._left = True
        self._told: set[Session] = set()  # bakes that were cancelled by it
        self.drain = read(get_meta(kitchen.journal.db, KEY), boot)
        if self.drain is not None:
            log.info("the node was draining when its Builder stopped; it goes on draining")
            kitchen.draining = True
        self._news.set()

    # -- asked

    async def answer(self, delivery: Delivery) -> Result:
        """The Result of one request; an accepted one is journaled when this returns."""
        message, verb = delivery.received.message, delivery.subject.type.rpartition(".")[2]
        assert isinstance(message, NodeControl)
        try:
            known = self._check(delivery.subject.party, message, verb)
            before, drain = await self._ask(known, message)
        except Refused as refused:
            log.info("%s of %s refused: %s: %s", verb, delivery.subject.party, refused.code, refused.summary)
            return self._result(verb, refused.code, refused.summary, refused.retry_ms)
        self.kitchen.draining = drain is not None
        self._news.set()
        log.info("%s of %s: %s", verb, message.issuedby, described(drain, before, len(self.kitchen.sessions)))
        return self._result(verb, Code.OK, described(drain, before, len(self.kitchen.sessions)))

    async def _ask(self, verb: NodeVerb, message: NodeControl) -> tuple[Drain | None, Drain | None]:
        """What was, and what is from now on, journaled. Raises Refused."""
        async with self._turn:
            before = self.drain
            if verb is NodeVerb.RESUME and before is not None and before.ended:
                raise Refused(
                    Code.TERMINAL, "the node goes down: its components are being stopped; start it again"
                )
            now = self.clock.wall()
            drain = asked(before, verb, message.issuedby, message.timeoutms, now=now, boot=self.boot)
            await self._keep(drain)
            return before, drain

    def refused(self, refusal: Refusal) -> Result:
        """The Result of what does not decode."""
        verb = "" if refusal.subject is None else refusal.subject.type.rpartition(".")[2]
        return self._result(verb, Code.MALFORMED_MESSAGE, refusal.detail)

    def _check(self, party: str, message: NodeControl, verb: str) -> NodeVerb:
        try:
            known = NodeVerb(verb)
        except ValueError:
            raise Refused(
                Code.MALFORMED_VERB, f"{verb:.64} is no verb; verbs: {', '.join(NodeVerb)}"
            ) from None
        if party != message.issuedby:
            raise Refused(Code.UNAUTHORISED, f"sent by {party}, but issuedby says {message.issuedby:.32}")
        if not self._allowed(party):
            raise Refused(Code.UNAUTHORISED, f"{party:.32} is no operator of this node (--operator)")
        if wait := self._buckets.wait_s(party, self.clock.monotonic()):
            raise limited("requests", wait)
        return known

    def _result(self, verb: str, code: Code, summary: str, retry_ms: int | None = None) -> Result:
        house = self.kitchen.house
        return result_of(verb, code, summary, retry_ms, node=house.node, node_id=house.node_id)

    async def _keep(self, drain: Drain | None) -> None:
        def work(db: Db) -> None:
            set_meta(db, KEY, "" if drain is None else drain.text())

        await self.kitchen.journal.commit(work)
        self.drain = drain

    # -- done

    def changed(self) -> None:
        """A bake came or ended."""
        if self.drain is not None:
            self._news.set()

    async def run(self) -> None:
        """For ever; raises NodeDown at the end of a Down."""
        while True:
            await self._wait()
            drain = self.drain
            if drain is None:
                self._told.clear()
                self._stopped = None
                if self._left:
                    self._left = False
                    await self._resume_components()
                continue
            self._left = True
            if not self.kitchen.sessions:
                await self._drained(drain)
            elif self._left_s(drain) == 0:
                await self._cancel_all()

    async def _wait(self) -> None:
        """Until something changes, or the time of the bakes is over."""
        left = self._left_s(self.drain)
        # The wall clock may be set: so it looks now and then.
        seconds = min(left, LOOK_S) if left else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        self._news.clear()

    def _left_s(self, drain: Drain | None) -> float | None:
        """Of the time of the bakes; None: it has no end."""
        if drain is None or drain.deadline is None:
            return None
        return max(0.0, (drain.deadline - self.clock.wall()) / 1e6)

    async def _cancel_all(self) -> None:
        """Each once: those that are told already are ending."""
        late = [each for each in self.kitchen.sessions.values() if each not in self._told]
        self._told.update(late)
        if late:
            log.info("drain: the time is over; bakes cancelled: %d", len(late))
        await asyncio.gather(*(self._cancel(session) for session in late))

    async def _cancel(self, session: Session) -> None:
        issuer = builder_name(self.kitchen.node_id)
        number = max(session.ctrlseqs.get(issuer, 0) + 1, self.clock.wall() // 1000)
        with contextlib.suppress(Refused):  # it has ended meanwhile
            await session.apply(Control(Verb.CANCEL, str(Verb.CANCEL), number, issuer))

    async def _drained(self, drain: Drain) -> None:
        if drain.down and not await self._past_recall():
            return  # it was resumed meanwhile
        if self._stopped is None or (drain.down and not self._stopped.down):
            await self._stop_components(drain.down)
            self._stopped = drain
            self.kitchen.on_change()
            log.info("drained: no bake and no component runs")
        if drain.down:
            raise NodeDown

    async def _past_recall(self) -> bool:
        """Ends the node's start, and keeps the Down for the next one to finish; False where none is wanted
        any more."""
        async with self._turn:
            if self.drain is None or not self.drain.down:
                return False
            if not self.drain.ended:
                ended = replace(self.drain, boot=uuid.uuid4().hex, ended=True)

                def work(db: Db) -> None:
                    begin_boot(db, ended.boot)
                    set_meta(db, KEY, ended.text())

                await self.kitchen.journal.commit(work)
                self.boot, self.drain = ended.boot, ended
            return True
