"""`bakemesh hotkey` and `bakemesh call`, as a user runs them, at a gateway that runs here."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar

import pytest

from bakemesh.edge import Axon
from bakemesh.hotkeys import create_hotkey
from bakemesh.protocol.axon import StreamingSynapse, Synapse, TextPrompt
from support.axon import ALICE, Gateway, gateway
from support.commandline import bakemesh

FILE = """
from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel

from bakemesh.protocol.axon import StreamingSynapse, Synapse


class Echo(Synapse):
    required_hash_fields: ClassVar = ("text",)
    text: str
    reply: str | None = None


class Part(BaseModel):
    number: int


class Count(StreamingSynapse):
    required_hash_fields: ClassVar = ("most",)
    Item: ClassVar = Part
    most: int = 2
"""


class Echo(Synapse):
    required_hash_fields: ClassVar = ("text",)
    text: str
    reply: str | None = None


class Count(StreamingSynapse):
    required_hash_fields: ClassVar = ("most",)
    Item: ClassVar = dict[str, int]
    most: int = 2


async def text_prompt(synapse: TextPrompt) -> TextPrompt | AsyncIterator[str]:
    async def parts() -> AsyncIterator[str]:
        for part in ("one ", "two\n", "three"):
            yield part

    if synapse.stream:
        return parts()
    synapse.completion = f"{synapse.prompt} three"
    return synapse


async def echo(synapse: Echo) -> Echo:
    if synapse.text == "wait":
        await asyncio.sleep(60)
    synapse.reply = synapse.text.upper()
    return synapse


async def count(synapse: Count) -> AsyncIterator[dict[str, int]]:
    for number in range(synapse.most):
        yield {"number": number}
    if synapse.most == 3:
        raise ValueError("it fell")


def served() -> Axon:
    return Axon().attach(text_prompt).attach(echo).attach(count)


async def called(at: Gateway, home: Path, *args: str, **more: str) -> subprocess.CompletedProcess[bytes]:
    words = ["call", at.url, *args]
    if "--axon-hotkey" not in args:
        words += ["--axon-hotkey", ALICE.address]
    return await asyncio.to_thread(bakemesh, *words, home=home, **more)


async def test_a_built_in_name_is_called(tmp_path: Path) -> None:
    async with gateway(served()) as at:
        plain = await called(at, tmp_path, "TextPrompt", '{"prompt": "one two"}')
        machine = await called(at, tmp_path, "TextPrompt", '{"prompt": "one two"}', "--json")
        ping = await called(at, tmp_path, "Synapse")

    assert plain.returncode == 0, plain.stderr
    assert json.loads(plain.stdout)["completion"] == "one two three"
    told = json.loads(machine.stdout)
    assert told["status_code"] == 200
    assert told["answer"]["completion"] == "one two three"
    assert (ping.returncode, json.loads(ping.stdout)) == (0, {})


async def test_parts_are_printed_as_they_come(tmp_path: Path) -> None:
    async with gateway(served()) as at:
        plain = await called(at, tmp_path, "TextPrompt", '{"prompt": "a"}', "--stream")
        machine = await called(at, tmp_path, "TextPrompt", '{"prompt": "a"}', "--stream", "--json")

    assert (plain.returncode, plain.stdout) == (0, b"one two\nthree\n")
    lines = [json.loads(line) for line in machine.stdout.splitlines()]
    assert [line["part"] for line in lines[:-1]] == ["one ", "two\n", "three"]
    assert lines[-1]["event"] == "end"


@pytest.mark.parametrize("profile", ["synapse", "sdk", "btauth"])
async def test_a_class_of_ones_own_signed_by_a_key_file(tmp_path: Path, profile: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    own = create_hotkey(tmp_path / "me.json")
    seen: list[str | None] = []

    async def watched(synapse: Echo) -> Echo:
        seen.append(synapse.dendrite.hotkey)
        return await echo(synapse)

    async with gateway(Axon().attach(watched).attach(count)) as at:
        flags = ("--profile", profile, "--hotkey", str(tmp_path / "me.json"))
        found = await called(at, tmp_path, f"{file}:Echo", '{"text": "ab"}', *flags)
        parts = await called(at, tmp_path, f"{file}:Count", "--stream", *flags)

    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout) == {"text": "ab", "reply": "AB"}
    assert seen == [own.address]
    assert parts.stdout == b'{"number": 0}\n{"number": 1}\n', parts.stderr


async def test_what_goes_wrong_is_one_line_and_a_code(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_that_name")
    loose = create_hotkey(tmp_path / "loose")
    (tmp_path / "loose").chmod(0o644)
    stranger = create_hotkey(tmp_path / "stranger").address
    cases: list[tuple[tuple[str, ...], int, str]] = [
        (("Nothing",), 2, "no synapse 'Nothing'"),
        (("none.py:Echo",), 2, "no file none.py"),
        ((f"{file}:None",), 2, "no class 'None'"),
        ((f"{file}:Part",), 2, "no class 'Part'"),
        ((f"{broken}:Echo",), 2, "ModuleNotFoundError"),
        ((f"{file}:Echo", "{}"), 2, "text: Field required"),
        ((f"{file}:Echo", "[]"), 2, "expected an object"),
        ((f"{file}:Echo", "{"), 2, "JSON"),
        ((f"{file}:Echo", '{"txt": 1}'), 2, "no field 'txt'"),
        ((f"{file}:Echo", '{"text": "a"}', "--stream"), 2, "does not answer in parts"),
        (("Synapse", "--hotkey", str(tmp_path / "loose")), 2, "chmod 600"),
        (("Synapse", "--axon-hotkey", loose.address[:-1]), 2, "axon hotkey"),
        (("Synapse", "--timeout", "0"), 2, "seconds above 0"),
        (
            ("Synapse", "--axon-hotkey", stranger),
            1,
            f"signature is not that of {stranger}; the answer was: 401 Not Verified",
        ),
        ((f"{file}:Count", '{"most": 3}', "--stream"), 1, "Internal Server Error"),
        (("Embedding", '{"texts": ["a"]}'), 1, "not found"),
        ((f"{file}:Echo", '{"text": "wait"}', "--timeout", "0.5"), 5, "408"),
    ]
    async with gateway(served()) as at:
        found = await asyncio.gather(*(called(at, tmp_path, *args) for args, _, _ in cases))
        port = at.port
    gone = await asyncio.to_thread(
        bakemesh, "call", f"http://127.0.0.1:{port}", "Synapse", "--axon-hotkey", ALICE.address, home=tmp_path
    )

    for (args, code, told), done in zip(cases, found, strict=True):
        assert done.returncode == code, (args, done)
        (line,) = done.stderr.decode().splitlines()
        assert line.startswith("bakemesh: "), (args, line)
        assert told in line, (args, line)
    assert gone.returncode == 5
    assert b"Service unavailable" in gone.stderr


def test_an_axon_must_have_a_hotkey_where_it_is_signed_for(tmp_path: Path) -> None:
    found = bakemesh("call", "http://127.0.0.1:9", "Synapse", home=tmp_path)
    assert found.returncode == 2
    assert b"--axon-hotkey" in found.stderr

    found = bakemesh("call", "127.0.0.1:9", "Synapse", "--axon-hotkey", ALICE.address, home=tmp_path)
    assert found.returncode == 2
    assert b"expected http://HOST:PORT" in found.stderr

    found = bakemesh("call", "http://127.0.0.1:9", "Synapse", "--profile", "btauth", home=tmp_path)
    assert found.returncode == 5


def test_a_key_file_is_made_and_shown(tmp_path: Path) -> None:
    made = bakemesh("hotkey", "new", "keys/me.json", home=tmp_path)
    shown = bakemesh("hotkey", "show", "keys/me.json", "--json", home=tmp_path)
    again = bakemesh("hotkey", "new", "keys/me.json", home=tmp_path)
    none = bakemesh("hotkey", "show", "keys/none", home=tmp_path)

    address = made.stdout.decode().strip()
    assert made.returncode == 0
    assert address.startswith("5")
    assert json.loads(shown.stdout)["address"] == address
    assert b"secret" not in shown.stdout
    assert again.returncode == 2
    assert b"never overwritten" in again.stderr
    assert none.returncode == 2
    assert b"No such file" in none.stderr
