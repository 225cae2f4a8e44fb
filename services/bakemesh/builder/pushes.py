"""BakeData: pushes that answer a `<requestdata>`, judged and kept.

Codes, first that applies: malformed_message, unknown_recipe, unauthorised, terminal, unknown_request,
too_large.
"""

from __future__ import annotations

from bakemesh.builder.answers import known
from bakemesh.builder.bake.pushed import MAX_BYTES
from bakemesh.builder.bake.session import Session
from bakemesh.builder.kitchen import Kitchen
from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.builder.messages import BakeDataPush, Result, clip
from bakemesh.protocol.envelope import Envelope
from bakemesh.protocol.errors import MessageError
from bakemesh.protocol.subjects import Subject


class Pushes:
    """Takes pushes for the bakes of a kitchen."""

    def __init__(self, kitchen: Kitchen) -> None:
        self.kitchen = kitchen

    async def take(self, subject: Subject, envelope: Envelope) -> Result:
        """Keeps the push, or says why not. Returns when it is journaled."""
        try:
            push = BakeDataPush.from_entries(envelope.entries, type=envelope.type)
        except MessageError as error:
            return Result(
                **self.kitchen.identity_of(subject.party, subject.key),
                verb="BakeData",
                accepted=False,
                code=str(Code.MALFORMED_MESSAGE),
                summary=clip(str(error)),
            )
        code, summary, session = self._judge(subject, push)
        if session is not None:
            await session.push(push.request, push.part, push.lastpart, push.data)
        return Result(
            **known(push.identity),
            verb="BakeData",
            accepted=code is Code.OK,
            code=str(code),
            summary=clip(summary),
        )

    def _judge(self, subject: Subject, push: BakeDataPush) -> tuple[Code, str, Session | None]:
        """Code, summary, and the session that is to keep the push (None: nothing is to be kept)."""
        if push.part < 1:
            return Code.MALFORMED_MESSAGE, f"part is {push.part}; parts count from 1", None
        if push.recipe_id != subject.key:
            return (
                Code.MALFORMED_MESSAGE,
                f"RecipeID {push.recipe_id:.128} is not the subject's key {subject.key}",
                None,
            )
        found = self.kitchen.find(push.supervisor, push.recipe_id)
        if found is None:
            return (
                Code.UNKNOWN_RECIPE,
                f"no recipe {push.recipe_id} of {push.supervisor:.32} came to this node",
                None,
            )
        if subject.party != push.supervisor:
            return (
                Code.UNAUTHORISED,
                f"sent by {subject.party}, but Supervisor says {push.supervisor:.32}",
                None,
            )
        if not isinstance(found, Session) or found.state.over:
            return Code.TERMINAL, "the bake has ended", None
        pushed = found.pushed
        if push.request not in pushed.requests:
            names = ", ".join(sorted(pushed.requests)) or "none"
            return (
                Code.UNKNOWN_REQUEST,
                f"no step asks for {push.request!r:.80}; requests of this recipe: {names}",
                None,
            )
        kept = pushed.part(push.request, push.part)
        if kept is not None:
            if kept == push.data:
                return Code.OK, "kept before", None
            return (
                Code.MALFORMED_MESSAGE,
                f"part {push.part} of {push.request} came before with other bytes",
                None,
            )
        last = pushed.last_part(push.request)
        if last is not None and (push.part > last or push.lastpart):
            return Code.MALFORMED_MESSAGE, f"part {last} of {push.request} was its last", None
        if push.lastpart and pushed.highest_part(push.request) > push.part:
            return (
                Code.MALFORMED_MESSAGE,
                f"part {push.part} of {push.request} cannot be its last: later ones came",
                None,
            )
        if pushed.bytes + len(push.data) > MAX_BYTES:
            return Code.TOO_LARGE, f"pushes of a bake may hold {MAX_BYTES} bytes together", None
        return Code.OK, f"{len(push.data)} bytes kept", found
