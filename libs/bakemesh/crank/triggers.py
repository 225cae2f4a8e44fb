"""Which triggers a message wakes, and what to subscribe for them. Pure.

One subscription for each distinct pattern among the triggers. A message that several patterns match comes
once for each; the first of them, in the order of the spec, speaks for all triggers, the others are silent.
So each trigger gives a message once, in the order of the spec. A type that a trigger reads from the stored
posts is not given by that trigger a second time.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from bakemesh.protocol.builder.spec.component import Trigger, matches
from bakemesh.protocol.subjects import READY


class Triggers:
    """The triggers of one component, in the order of its spec."""

    def __init__(self, triggers: Iterable[Trigger]) -> None:
        self.all = tuple(triggers)
        self.live = tuple(trigger for trigger in self.all if trigger.durable != (trigger.type,))
        self.patterns = tuple(dict.fromkeys(trigger.type for trigger in self.live))
        self.of = lru_cache(maxsize=1024)(self._of)

    def _of(self, pattern: str, type_: str) -> tuple[Trigger, ...]:
        """The triggers that a live message gives which came for `pattern`."""
        first = next((each for each in self.patterns if matches(each, type_)), None)
        if first != pattern:
            return ()
        return tuple(each for each in self.live if matches(each.type, type_) and type_ not in each.durable)

    def named(self, name: str) -> Trigger | None:
        """The trigger of that name."""
        return next((each for each in self.all if each.name == name), None)

    @property
    def ready(self) -> tuple[Trigger, ...]:
        """Those that Psyclone.Ready wakes."""
        return tuple(each for each in self.all if matches(each.type, READY))

    @property
    def stored(self) -> tuple[tuple[Trigger, str], ...]:
        """(trigger, type) of all that is read from the stored posts."""
        return tuple((each, type_) for each in self.all for type_ in each.durable)
