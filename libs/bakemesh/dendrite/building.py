"""A synapse made a signed request. Pure: nonce and uuid are given.

| profile | what is signed |
|---|---|
| synapse | the hash of the body's bytes: serialised once, before there is a signature, and sent as they are |
| sdk | the hash of the declared fields; the body is made after signing, as the real dendrite does |
| btauth | method, path and the body's bytes, in headers of their own |

Source: protocol/axon-v1.md, sections 4 to 7.
"""

from __future__ import annotations

from dataclasses import dataclass

from bakemesh.dendrite.errors import TargetRefused
from bakemesh.dendrite.target import Target
from bakemesh.protocol.axon import keys, signing
from bakemesh.protocol.axon.hashing import sha3_256_hex
from bakemesh.protocol.axon.profiles import Profile
from bakemesh.protocol.axon.signatures import Hotkey
from bakemesh.protocol.axon.synapse import Synapse
from bakemesh.protocol.axon.terminal import TerminalInfo

METHOD = "POST"
VERSION = 10_005_000  # of the SDK whose rules for nonces are followed; the real axon looks at it


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent. `synapse`: a copy of the caller's, which knows both ends."""

    synapse: Synapse
    headers: dict[str, str]
    body: bytes


def check(target: Target, profile: Profile) -> None:
    """Raises TargetRefused where this profile cannot sign for the target."""
    if not target.hotkey and profile is not Profile.BTAUTH:
        raise TargetRefused(
            f"{target.place} has no hotkey; the profile {profile} signs for one axon, btauth may name none"
        )


def build(
    synapse: Synapse,
    target: Target,
    hotkey: Hotkey,
    profile: Profile,
    *,
    timeout: float,
    nonce: int,
    uuid: str,
) -> Request:
    """The request. `nonce`: nanoseconds; the synapse profile sends milliseconds, as its document says."""
    found = synapse.model_copy()
    found.set_timeout(timeout)
    found.set_computed_body_hash("")
    found.set_axon(TerminalInfo(ip=target.host, port=target.port, hotkey=target.hotkey or None))
    if profile is Profile.BTAUTH:
        return _btauth(found, target, hotkey, nonce)
    if profile is Profile.SYNAPSE:
        nonce //= 1_000_000
    asking = TerminalInfo(version=VERSION, nonce=nonce, uuid=uuid, hotkey=hotkey.address)
    found.set_dendrite(asking)
    found.set_total_size(0)
    found.set_header_size(0)
    if profile is Profile.SYNAPSE:
        body = found.body()
        digest = sha3_256_hex(body)
        asking.signature = _signature(hotkey, nonce, target, uuid, digest)
    else:
        digest = found.declared_hash()
        asking.signature = _signature(hotkey, nonce, target, uuid, digest)
        body = found.body()
    found.set_computed_body_hash(digest)
    found.set_total_size(len(body))
    return Request(found, found.to_headers(profile), body)


def _signature(hotkey: Hotkey, nonce: int, target: Target, uuid: str, digest: str) -> str:
    return hotkey.sign(signing.signing_message(nonce, hotkey.address, target.hotkey, uuid, digest))


def _btauth(found: Synapse, target: Target, hotkey: Hotkey, nonce: int) -> Request:
    found.set_dendrite(TerminalInfo(nonce=nonce, hotkey=hotkey.address))
    body = found.body()
    route = target.url(type(found).route()).raw_path_qs
    receiver = target.hotkey or None
    payload = signing.btauth_payload(METHOD, route, body, nonce, hotkey.address, receiver)
    headers = {
        keys.NAME: found.name,
        keys.TIMEOUT: str(found.timeout),
        keys.BTAUTH_VERSION: "1",
        keys.BTAUTH_HOTKEY: hotkey.address,
        keys.BTAUTH_NONCE: str(nonce),
        keys.BTAUTH_SIGNATURE: hotkey.sign(payload),
    }
    if receiver is not None:
        headers[keys.BTAUTH_RECEIVER] = receiver
    return Request(found, headers, body)
