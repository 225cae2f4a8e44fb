"""The crank API: what an author's `async def crank(api)` is given. `blocking` is the same for a plain `def`.

    async def crank(api):
        limit = api.parameter("limit")
        async for message in api.messages():
            await api.post("Count", {"Count": message.entries["Count"] + 1})

Guarantees and the whole of it in words: docs/write-a-module.md.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from bakemesh import logs
from bakemesh.crank.errors import NoSupervisor, UnknownName
from bakemesh.crank.mailbox import Mailbox
from bakemesh.crank.messages import CrankMessage
from bakemesh.crank.posting import Poster
from bakemesh.crank.start import Start
from bakemesh.crank.watching import Watches

if TYPE_CHECKING:
    from bakemesh.supervisor import Supervisor


class Facts:
    """What both APIs know without waiting."""

    def __init__(self, start: Start, mailbox: Mailbox) -> None:
        self._start, self._mailbox = start, mailbox
        self._parameters = {each.name: each.value for each in start.spec.parameters}
        self.log: logging.LoggerAdapter[logging.Logger] = logs.bound(
            logs.get("component"), component=start.name, instance=start.instance
        )

    @property
    def name(self) -> str:
        """The component's name."""
        return self._start.name

    @property
    def node(self) -> str:
        """The name of the node that it runs on."""
        return self._start.node

    @property
    def node_id(self) -> str:
        """The id of that node."""
        return self._start.node_id

    def parameter(self, name: str) -> Any:
        """The value of a parameter of the spec: an int, a float or a str, as its type says.

        Raises UnknownName, which lists the right ones.
        """
        try:
            return self._parameters[name]
        except KeyError:
            raise UnknownName("parameter", name, self._parameters, self.name) from None

    def should_continue(self) -> bool:
        """False once the component is to stop; it has `shutdown-ms` from then on."""
        return not self._mailbox.stopped


class Api(Facts):
    """For an `async def` crank; to be used in its loop."""

    def __init__(self, start: Start, mailbox: Mailbox, poster: Poster, watches: Watches) -> None:
        super().__init__(start, mailbox)
        self._poster, self._watches = poster, watches
        self._supervisor: Supervisor | None = None

    async def wait_for_message(self, timeout: float | None = None) -> CrankMessage | None:
        """The next message; None after `timeout` seconds, and when the component is to stop.

        Asking says that the message before is worked off. Raises CrankOver where another task waits already.
        """
        return await self._mailbox.take(timeout)

    async def messages(self) -> AsyncIterator[CrankMessage]:
        """Every message, until the component is to stop."""
        while (message := await self._mailbox.take()) is not None:
            yield message

    async def post(self, name: str, entries: Mapping[str, Any] | None = None) -> None:
        """Posts by the post's name in the spec; a durable one is stored when this returns.

        Raises UnknownName, EntriesRefused; the bus's MessageTooLarge; of a durable post also AccessDenied.
        """
        await self._poster.post(name, {} if entries is None else entries)

    def watch(self, key: str, value: object) -> None:
        """Shows a live value to whoever looks on; often is fine, the latest wins. Raises WatchRefused."""
        self._watches.set(key, value)

    @property
    def supervisor(self) -> Supervisor:
        """The Supervisor SDK, connected under the component's name. Raises NoSupervisor in a `<module>`."""
        if self._supervisor is None:
            raise NoSupervisor(self.name)
        return self._supervisor
