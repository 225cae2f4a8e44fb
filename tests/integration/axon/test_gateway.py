"""A gateway answers signed requests of every profile, over a real socket."""

from __future__ import annotations

import json
from typing import ClassVar

import pytest

from bakemesh.edge import Axon, Call
from bakemesh.protocol.axon import Profile, Synapse
from support.axon import BOB, gateway


class Echo(Synapse):
    required_hash_fields: ClassVar = ("text",)
    text: str = ""
    reply: str | None = None


async def echo(synapse: Echo, call: Call) -> Echo:
    synapse.reply = f"{synapse.text} of {call.hotkey} ({call.profile})"
    return synapse


@pytest.mark.parametrize("profile", Profile)
async def test_a_signed_request_is_answered_and_the_handler_sees_who_signed_it(profile: Profile) -> None:
    async with gateway(Axon().attach(echo)) as at:
        answer = await at.post(Echo(text="a"), profile=profile)
        assert answer.status == 200, answer.body
        assert json.loads(answer.body)["reply"] == f"a of {BOB.address} ({profile})"
        assert at.counted(route="Echo", verdict="ok", profile=profile) == 1
        told = answer.headers.get("bt_header_axon_status_code")
        assert told == (None if profile is Profile.BTAUTH else "200")
