"""Whether to take what arrived: the rules against forged replies, bus-free.

A server and every service publish to whatever reply subject they are given, with their own rights, so a
stranger can have bytes stored on, or delivered at, a subject that it may not publish itself. Therefore a
message is taken only where its own subject (not the subscription's) parses and its Type equals the envelope's
`type`, and nothing is ever sent to a reply that is no inbox. Guaranteed: what is refused with `answer` false
must not be answered; what is refused never starts, fails or steers a bake.

Left out on purpose: whether the sender may do what the message asks for (party against Supervisor or
issuedby). Source: protocol/builder-v1.md, "Which messages are taken".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from bakemesh.protocol import envelope, message, subjects
from bakemesh.protocol import startup as _startup  # noqa: F401  (the imports fill the registry)
from bakemesh.protocol.builder import messages as _messages  # noqa: F401
from bakemesh.protocol.builder import node as _node  # noqa: F401
from bakemesh.protocol.errors import MessageError, SubjectError
from bakemesh.protocol.inference import answers as _answers  # noqa: F401
from bakemesh.protocol.inference import lanes as _lanes  # noqa: F401
from bakemesh.protocol.message import Received
from bakemesh.protocol.subjects import COMPONENT_CONTROL, CONTROL, NODE_CONTROL, Subject

INBOX = "_INBOX."
CONTROL_BYTES = 1 << 16  # a control holds seven short entries: a larger one is not even read
REPLY_HEADER = "Bakemesh-Reply"
# JetStream puts these on what it hands out by itself: such a message is a copy, not somebody's publish.
REPLAY_HEADERS = ("Nats-Stream", "Nats-Subject")
_CONTROLS = (f"{CONTROL}.", f"{COMPONENT_CONTROL}.", f"{NODE_CONTROL}.")
_NO_SUBJECT = re.compile(r"[ *>\t\r\n]").search
_tuple = tuple.__new__


class Cause(StrEnum):
    """Why a message is refused: a name to count by."""

    SUBJECT = "subject"  # its subject is none of the mesh's
    REPLAYED = "replayed"  # a copy handed out by JetStream
    FOREIGN_REPLY = "foreign_reply"  # asks for an answer on a subject that is no inbox
    UNDECODABLE = "undecodable"  # no envelope, another version, a wrong or missing entry
    OTHER_TYPE = "other_type"  # the subject says another type than the envelope
    NO_REPLY = "no_reply"  # a control that nobody waits for


class Delivery(NamedTuple):
    """A message to take. `reply` is the inbox for its typed answer; `payload` its bytes as they came."""

    subject: Subject
    received: Received
    reply: str | None
    headers: Mapping[str, str]
    payload: bytes | memoryview


@dataclass(frozen=True, slots=True)
class Refusal:
    """A message not to take: `reason` to count by, `detail` in words, `sender` as far as the message says it.

    `reply` is there only where it is to be answered, with a Result of code `malformed_message`.
    """

    reason: Cause
    detail: str
    sender: str
    subject: Subject | None = None
    reply: str | None = None
    type: str | None = None
    entry: str | None = None
    id: bytes | None = None  # of its envelope, where that could be read

    @property
    def answer(self) -> bool:
        """Whether a typed answer goes out. Where not, nothing may be sent."""
        return self.reply is not None


def admit(
    subject: str,
    reply: str | None,
    headers: Mapping[str, str] | None,
    payload: bytes | memoryview,
) -> Delivery | Refusal:
    """Decodes a message and decides. Raises nothing, whatever came.

    `subject` is the message's own. `reply` is its NATS reply, None for one read from a stream: its reply is
    JetStream's, and the answer to a stored message goes to the header `Bakemesh-Reply`.
    """
    try:
        where = subjects.parse(subject)
    except SubjectError as error:
        return Refusal(Cause.SUBJECT, str(error), "unknown")
    wanted = None
    if headers:
        for name in REPLAY_HEADERS:
            if name in headers:
                return Refusal(Cause.REPLAYED, f"carries {name}: a copy out of a stream", where.party, where)
        wanted = headers.get(REPLY_HEADER)
    answer_to = reply or wanted or None
    if answer_to is not None:
        for what, to in (("reply", reply), (REPLY_HEADER, wanted)):
            if to and not _is_inbox(to):
                detail = f"{what} {to[:200]!r} is no subject below {INBOX!r}"
                return Refusal(Cause.FOREIGN_REPLY, detail, where.party, where)
    is_control = where.type.startswith(_CONTROLS)
    if is_control and len(payload) > CONTROL_BYTES:
        detail = f"{len(payload)} bytes; a control has at most {CONTROL_BYTES}"
        return Refusal(Cause.UNDECODABLE, detail, where.party, where, reply=answer_to, type=where.type)
    received = message.quickly(payload, where.type)
    if received is None:
        outcome = _the_long_way(where, answer_to, payload)
        if isinstance(outcome, Refusal):
            return outcome
        received = outcome
    if is_control and not reply:
        detail = "a control is a request; it has no reply"
        return Refusal(Cause.NO_REPLY, detail, received.sender[:200], where, type=where.type)
    # As Delivery(…) does, without the Python function that a NamedTuple puts before it.
    return _tuple(Delivery, (where, received, answer_to, headers or {}, payload))


def _the_long_way(where: Subject, answer_to: str | None, payload: bytes | memoryview) -> Received | Refusal:
    try:
        found = envelope.fields_of(payload)
    except MessageError as error:
        return _undecodable(error, where.party, where, answer_to)
    kind, sender = found[0], found[3][:200]
    if kind != where.type:
        detail = f"the subject says {where.type}, the envelope {kind[:200]}"
        return Refusal(Cause.OTHER_TYPE, detail, sender, where, type=kind[:200])
    try:
        return message.opened(found)
    except MessageError as error:
        return _undecodable(error, sender, where, answer_to, found[1])


def _is_inbox(to: str) -> bool:
    # A wildcard or a blank would be no subject to publish to; the rest is for the server to judge.
    return to.startswith(INBOX) and len(to) > len(INBOX) and _NO_SUBJECT(to) is None


def _undecodable(
    error: MessageError,
    sender: str,
    where: Subject,
    reply: str | None,
    id: bytes | None = None,  # noqa: A002
) -> Refusal:
    return Refusal(
        Cause.UNDECODABLE, str(error), sender, where, reply=reply, type=error.type, entry=error.entry, id=id
    )
