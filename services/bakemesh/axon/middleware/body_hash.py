"""Whether the body is what was signed, and by that, which profile it is.

    the hash is that of the bytes            ─→ synapse
    … that of the fields the class declares  ─→ sdk
    neither                                  ─→ 400
    btauth/1: the bytes are in what was signed

The path is no part of what is signed, but for btauth/1. Where the body's `name` is signed (in the synapse
profile, or as a declared field), it must be that of the route. What the sdk profile does not sign it does not
let through: an input that is not declared must be its default, and a class that declares none is not served,
unless the route says so.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from bakemesh.axon.exchange import Exchange
from bakemesh.axon.refused import Refused
from bakemesh.edge.axon import Route
from bakemesh.protocol.axon.claims import Family
from bakemesh.protocol.axon.hashing import EMPTY, sha3_256_hex
from bakemesh.protocol.axon.profiles import Profile
from bakemesh.protocol.axon.synapse import Synapse, shape
from bakemesh.protocol.axon.verdicts import Verdict


class BodyHash:
    """The step."""

    def __init__(self, body_bytes: int) -> None:
        self._body_bytes = body_bytes

    def __call__(self, exchange: Exchange) -> Awaitable[None]:
        """Writes `synapse` and `profile`. Raises Refused, DeserializationFailed, InvalidTensor."""
        return self._check(exchange)

    async def _check(self, exchange: Exchange) -> None:
        body = await exchange.body(self._body_bytes)
        claim, route = exchange.claim, exchange.route
        if claim is None:
            profile, synapse = _unsigned(route, body)
        elif claim.family is Family.BTAUTH:
            profile, synapse = Profile.BTAUTH, _read(route, body)
        else:
            profile, synapse = told(route, exchange.watched, claim.body_hash, body)
        exchange.profile, exchange.synapse = profile, synapse
        exchange.address(synapse)


def told(
    route: Route, watched: tuple[tuple[str, Any], ...], body_hash: str, body: bytes
) -> tuple[Profile, Synapse]:
    """The profile of a signed body, and the synapse. Raises Refused, DeserializationFailed, InvalidTensor."""
    if sha3_256_hex(body) == body_hash:
        synapse = _read(route, body)
        _check_name(route, synapse)
        return Profile.SYNAPSE, synapse
    synapse = _read(route, body)
    if synapse.declared_hash() != body_hash:
        told = "the body is not what was signed: its hash fits neither the bytes nor the declared fields"
        raise Refused(Verdict.BODY_MISMATCH, told)
    if "name" in shape(route.synapse).hashed:
        _check_name(route, synapse)
    if not route.allow_unhashed_body:
        _check_unsigned_inputs(route, watched, body_hash, synapse)
    return Profile.SDK, synapse


def watched_of(route: Route) -> tuple[tuple[str, Any], ...]:
    """The inputs of a route that the sdk profile does not sign and that must be their defaults."""
    known = shape(route.synapse)
    fields = route.synapse.model_fields
    return tuple(
        (name, fields[name].get_default(call_default_factory=True, validated_data={}))
        for name in known.inputs
        if name not in known.hashed and name not in route.unhashed_fields
    )


def _check_name(route: Route, synapse: Synapse) -> None:
    """Whether a name that was signed is that of the route: an empty one says nothing."""
    if synapse.name not in ("", route.name):
        told = f"the body was signed for {synapse.name[:80]!r}, this is {route.name}"
        raise Refused(Verdict.BODY_MISMATCH, told)


def _check_unsigned_inputs(
    route: Route, watched: tuple[tuple[str, Any], ...], body_hash: str, synapse: Synapse
) -> None:
    if body_hash == EMPTY:
        told = (
            f"nothing of the body is signed: {route.name} declares no required_hash_fields; sign the bytes "
            "of the body, or have the route allow_unhashed_body"
        )
        raise Refused(Verdict.BODY_MISMATCH, told)
    values = synapse.__dict__
    extra = next(iter(synapse.model_extra or ()), None)
    for name, default in watched:
        if values[name] != default:
            extra = name
            break
    if extra is not None:
        told = (
            f"the field {extra[:80]!r} is not signed and is not its default: required_hash_fields of "
            f"{route.name} does not name it, nor do the route's unhashed_fields"
        )
        raise Refused(Verdict.BODY_MISMATCH, told)


def _unsigned(route: Route, body: bytes) -> tuple[Profile, Synapse]:
    """What the route's own `verify_fn` let through without a claim."""
    if not route.allow_unhashed_body:
        told = f"nothing of the body is signed; {route.name} takes one only if it has allow_unhashed_body"
        raise Refused(Verdict.BODY_MISMATCH, told)
    return Profile.SYNAPSE, _read(route, body)


def _read(route: Route, body: bytes) -> Synapse:
    return route.synapse() if route.ignores_body else route.synapse.from_body(body)
