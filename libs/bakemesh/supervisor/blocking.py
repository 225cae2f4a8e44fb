"""The Supervisor SDK for scripts without asyncio: the same names, each call blocks.

    with Supervisor(nats="nats://…", name="nightly") as supervisor:
        bake = supervisor.bake(xml, node="beta")
        for chunk in bake.data(): ...
        outcome = bake.outcome()

One thread with an event loop of its own runs the asynchronous SDK. Guarantees: an exception of the SDK is
raised here as it is; Ctrl-C interrupts any call at once, ends what it had begun, and leaves the Supervisor
usable (to cancel a bake, say) until its `with` block ends; nothing is left running after that. Calls may
come from several threads. Left out: doing several things at once in one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bakemesh.bus import Credentials, Tls
from bakemesh.bus.threaded import LoopThread, Stream, made
from bakemesh.protocol.builder.codes import Verb
from bakemesh.protocol.builder.messages import BakeData, BakeOutcome, BakeStatus, Performance, Result
from bakemesh.protocol.builder.node import ComponentVerb, NodeVerb
from bakemesh.protocol.identity import Identity
from bakemesh.supervisor import bake as asynchronous
from bakemesh.supervisor import cohort as cohorts
from bakemesh.supervisor import session
from bakemesh.supervisor.errors import Closed
from bakemesh.supervisor.nodes import ANY_NODE, NodeInfo
from bakemesh.supervisor.notices import Notice
from bakemesh.supervisor.operate import ComponentInfo


class Bake:
    """A bake, blocking: see `bakemesh.supervisor.Bake` for what each call gives and raises."""

    def __init__(self, loop: LoopThread, bake: asynchronous.Bake) -> None:
        self._loop, self._bake = loop, bake

    def __repr__(self) -> str:
        return repr(self._bake)

    @property
    def identity(self) -> Identity:
        """The five entries."""
        return self._bake.identity

    @property
    def recipe_id(self) -> str:
        """The correlation key."""
        return self._bake.recipe_id

    @property
    def result(self) -> Result | None:
        """The Builder's answer to the recipe, once it came."""
        return self._bake.result

    @property
    def waiting(self) -> bool:
        """Whether the recipe still waits for its node."""
        return self._bake.waiting

    @property
    def latest(self) -> BakeStatus | None:
        """The Status with the highest serial heard so far."""
        return self._bake.latest

    @property
    def terminal(self) -> BakeOutcome | None:
        """The bake's last message, once it was heard."""
        return self._bake.terminal

    def status(self) -> Stream[BakeStatus]:
        """Every Status, once, in order, up to the terminal."""
        return Stream(self._loop, self._loop.call(made(self._bake.status)))

    def data(self, *, follow: bool = True) -> Stream[BakeData]:
        """Every chunk of output, in order, up to the end of the bake; without `follow` to what is stored."""
        return Stream(self._loop, self._loop.call(made(lambda: self._bake.data(follow=follow))))

    def outcome(self) -> BakeOutcome:
        """Waits for the end."""
        return self._loop.call(self._bake.outcome())

    def accepted(self, timeout: float | None = None) -> Result | None:
        """Waits until the Builder took the recipe."""
        return self._loop.call(self._bake.accepted(timeout))

    def control(self, verb: Verb) -> Result:
        """Sends any control verb."""
        return self._loop.call(self._bake.control(verb))

    def pause(self) -> Result:
        """Holds the bake at the next step boundary."""
        return self.control(Verb.PAUSE)

    def start(self) -> Result:
        """Resumes the bake."""
        return self.control(Verb.START)

    def cancel(self) -> Result:
        """Ends the bake at once."""
        return self.control(Verb.CANCEL)

    def skip_step(self) -> Result:
        """Skips the step at the cursor."""
        return self.control(Verb.SKIP_STEP)

    def retry_step(self) -> Result:
        """Runs the step at the cursor again."""
        return self.control(Verb.RETRY_STEP)

    def push(self, request: str, data: bytes | str) -> Result:
        """Answers a `<requestdata>` step."""
        return self._loop.call(self._bake.push(request, data))


class CohortBake:
    """One recipe on every member, blocking: see `bakemesh.supervisor.CohortBake`."""

    def __init__(self, loop: LoopThread, baking: cohorts.CohortBake) -> None:
        self._loop, self._baking = loop, baking
        self.bakes = {node_id: Bake(loop, bake) for node_id, bake in baking.bakes.items()}
        self.refused = baking.refused

    @property
    def summary(self) -> cohorts.BakeSummary:
        """As far as it is known now."""
        return self._baking.summary

    def ended(self) -> Stream[tuple[str, BakeOutcome]]:
        """Each outcome with its NodeID as it comes."""
        return Stream(self._loop, self._loop.call(made(self._baking.ended)))

    def outcomes(self) -> dict[str, BakeOutcome]:
        """The outcomes by NodeID, once every member that was heard of has ended."""
        return self._loop.call(self._baking.outcomes())

    def cancel(self) -> cohorts.CohortSummary:
        """Cancels every bake that has not ended."""
        return self._loop.call(self._baking.cancel())


class Cohort:
    """A cohort, blocking: see `bakemesh.supervisor.Cohort`."""

    def __init__(self, loop: LoopThread, cohort: cohorts.Cohort) -> None:
        self._loop, self._cohort = loop, cohort

    @property
    def name(self) -> str:
        """The cohort's name."""
        return self._cohort.name

    def members(self) -> tuple[str, ...]:
        """The NodeIDs of its members."""
        return self._loop.call(self._cohort.members())

    def set(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """Makes it these nodes."""
        return self._loop.call(self._cohort.set(nodes))

    def remove(self) -> None:
        """Forgets it."""
        self._loop.call(self._cohort.remove())

    def send(self, verb: str, entries: Mapping[str, Any] | None = None) -> cohorts.CohortSummary:
        """A message to the components of every member that ask for it."""
        return self._loop.call(self._cohort.send(verb, entries))

    def bake(
        self, xml: str, *, params: Mapping[str, Any] | None = None, expires_s: float | None = None
    ) -> CohortBake:
        """One recipe on every member."""
        baking = self._cohort.bake(xml, params=params, expires_s=expires_s)
        return CohortBake(self._loop, self._loop.call(baking))


class Supervisor:
    """A Supervisor, blocking: connects when it is made; a context manager that closes it."""

    def __init__(
        self,
        nats: str | Sequence[str] = "nats://127.0.0.1:4222",
        name: str = "supervisor",
        *,
        mesh: str = "psyclone",
        state: str | Path | None = None,
        credentials: Credentials | None = None,
        tls: Tls | None = None,
        connect_timeout_s: float = 5.0,
    ) -> None:
        """Raises BusUnreachable, AccessDenied, BadCredentials, NameRefused."""
        self._loop = LoopThread("bakemesh supervisor", lambda: Closed("this Supervisor is closed"))
        try:
            self._session = self._loop.call(
                _opened(
                    lambda: session.Supervisor.connect(
                        nats,
                        name,
                        mesh=mesh,
                        state=state,
                        credentials=credentials,
                        tls=tls,
                        connect_timeout_s=connect_timeout_s,
                    )
                )
            )
        except BaseException:
            self._loop.stop()
            raise

    @property
    def name(self) -> str:
        """The name that recipes carry."""
        return self._session.name

    def bake(
        self,
        xml: str,
        *,
        node: str | None = ANY_NODE,
        node_id: str | None = None,
        params: Mapping[str, Any] | None = None,
        expires_s: float | None = None,
    ) -> Bake:
        """Mints a RecipeID, sends the recipe and waits for the Builder's Result."""
        baking = self._session.bake(xml, node=node, node_id=node_id, params=params, expires_s=expires_s)
        return Bake(self._loop, self._loop.call(baking))

    def attach(self, recipe_id: str, supervisor: str | None = None, node: str | None = None) -> Bake:
        """A bake begun elsewhere or earlier."""
        return Bake(self._loop, self._loop.call(self._session.attach(recipe_id, supervisor, node)))

    def nodes(self) -> list[NodeInfo]:
        """Every node that ever reported."""
        return self._loop.call(self._session.nodes())

    @property
    def performance(self) -> dict[str, Performance]:
        """The last Performance, by NodeID, of each node where a bake of this Supervisor runs."""
        return self._session.performance

    def notices(self) -> Stream[Notice]:
        """What those nodes say from now on."""
        return Stream(self._loop, self._loop.call(made(self._session.notices)))

    def cohort(self, name: str) -> Cohort:
        """A cohort by its name."""
        return Cohort(self._loop, self._session.cohort(name))

    def cohorts(self) -> dict[str, tuple[str, ...]]:
        """Every cohort with the NodeIDs of its members."""
        return self._loop.call(self._session.cohorts())

    def components(self, node: str | None = None) -> list[ComponentInfo]:
        """Components as their nodes reported them last."""
        return self._loop.call(self._session.components(node))

    def control_component(self, verb: ComponentVerb, name: str, node: str | None = None) -> Result:
        """Restart, Stop, Start or Remove."""
        return self._loop.call(self._session.control_component(verb, name, node))

    def control_node(self, verb: NodeVerb, node: str, *, timeout_s: float | None = None) -> Result:
        """Drain, Resume or Down."""
        return self._loop.call(self._session.control_node(verb, node, timeout_s=timeout_s))

    def close(self) -> None:
        """Closes the connection and ends the thread. Idempotent."""
        try:
            self._loop.call(self._session.close())
        except Closed:
            return
        finally:
            self._loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def _opened(make: Callable[[], session.Supervisor]) -> session.Supervisor:
    return await make().open()
