"""Our dendrite at our gateway, and docs/axon.md on calling: its program and table are those of the code."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

from bakemesh.dendrite import CallFailed, Dendrite, Target, client, failures
from bakemesh.edge import load
from bakemesh.hotkeys import create_hotkey
from bakemesh.protocol.axon import Profile, Tensor
from support.axon import gateway
from support.rawaxon import raw_axon
from support.recorded import ALICE, BOB, CHARLIE
from support.sdkserved import KINDS, served

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "axon.md").read_text("utf-8")


@pytest.mark.parametrize("profile", list(Profile))
async def test_each_profile_is_told_and_answered(profile: Profile) -> None:
    import numpy

    async with gateway(served()) as at, Dendrite(BOB, profile=profile) as dendrite:
        axon = Target(at.host, at.port, ALICE.address)
        echo = await dendrite.query(axon, KINDS["Echo"](text="héllo", n=3))
        array = numpy.arange(4, dtype="float32")
        doubled = await dendrite.query(axon, KINDS["Array"](given=Tensor.from_numpy(array)))
        stream = dendrite.stream(axon, KINDS["Tok"](prompt="q"))
        parts = [part async for part in stream]
        private = await dendrite.query(axon, KINDS["Private"](text="a"))
        nowhere = await dendrite.query(axon, KINDS["Nowhere"](text="a"))
        boom = await dendrite.query(axon, KINDS["Boom"](text="a"))
        late = await dendrite.query(axon, KINDS["Slow"](seconds=30), 0.5)
        counted = at.counted(verdict="ok", profile=str(profile))

    assert (echo.reply, echo.n, echo.dendrite.status_code) == ("héllo", 3, 200)
    assert numpy.array_equal(doubled.doubled.numpy(), array * 2)
    assert parts == ["hel", "lö ", "wor", "ld"]
    assert stream.synapse.is_success
    assert private.is_blacklist
    assert private.dendrite.status_message == "Forbidden. Key is blacklisted: not registered."
    assert nowhere.dendrite.status_code == 404
    assert boom.dendrite.status_code == 500
    assert late.is_timeout
    assert counted == 3


async def test_a_signature_under_a_refusal_is_the_gateways() -> None:
    async with gateway(served()) as at, Dendrite(BOB) as dendrite:
        found = await dendrite.query(Target(at.host, at.port, ALICE.address), KINDS["Private"](text="a"))
        other = await dendrite.query(Target(at.host, at.port, CHARLIE.address), KINDS["Echo"](text="a"))

    assert found.axon.signature is not None
    assert found.is_blacklist
    assert other.dendrite.status_code == 422
    assert f"not that of {CHARLIE.address}; the answer was: 401" in (other.dendrite.status_message or "")


async def test_headers_that_a_proxy_dropped_are_told() -> None:
    """As behind a proxy that was not told about underscores."""

    async with gateway(served()) as at:

        async def dropping(asked: object, writer: asyncio.StreamWriter) -> None:
            writer.write(
                await at.raw(
                    b"POST /Echo HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}"
                )
            )

        async with raw_axon(dropping) as proxy, Dendrite(BOB) as dendrite:
            found = await dendrite.query(proxy.target, KINDS["Echo"](text="a"))

    assert found.failed_verification
    assert "it has no bt_header_dendrite_*" in (found.dendrite.status_message or "")


async def test_a_handler_that_fails_within_a_stream_is_told() -> None:
    from collections.abc import AsyncIterator

    from bakemesh.edge import Axon

    async def falls(synapse: object) -> AsyncIterator[str]:
        yield "one"
        raise ValueError("it fell")

    for profile, status in ((Profile.SYNAPSE, 500), (Profile.BTAUTH, 500), (Profile.SDK, 400)):
        async with (
            gateway(Axon().attach(falls, synapse=KINDS["Tok"])) as at,
            Dendrite(BOB, profile=profile) as dendrite,
        ):
            stream = dendrite.stream(Target(at.host, at.port, ALICE.address), KINDS["Tok"](prompt="q"))
            assert await anext(stream) == "one"
            with pytest.raises(CallFailed) as failed:
                await anext(stream)
        assert failed.value.status_code == status


async def test_the_guides_program_runs_as_written(tmp_path: Path) -> None:
    found = re.search(r"^## Call a synapse\n\n```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    assert found
    create_hotkey(tmp_path / "me.json")
    async with gateway(load(ROOT / "examples" / "axon" / "reverse.py")) as at:
        program = found[1].replace("8091", str(at.port)).replace("5Axon…", ALICE.address)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, cwd=tmp_path, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await process.communicate()

    assert said.decode() == "True 200 dekab\n"


def test_the_guides_numbers_are_the_codes() -> None:
    statuses = re.findall(r"^\| (\d{3}) \|", GUIDE.partition("of the dendrite itself")[2], re.MULTILINE)[:4]
    own = {failures.TIMEOUT, failures.UNAVAILABLE, failures.BROKEN, failures.UNREADABLE}
    assert {int(status) for status in statuses} == own
    assert f"{client.LARGEST_ANSWER >> 20} MiB" in GUIDE
    connections = f"({client.CONNECTIONS_AN_AXON} an axon, {client.CONNECTIONS} in all)"
    assert connections in " ".join(GUIDE.split())
