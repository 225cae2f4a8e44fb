"""How a body's hash tells the profile, and what the sdk profile does not let through. Pure."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ConfigDict, Field

from bakemesh.axon.middleware.body_hash import told, watched_of
from bakemesh.axon.refused import Refused
from bakemesh.edge import Axon
from bakemesh.edge.axon import Route
from bakemesh.protocol.axon import Profile, Synapse, sha3_256_hex
from bakemesh.protocol.axon.hashing import EMPTY
from bakemesh.protocol.axon.verdicts import Verdict


class Ask(Synapse):
    model_config = ConfigDict(extra="allow")
    required_hash_fields: ClassVar = ("text", "n")
    text: str = ""
    n: int = 0
    tags: list[str] = Field(default_factory=list)
    reply: str | None = None


class Needs(Synapse):
    required_hash_fields: ClassVar = ("text",)
    text: str = ""
    needed: int


async def ask(synapse: Ask) -> Ask:
    return synapse


async def needs(synapse: Needs) -> Needs:
    return synapse


def route(function: Any = ask, **how: Any) -> Route:
    return next(reversed(Axon().attach(function, **how).routes.values()))


@given(st.text(), st.integers(-(10**6), 10**6))
def test_each_hash_tells_its_profile(text: str, n: int) -> None:
    synapse, at = Ask(text=text, n=n), route()
    body, watched = synapse.body(), watched_of(at)
    assert told(at, watched, sha3_256_hex(body), body)[0] is Profile.SYNAPSE
    profile, read = told(at, watched, synapse.declared_hash(), body)
    assert profile is Profile.SDK
    assert (read.text, read.n) == (text, n)  # type: ignore[attr-defined]


class Named(Synapse):
    required_hash_fields: ClassVar = ("name", "text")
    text: str = ""


async def named(synapse: Named) -> Named:
    return synapse


@pytest.mark.parametrize("profile", [Profile.SYNAPSE, Profile.SDK])
def test_a_body_whose_signed_name_is_another_is_not_for_this_route(profile: Profile) -> None:
    at = route(named)
    for name, fits in (("Named", True), ("", True), ("Other", False), ("named", False)):
        synapse = Named(name=name, text="a")
        body = synapse.body()
        if fits:
            assert told(at, watched_of(at), synapse.body_hash(profile), body)[0] is profile
            continue
        with pytest.raises(Refused, match=f"signed for '{name}', this is Named") as refused:
            told(at, watched_of(at), synapse.body_hash(profile), body)
        assert refused.value.verdict is Verdict.BODY_MISMATCH


def test_a_body_of_the_seed_need_not_have_a_name() -> None:
    body = b'{"text":"a","n":1}'
    assert told(route(), (), sha3_256_hex(body), body)[0] is Profile.SYNAPSE


@given(st.binary(max_size=60))
def test_no_other_body_fits(body: bytes) -> None:
    at, signed = route(), Ask(text="a")
    if body == signed.body():
        return
    for digest in (sha3_256_hex(signed.body()), signed.declared_hash(), EMPTY):
        with pytest.raises(Exception, match=r"deserialization failed|not what was signed"):
            told(at, watched_of(at), digest, body)


@pytest.mark.parametrize(
    ("changed", "named"),
    [({"tags": ["a"]}, "tags"), ({"reply": "I said so"}, "reply"), ({"surplus": 1}, "surplus")],
)
def test_what_is_not_signed_must_be_its_default(changed: dict[str, Any], named: str) -> None:
    at = route()
    body = Ask(text="a", **changed).body()
    with pytest.raises(Refused, match=f"'{named}'") as refused:
        told(at, watched_of(at), Ask(text="a").declared_hash(), body)
    assert refused.value.verdict is Verdict.BODY_MISMATCH
    assert told(at, watched_of(at), sha3_256_hex(body), body)[0] is Profile.SYNAPSE
    free = route(allow_unhashed_body=True)
    assert told(free, watched_of(free), Ask(text="a").declared_hash(), body)[0] is Profile.SDK


def test_a_field_without_a_default_that_is_not_signed_has_to_be_listed() -> None:
    body = Needs(needed=0).body()
    digest = Needs(needed=0).declared_hash()
    with pytest.raises(Refused, match="'needed'"):
        told(route(needs), watched_of(route(needs)), digest, body)
    at = route(needs, unhashed_fields=["needed"])
    assert told(at, watched_of(at), digest, body)[0] is Profile.SDK
