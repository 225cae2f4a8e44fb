"""What to do with a recipe that the inbox delivered: a pure decision, the codes tested in their order.

    malformed_message, wrong_identity, unauthorised, duplicate_recipe_id, too_large, expired, invalid_recipe,
    unsupported_step, draining, rate_limited

Source: protocol/builder-v1.md, "Recipe intake".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bakemesh.protocol import names
from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.builder.messages import RecipeMessage
from bakemesh.protocol.builder.spec import Limits, Recipe, RecipeRefused, load_recipe, root_name
from bakemesh.protocol.envelope import LARGEST, Envelope, fold
from bakemesh.protocol.errors import MessageError, NameRefused
from bakemesh.protocol.identity import ENTRIES, Identity
from bakemesh.protocol.identity import check as check_identity
from bakemesh.protocol.rights import BUILDER_PREFIX, builder_name
from bakemesh.protocol.subjects import Subject


@dataclass(frozen=True, slots=True)
class Facts:
    """What the decision rests on. Times: µs since the epoch; `used`: (party, key) was seen before."""

    node: str
    node_id: str
    accept_forwarded: bool
    draining: bool
    now: int
    max_payload: int
    used: Callable[[str, str], bool]
    wait_s: Callable[[str], float]  # takes one of the issuer's tokens; > 0: none is left
    refusal_wait_s: Callable[[str], float]  # the same for refusals, by the party that sent
    supported: frozenset[str]
    limits: Limits


@dataclass(frozen=True, slots=True)
class Bake:
    """Bake it here."""

    identity: Identity
    recipe: Recipe
    message: RecipeMessage
    expires: int


@dataclass(frozen=True, slots=True)
class Forward:
    """It is for another node: send the same bytes there, and say nothing."""

    node_id: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """A Result with `code`; with `tell` one Bake.Failed too; with `uses_id` the RecipeID is used up."""

    identity: Identity
    party: str
    code: Code
    summary: str
    tell: bool
    uses_id: bool
    problems: tuple[dict[str, Any], ...] = ()
    retry_ms: int | None = None


Verdict = Bake | Forward | Refuse
_QUIET = {Code.DRAINING, Code.RATE_LIMITED}
_KEEPS_ID = {Code.UNAUTHORISED, *_QUIET}


class _No(Exception):
    def __init__(
        self, code: Code, summary: str, problems: tuple[dict[str, Any], ...] = (), retry_ms: int | None = None
    ) -> None:
        self.code, self.summary, self.problems, self.retry_ms = code, summary, problems, retry_ms


def judge(subject: Subject, envelope: Envelope, facts: Facts) -> Verdict:
    """The verdict on a message of type Recipe whose envelope could be read."""
    party = subject.party
    owner = _owner(envelope, party)
    trusted = owner == party  # what a forwarder sends uses nobody's RecipeIDs up before it is let in
    try:
        message = _read(envelope)
        _identity(message, subject, facts)
        if party != message.supervisor and party.startswith(BUILDER_PREFIX):
            if message.node_id != facts.node_id:
                raise _No(
                    Code.WRONG_IDENTITY,
                    f"forwarded by {party}, and its NodeID {message.node_id} is not this node's "
                    f"({facts.node_id})",
                )
            if not facts.accept_forwarded:
                raise _No(Code.UNAUTHORISED, "this node does not accept forwarded recipes (accept-forwarded)")
            trusted = True
        elif party != message.supervisor:
            raise _No(Code.UNAUTHORISED, f"sent by {party}, but Supervisor says {message.supervisor}")
        elif message.node_id != facts.node_id:
            return Forward(message.node_id)
        if facts.used(owner, subject.key):
            raise _No(Code.DUPLICATE_RECIPE_ID, f"RecipeID {subject.key} of {owner} was used before")
        return _load(message, envelope.created, facts)
    except _No as no:
        return _refuse(no, envelope, subject, owner, facts, trusted)


def _owner(envelope: Envelope, party: str) -> str:
    """Whose bake it is, and who hears of its end: the sender; of what a Builder passes on, the Supervisor it
    names, for nobody else waits for it.
    """
    if party.startswith(BUILDER_PREFIX):
        named = _entry(envelope, "supervisor")
        if names.is_valid("Supervisor", named):
            return str(named)
    return party


def _refuse(no: _No, envelope: Envelope, subject: Subject, owner: str, facts: Facts, trusted: bool) -> Refuse:
    if no.code not in _QUIET and (wait := facts.refusal_wait_s(subject.party)):
        # Each would be journaled and told: a flood of bad recipes must not fill the disk and the stream.
        no = _limited(f"too many refused recipes of {subject.party} (this one: {no.code})", wait)
    used = facts.used(owner, subject.key)
    return Refuse(
        identity=_as_far_as_known(envelope, subject, owner, facts),
        party=owner,
        code=no.code,
        summary=no.summary,
        tell=not used and no.code not in _QUIET,
        uses_id=not used and trusted and no.code not in _KEEPS_ID,
        problems=no.problems,
        retry_ms=no.retry_ms,
    )


def given_up(envelope: Envelope, key: str, facts: Facts, code: Code, why: str) -> Refuse:
    """The refusal of a recipe that was to be forwarded and cannot be: its RecipeID stays free."""
    owner = str(_entry(envelope, "supervisor"))  # it was checked when it came
    subject = Subject("", facts.node_id, owner, key, envelope.type)
    return Refuse(
        identity=_as_far_as_known(envelope, subject, owner, facts),
        party=owner,
        code=code,
        summary=why,
        tell=not facts.used(owner, key),
        uses_id=False,
    )


def _limited(why: str, wait_s: float) -> _No:
    wait_ms = int(wait_s * 1000) + 1
    return _No(Code.RATE_LIMITED, f"{why}; again in {wait_ms} ms", retry_ms=wait_ms)


def _read(envelope: Envelope) -> RecipeMessage:
    try:
        return RecipeMessage.from_entries(envelope.entries, type=envelope.type)
    except MessageError as error:
        if error.entry in ENTRIES and not _has(envelope, error.entry):
            raise _No(Code.WRONG_IDENTITY, f"the entry {error.entry} is missing") from error
        raise _No(Code.MALFORMED_MESSAGE, str(error)) from error


def _has(envelope: Envelope, entry: str) -> bool:
    try:
        return entry.lower() in fold(envelope.entries)
    except MessageError:
        return True


def _identity(message: RecipeMessage, subject: Subject, facts: Facts) -> None:
    try:
        check_identity(message.identity)
    except NameRefused as error:
        raise _No(Code.WRONG_IDENTITY, str(error)) from error
    if message.node_id in names.RESERVED_NODE_IDS:
        raise _No(
            Code.WRONG_IDENTITY,
            f"NodeID {message.node_id} is no node's: the Supervisor chooses one before it sends",
        )
    if message.recipe_id != subject.key:
        raise _No(Code.WRONG_IDENTITY, f"RecipeID {message.recipe_id} is not the subject's key {subject.key}")
    if len(message.recipe_spec) <= facts.limits.xml_bytes:
        name = root_name(message.recipe_spec)
        if name is None:
            return  # unreadable: the later code says so with its line
        expected = name or message.supervisor
        if expected != message.recipe:
            raise _No(Code.WRONG_IDENTITY, f"Recipe is {message.recipe}, but the recipe's name is {expected}")


def _load(message: RecipeMessage, created: int, facts: Facts) -> Bake:
    try:
        recipe = load_recipe(
            message.recipe_spec,
            facts.limits,
            supported=facts.supported,
            max_payload=facts.max_payload,
            params=message.params or (),
        )
        refused = None
    except RecipeRefused as error:
        recipe, refused = None, error
    if refused is not None and refused.code is Code.TOO_LARGE:
        raise _refusal(refused)
    expires = message.expires or 0
    if recipe is not None and recipe.expires_ms:
        own = min(created + recipe.expires_ms * 1000, LARGEST)  # of a clock far ahead: no number is larger
        expires = min(expires, own) if expires else own
    if expires and facts.now > expires:
        late = (facts.now - expires) / 1e6
        raise _No(Code.EXPIRED, f"expired {late:.1f} s before it arrived")
    if refused is not None:
        raise _refusal(refused)
    assert recipe is not None
    # A bake that runs here and waits for its child could not end, and the drain neither.
    if facts.draining and message.supervisor != builder_name(facts.node_id):
        raise _No(Code.DRAINING, f"node {facts.node} is draining; send it elsewhere or later")
    if wait := facts.wait_s(message.supervisor):
        raise _limited(f"too many recipes of {message.supervisor}", wait)
    return Bake(message.identity, recipe, message, expires)


def _refusal(error: RecipeRefused) -> _No:
    first = error.problems[0]
    more = f" (and {len(error.problems) - 1} more)" if len(error.problems) > 1 else ""
    return _No(
        error.code,
        f"line {first.line}: {first.message}{more}",
        tuple(each.entry() for each in error.problems),
    )


def _as_far_as_known(envelope: Envelope, subject: Subject, owner: str, facts: Facts) -> Identity:
    """The identity of a refused recipe: from its subject wherever an entry is missing or differs."""
    recipe = _entry(envelope, "recipe")
    known = names.is_valid("Recipe", recipe)
    return Identity(owner, str(recipe) if known else "-", subject.key, facts.node, facts.node_id)


def _entry(envelope: Envelope, lower: str) -> Any:
    """An entry by its lower-case name; None where it is missing, or said twice."""
    try:
        return envelope.entries.get(fold(envelope.entries).get(lower, ""))
    except MessageError:
        return None
