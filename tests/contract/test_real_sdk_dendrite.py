"""The real SDK's dendrite calls our gateway: its classes are ours with another base."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy
import pytest

from bakemesh.hotkeys import create_hotkey, load_hotkey, wallet_hotkey
from bakemesh.protocol.axon.signatures import verified
from support.axon import Gateway, gateway
from support.realsdk import Child, real_dendrite, real_sdk
from support.recorded import CHARLIE
from support.sdkserved import served

pytestmark = pytest.mark.timeout(1000)  # the first of these tests installs the SDK

TURNS: list[dict[str, Any]] = [
    {"role": "user", "content": "héllo", "weight": 0.1, "source": {"url": "http://a/?b=c", "rank": 3}},
    {"role": "assistant", "content": 'quote " and \\', "weight": 1e-7, "source": None},
    {"role": "user", "content": "", "weight": 1e22, "source": None},
]
CHAT: dict[str, Any] = {
    "turns": TURNS,
    "mode": "fast",
    "extra": [{"a": 1, "b": [1.5, None, True, "x"]}, {}],
    "options": {"top_k": 5, "nested": {"deep": ["ü"]}},
    "role": "assistant",
    "limit": 0.30000000000000004,
    "tags": ["a", "b"],
}


@asynccontextmanager
async def both(folder: Path) -> AsyncIterator[tuple[Child, Gateway]]:
    async with real_dendrite(real_sdk(), folder / "home") as theirs, gateway(served()) as ours:
        yield theirs, ours


async def test_it_is_answered(tmp_path: Path) -> None:
    async with both(tmp_path) as (theirs, ours):
        found = await theirs.call("Echo", ours.port, text="héllo wörld", n=3)
        required = await theirs.call(
            "Required",
            ours.port,
            prompt="hi",
            roles=["user"],
            n=2,
            temperature=0.7,
            flags={"a": True},
        )
        counted = ours.counted(verdict="ok", profile="sdk")

    assert found["status_code"] == found["axon_status_code"] == 200
    assert found["status_message"] == "Success"
    assert found["flags"]["is_success"]
    assert found["fields"] == {"text": "héllo wörld", "n": 3, "reply": "héllo wörld"}
    assert float(found["process_time"]) > 0
    assert required["status_code"] == 200
    assert required["fields"]["reply"] == "hi"
    assert counted == 2


async def test_a_class_of_everything_survives_the_way_there_and_back(tmp_path: Path) -> None:
    async with both(tmp_path) as (theirs, ours):
        found = await theirs.call("Chat", ours.port, **CHAT)
        number = await theirs.call("Chat", ours.port, **{**CHAT, "mode": 3, "options": None, "limit": None})

    assert found["status_code"] == 200, found["status_message"]
    assert found["fields"] == {**CHAT, "seed": 7, "best": TURNS[2], "all_of_them": TURNS[::-1]}
    assert number["status_code"] == 200, number["status_message"]
    assert number["fields"]["mode"] == 3


ARRAYS: list[tuple[Any, str]] = [
    ([[1.5, -2.0], [0.25, 1e-7]], "float32"),
    ([1.5, 2.5], "float16"),
    ([[[1]], [[2]]], "int64"),
    ([1, 100], "uint8"),
    ([], "float64"),
]


async def test_tensors_go_both_ways(tmp_path: Path) -> None:
    async with both(tmp_path) as (theirs, ours):
        for array, dtype in ARRAYS:
            found = await theirs.call("Array", ours.port, how={"array": array, "dtype": dtype})

            expected = numpy.array(array, dtype=dtype) * 2
            assert found["status_code"] == 200, found["status_message"]
            assert found["doubled"] == expected.tolist()
            assert found["dtype"] == dtype


async def test_a_stream_arrives_in_its_parts(tmp_path: Path) -> None:
    async with both(tmp_path) as (theirs, ours):
        found = await theirs.call("Tok", ours.port, prompt="q")

    assert "".join(found["chunks"]) == "hellö world"
    assert found["fields"]["completion"] == "hellö world"
    assert found["status_code"] == 200
    assert found["flags"]["is_success"]


async def test_a_body_that_is_not_signed_is_served_only_where_the_route_says_so(tmp_path: Path) -> None:
    async with both(tmp_path) as (theirs, ours):
        refused = await theirs.call("Unhashed", ours.port, text="a")
        allowed = await theirs.call("Allowed", ours.port, text="a")

    assert refused["status_code"] == 400
    assert "required_hash_fields" in refused["status_message"]
    assert refused["fields"]["reply"] is None
    assert allowed["status_code"] == 200
    assert allowed["fields"]["reply"] == "a"


async def test_what_is_refused_is_told_as_by_the_real_axon(tmp_path: Path) -> None:
    async with both(tmp_path) as (theirs, ours):
        private = await theirs.call("Private", ours.port, text="a")
        nowhere = await theirs.call("Nowhere", ours.port, text="a")
        boom = await theirs.call("Boom", ours.port, text="a")
        late = await theirs.call("Slow", ours.port, how={"timeout": 0.5}, seconds=30)
        forged = await theirs.call("Echo", ours.port, how={"forged": True}, text="a")
        other = await theirs.call("Echo", ours.port, hotkey=CHARLIE.address, text="a")
        again = await theirs.call("Echo", ours.port, text="a")

    assert private["status_code"] == 403
    assert private["flags"]["is_blacklist"]
    assert private["status_message"] == "Forbidden. Key is blacklisted: not registered."
    assert nowhere["status_code"] == 404
    assert nowhere["status_message"].startswith("Synapse name 'Nowhere' not found. Available synapses [")
    assert boom["status_code"] == 500
    assert boom["status_message"].startswith("Internal Server Error #")
    assert late["status_code"] == 408
    assert late["flags"]["is_timeout"]
    for unverified in (forged, other):
        assert unverified["status_code"] == 401
        assert unverified["flags"]["failed_verification"]
    assert again["status_code"] == 200


async def test_many_at_once_from_one_dendrite(tmp_path: Path) -> None:
    """All with one uuid and nonces that do not arrive in their order."""
    async with both(tmp_path) as (theirs, ours):
        found = await theirs.call("Echo", ours.port, how={"times": 60}, text="a")
        seen = len(ours.state.replay)

    assert [each["status_code"] for each in found] == [200] * 60
    assert seen == 60


MAKE_AND_SIGN = """
import json, sys
from bittensor_wallet import Keypair, Wallet
key = Keypair.create_from_mnemonic(Keypair.generate_mnemonic())
Wallet(name="theirs", hotkey="default", path=sys.argv[1]).set_hotkey(key, encrypt=False)
ours = Wallet(name="ours", hotkey="default", path=sys.argv[1]).hotkey
print(json.dumps([ours.ss58_address, ours.sign("m").hex(), key.ss58_address]))
"""


async def test_key_files_are_the_same(tmp_path: Path) -> None:
    """The SDK's wallet loads a hotkey that we made, and we load one that it made."""
    made = create_hotkey(wallet_hotkey("ours", "default", tmp_path))
    process = await asyncio.create_subprocess_exec(
        str(real_sdk()), "-c", MAKE_AND_SIGN, str(tmp_path), stdout=-1, env={"HOME": str(tmp_path)}
    )
    printed, _ = await process.communicate()
    address, signature, theirs = json.loads(printed.splitlines()[-1])

    assert address == made.address
    assert verified(made.address, "m", f"0x{signature}")
    assert load_hotkey(wallet_hotkey("theirs", "default", tmp_path)).address == theirs
