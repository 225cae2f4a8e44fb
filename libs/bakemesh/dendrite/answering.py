"""An answer made the synapse's new state, as the real dendrite does it. Pure.

Where we differ from the real one, for safety's sake:
- what the caller set, signed or must give is never overwritten by the answer, nor is anything of `dendrite`;
- of `axon` the address and hotkey stay those that were called;
- an HTTP status that is not 200 is no success whatever the headers say;
- a signature under an answer must be the axon's.

Source: protocol/axon-v1.md, section 9.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ValidationError

from bakemesh.dendrite.errors import CallFailed
from bakemesh.protocol.axon import keys, signing
from bakemesh.protocol.axon.errors import DeserializationFailed
from bakemesh.protocol.axon.profiles import Profile
from bakemesh.protocol.axon.reading import told
from bakemesh.protocol.axon.signatures import verified
from bakemesh.protocol.axon.synapse import ENVELOPE, Synapse, shape
from bakemesh.protocol.axon.terminal import TerminalInfo

OK = 200
UNREADABLE = 422
LONGEST_MESSAGE = 4096
_TOLD = ("status_code", "status_message", "process_time", "version", "nonce", "uuid", "signature")
_NUMBERS = ("status_code", "process_time", "port", "version", "nonce")


def fill(synapse: Synapse, profile: Profile, status: int, headers: Mapping[str, str], body: bytes) -> Any:
    """Writes the answer into the synapse. Returns the `Output` of its class, None where it has none of its
    own or there was no success. `headers` is looked up without regard to case. Raises CallFailed for what
    cannot be read.
    """
    if 300 <= status < 400:
        raise CallFailed(
            UNREADABLE, f"Failed to parse response: {status} sends on to another place; that is not followed"
        )
    if not is_json(headers.get("content-type", "")):
        kind = headers.get("content-type", "nothing said")[:80]
        raise CallFailed(UNREADABLE, f"Failed to parse response: {status} with {kind}, not JSON")
    try:
        if status == OK:
            told, output = _answer(synapse, profile, body)
        else:
            told, output = TerminalInfo(status_code=status, status_message=_message(body)), None
    except DeserializationFailed as error:
        raise CallFailed(UNREADABLE, f"Failed to parse response: {error.reason}") from None
    merge(synapse, profile, status, told, headers)
    return output


def merge(
    synapse: Synapse, profile: Profile, status: int, told: TerminalInfo, headers: Mapping[str, str]
) -> None:
    """Writes what body (`told`) and headers tell of the axon into the synapse. Raises CallFailed."""
    said = TerminalInfo.from_headers_with_prefix(headers, keys.AXON_PREFIX)
    for name in _NUMBERS:
        if getattr(said, name) is None and (text := headers.get(keys.AXON_PREFIX + name)) is not None:
            raise CallFailed(
                UNREADABLE, f"Failed to parse response: {keys.AXON_PREFIX}{name} is {text[:40]!r}, no number"
            )
    axon = synapse.axon
    values = axon.__dict__
    for name in _TOLD:
        heard = getattr(said, name)
        values[name] = heard if heard is not None else getattr(told, name)
    if axon.status_code is None and profile is Profile.BTAUTH:
        axon.status_code = status  # its answers have no headers of their own
    if status != OK:
        axon.status_code = status
        # The body's text is the whole one; in a header it is escaped and cut.
        axon.status_message = told.status_message or said.status_message
    if axon.signature and axon.hotkey and not _signed(synapse):
        said_so = f"{axon.status_code} {axon.status_message or ''}".rstrip()
        raise CallFailed(
            UNREADABLE, f"The answer's signature is not that of {axon.hotkey}; the answer was: {said_so}"
        )
    synapse.dendrite.status_code = axon.status_code
    synapse.dendrite.status_message = axon.status_message


def fail(synapse: Synapse, failure: CallFailed) -> None:
    """Writes a failure into the synapse."""
    synapse.dendrite.status_code = failure.status_code
    synapse.dendrite.status_message = failure.message


def is_json(kind: str) -> bool:
    """Whether a content type is JSON's."""
    bare = kind.partition(";")[0].strip().lower()
    return bare == "application/json" or (bare.startswith("application/") and bare.endswith("+json"))


@lru_cache(maxsize=1024)
def kept(cls: type[Synapse]) -> frozenset[str]:
    """The fields that no answer of this class may change: signed, without a default, or frozen."""
    fixed = {name for name, field in cls.model_fields.items() if field.is_required() or field.frozen}
    return frozenset(fixed | set(shape(cls).hashed) | ENVELOPE)


def changeable(synapse: Synapse) -> list[str]:
    """The fields that an answer may fill in: not `kept`, and not set by the caller to more than its default.

    A class that says by `Output` what an answer holds decides it alone.
    """
    cls = type(synapse)
    if (output := fields_of(cls.Output)) is not None:
        return [name for name in output if name in cls.model_fields and name not in ENVELOPE]
    fixed, given = kept(cls), synapse.__pydantic_fields_set__
    return [
        name
        for name, field in cls.model_fields.items()
        if name not in fixed
        and (name not in given or synapse.__dict__[name] == field.get_default(call_default_factory=True))
    ]


def fields_of(kind: Any) -> list[str] | None:
    """The fields of an Output that is a model, None for another one."""
    return list(kind.model_fields) if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _answer(synapse: Synapse, profile: Profile, body: bytes) -> tuple[TerminalInfo, Any]:
    cls = type(synapse)
    if cls.Output is None or profile is Profile.SDK:
        whole = cls.from_body(body)
        _take(synapse, whole, changeable(synapse))
        return whole.axon, None if cls.Output is None else _own_output(synapse)
    output = cls.deserialize_body(body)
    if isinstance(output, BaseModel):
        _take(synapse, output, changeable(synapse))
    return TerminalInfo(), output


def _own_output(synapse: Synapse) -> Any:
    try:
        return synapse.output()
    except ValidationError as error:
        raise DeserializationFailed(told(error)) from None


def _take(synapse: Synapse, found: BaseModel, names: list[str]) -> None:
    # Both were checked by their classes; and what an answer filled in does not count as set by the caller,
    # who may send the same synapse again.
    for name in names:
        synapse.__dict__[name] = found.__dict__[name]
        synapse.__pydantic_fields_set__.discard(name)


def _message(body: bytes) -> str | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise DeserializationFailed("the body is not JSON") from None
    if not isinstance(found, dict):
        raise DeserializationFailed("the body is no JSON object")
    message = found.get("message")
    if not isinstance(message, str):
        return None
    # Half of a surrogate pair can be written in JSON, and would fail wherever the text is printed.
    return message[:LONGEST_MESSAGE].encode("utf-8", "replace").decode()


def _signed(synapse: Synapse) -> bool:
    axon, own = synapse.axon, synapse.dendrite.hotkey
    if axon.nonce is None or axon.uuid is None or axon.hotkey is None or own is None:
        return False
    message = signing.response_message(axon.nonce, own, axon.hotkey, axon.uuid)
    return verified(axon.hotkey, message, axon.signature or "")
