"""The crank API for a plain `def`: the same names, each call blocks. The crank has a thread of its own.

Guarantees: an exception is raised here as it was there. After the time to stop is over, every call raises
CrankOver, so that a thread that waits comes to its end.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any, TypeVar

from bakemesh.crank.api import Api, Facts
from bakemesh.crank.errors import CrankOver, NoSupervisor
from bakemesh.crank.messages import CrankMessage

if TYPE_CHECKING:
    from bakemesh.supervisor.blocking import Supervisor

T = TypeVar("T")


class BlockingApi(Facts):
    """For a plain crank; to be used from any thread but the loop's."""

    def __init__(self, api: Api) -> None:
        super().__init__(api._start, api._mailbox)
        self._api = api
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._calls: set[Future[Any]] = set()
        self._over = False
        self._supervisor: Supervisor | None = None

    def wait_for_message(self, timeout: float | None = None) -> CrankMessage | None:
        """See `Api.wait_for_message`."""
        return self._call(lambda: self._api.wait_for_message(timeout))

    def messages(self) -> Iterator[CrankMessage]:
        """Every message, until the component is to stop."""
        while (message := self.wait_for_message()) is not None:
            yield message

    def post(self, name: str, entries: Mapping[str, Any] | None = None) -> None:
        """See `Api.post`."""
        self._call(lambda: self._api.post(name, entries))

    def watch(self, key: str, value: object) -> None:
        """See `Api.watch`."""
        self._call(lambda: self._watched(key, str(value)))

    @property
    def supervisor(self) -> Supervisor:
        """The blocking Supervisor SDK, connected at its first use. Raises NoSupervisor in a `<module>`, and
        the bus's errors.
        """
        start = self._start
        if not start.spec.supervisor:
            raise NoSupervisor(self.name)
        with self._lock:
            if self._supervisor is None:
                from bakemesh.supervisor.blocking import Supervisor

                self._supervisor = Supervisor(
                    nats=start.servers,
                    name=start.name,
                    mesh=start.mesh,
                    state=start.supervisor_state,
                    credentials=start.credentials(),
                    tls=start.tls,
                )
            return self._supervisor

    def abandon(self) -> None:
        """Ends every call, and those to come, with CrankOver. Called in the loop."""
        with self._lock:
            self._over = True
            calls = list(self._calls)
        for call in calls:
            call.cancel()

    def close(self) -> None:
        """Closes the Supervisor SDK, if it was used. Called in the crank's thread, at its end."""
        if self._supervisor is not None:
            self._supervisor.close()

    async def _watched(self, key: str, value: str) -> None:
        self._api.watch(key, value)

    def _call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        with self._lock:
            if self._over:
                raise CrankOver(f"component {self.name} has stopped")
            call: Future[T] = asyncio.run_coroutine_threadsafe(make(), self._loop)
            self._calls.add(call)
        try:
            return call.result()
        except CancelledError:
            raise CrankOver(f"component {self.name} has stopped") from None
        finally:
            call.cancel()  # does nothing where it has ended: else this thread was interrupted
            with self._lock:
                self._calls.discard(call)
