"""What a request claims by its headers: who signed what, for whom and when; and the check of it. Pure.

    family(headers)  ─→ BT_HEADER | BTAUTH | UNSIGNED         both: InvalidHeaderValue
    claim_of(…)      ─→ Claim                                 a part is missing: NotVerified
    check(claim, …)  ─→ the signature, the receiver and the nonce are right, or NotVerified

Which of the two profiles of the first family it is, is told by the body's hash (`profiles.told_by`).
Guarantees: nothing that is not signed has a part in the decision. Left out: whether it was seen before (the
gateway's store). Source: protocol/axon-v1.md, section 5.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from bakemesh.protocol.axon import keys, signing
from bakemesh.protocol.axon.errors import InvalidHeaderValue, NotVerified
from bakemesh.protocol.axon.freshness import Window
from bakemesh.protocol.axon.signatures import verified
from bakemesh.protocol.axon.terminal import U64, unsigned
from bakemesh.protocol.axon.verdicts import Verdict

LONGEST_UUID = 64
_UUID = re.compile(
    r"[\x21-\x2d\x2f-\x7e]{1,64}", re.ASCII
)  # a dot would make two readings of one signed message


class Family(StrEnum):
    """Which headers a request carries."""

    BT_HEADER = "bt_header"
    BTAUTH = "btauth"
    UNSIGNED = "unsigned"


@dataclass(frozen=True, slots=True)
class Claim:
    """`message`: what was signed; `receiver`: None, it names none; `body_hash`: "" in `btauth/1`, where the
    message holds it.
    """

    family: Family
    hotkey: str
    nonce: int
    uuid: str
    message: str
    signature: str
    receiver: str | None
    body_hash: str = ""

    @property
    def replay_key(self) -> tuple[str, str, int]:
        """The same request again has the same one, however its signature is written."""
        return self.hotkey, self.uuid, self.nonce


def family(headers: Mapping[str, str]) -> Family:
    """Which family the headers (`headers.normal`) belong to. Raises InvalidHeaderValue where it is both."""
    ours = any(key.startswith(keys.DENDRITE_PREFIX) for key in headers)
    btauth = any(key.startswith(keys.BTAUTH_PREFIX) for key in headers)
    if ours and btauth:
        raise InvalidHeaderValue("x-bittensor-*", "bt_header_* are there too; a request carries one family")
    return Family.BT_HEADER if ours else Family.BTAUTH if btauth else Family.UNSIGNED


def claim_of(headers: Mapping[str, str], own_hotkey: str, *, method: str, target: str, body: bytes) -> Claim:
    """The claim. Raises NotVerified (UNSIGNED), InvalidHeaderValue."""
    which = family(headers)
    if which is Family.UNSIGNED:
        raise NotVerified(Verdict.UNSIGNED, "the request is not signed: it has no bt_header_dendrite_*")
    return (
        _bt_header(headers, own_hotkey)
        if which is Family.BT_HEADER
        else _btauth(headers, method, target, body)
    )


def check(claim: Claim, own_hotkey: str, now_ns: int, window: Window) -> None:
    """Raises NotVerified where the receiver, the nonce or the signature is not right."""
    check_unsigned(claim, own_hotkey, now_ns, window)
    check_signature(claim)


def check_unsigned(claim: Claim, own_hotkey: str, now_ns: int, window: Window) -> None:
    """The part of `check` that costs nothing: raises NotVerified for the receiver and the nonce."""
    if claim.receiver is not None and claim.receiver != own_hotkey:
        raise NotVerified(Verdict.WRONG_RECEIVER, f"it was signed for another axon, this one is {own_hotkey}")
    if problem := window.problem(claim.nonce, now_ns):
        raise NotVerified(Verdict.STALE, problem)


def check_signature(claim: Claim) -> None:
    """The part of `check` that costs: raises NotVerified for the signature."""
    if not verified(claim.hotkey, claim.message, claim.signature):
        raise bad_signature()


def bad_signature() -> NotVerified:
    """What a signature that is not right is answered with."""
    return NotVerified(Verdict.BAD_SIGNATURE, "the signature is not that of the hotkey and this request")


def _needed(headers: Mapping[str, str], key: str, what: str) -> str:
    value = headers.get(key.lower())
    if not value:
        raise NotVerified(Verdict.UNSIGNED, f"Missing {what}: the header {key} is not there")
    return value


def _nonce(text: str, key: str) -> int:
    try:
        return unsigned(text, U64)
    except ValueError as error:
        raise InvalidHeaderValue(key, error) from None


def _bt_header(headers: Mapping[str, str], own_hotkey: str) -> Claim:
    prefix = keys.DENDRITE_PREFIX
    hotkey = _needed(headers, prefix + "hotkey", "Hotkey")
    nonce_text = _needed(headers, prefix + "nonce", "Nonce")
    uuid = _needed(headers, prefix + "uuid", "UUID")
    signature = _needed(headers, prefix + "signature", "Signature")
    body_hash = _needed(headers, keys.COMPUTED_BODY_HASH, "body hash")
    nonce = _nonce(nonce_text, prefix + "nonce")
    if _UUID.fullmatch(uuid) is None:
        raise InvalidHeaderValue(
            prefix + "uuid", f"{uuid[:40]!r} is not 1 to {LONGEST_UUID} printable characters without a dot"
        )
    message = signing.signing_message(nonce, hotkey, own_hotkey, uuid, body_hash)
    receiver = headers.get(keys.AXON_PREFIX + "hotkey")
    return Claim(Family.BT_HEADER, hotkey, nonce, uuid, message, signature, receiver, body_hash)


def _btauth(headers: Mapping[str, str], method: str, target: str, body: bytes) -> Claim:
    version = _needed(headers, keys.BTAUTH_VERSION, "version")
    if version != "1":
        raise InvalidHeaderValue(keys.BTAUTH_VERSION, f"version {version[:20]!r}; this gateway speaks 1")
    hotkey = _needed(headers, keys.BTAUTH_HOTKEY, "Hotkey")
    nonce = _nonce(_needed(headers, keys.BTAUTH_NONCE, "Nonce"), keys.BTAUTH_NONCE)
    signature = _needed(headers, keys.BTAUTH_SIGNATURE, "Signature")
    receiver = headers.get(keys.BTAUTH_RECEIVER.lower())
    message = signing.btauth_payload(method, target, body, nonce, hotkey, receiver)
    return Claim(Family.BTAUTH, hotkey, nonce, "", message, signature, receiver)
