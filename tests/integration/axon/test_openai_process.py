"""`bakemesh axon` as a process, on a server with identities: its key has the role `gateway`, and API keys are
made and revoked while it runs."""

from __future__ import annotations

import json
from pathlib import Path

import openai
from openai import AsyncOpenAI

from bakemesh.protocol.axon import Embedding
from support.axon import served_by_process, signed
from support.commandline import bakemesh
from support.nats import Guarded, guarded
from support.openaiedge import MODELS
from support.synapse import synapse
from support.waiting import eventually


def key_file(mesh: Guarded, party: str, folder: Path) -> str:
    path = folder / f"{party}.nk"
    path.touch(mode=0o600)
    path.write_text(mesh.keys[party].seed)
    return str(path)


async def test_a_process_with_the_role_gateway_serves_the_mesh(tmp_path: Path) -> None:
    keys = tmp_path / "state" / "axon" / "api-keys"
    async with guarded(tmp_path, gateways=("axon",), inference={"synapse": "alpha"}) as mesh:
        creds = {party: key_file(mesh, party, tmp_path) for party in ("axon", "synapse")}
        async with (
            synapse(tmp_path, mesh.server.url, MODELS, "--creds", creds["synapse"]),
            served_by_process(tmp_path, "--nats", mesh.server.url, "--creds", creds["axon"]) as at,
        ):

            async def ready() -> bool:
                async with at.session.get(f"{at.url}/readyz") as answer:
                    return answer.status == 200

            await eventually(ready, what="the gateway hears of the module")
            answer = await at.send(signed(Embedding(texts=["a"]), to=at.hotkey))
            assert answer.status == 200, answer.body
            async with at.session.get(f"{at.url}/openapi.json") as found:
                assert {"/Embedding", "/v1/embeddings"} <= set((await found.json())["paths"])

            async def refused() -> bool:
                try:
                    await client.models.list()
                except openai.AuthenticationError:
                    return True
                return False

            made = bakemesh("axon-key", "new", "app", "--json", home=tmp_path)
            assert made.returncode == 0, made.stderr
            told = json.loads(made.stdout)
            assert (told["name"], told["file"]) == ("app", str(keys))
            async with AsyncOpenAI(base_url=f"{at.url}/v1", api_key=told["key"], max_retries=0) as client:

                async def known() -> bool:
                    return not await refused()

                await eventually(known, what="the new key is taken")
                said = await client.chat.completions.create(
                    model="chat", messages=[{"role": "user", "content": "ab"}]
                )
                assert said.choices[0].message.content == "97 98 "
                assert bakemesh("axon-key", "revoke", "app", home=tmp_path).returncode == 0
                await eventually(refused, what="the revoked key is refused")
            assert await at.stop() == 0


def test_the_verb(tmp_path: Path) -> None:
    def run(*words: str) -> tuple[int, str, str]:
        done = bakemesh("axon-key", *words, "--file", str(tmp_path / "keys"), home=tmp_path)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    assert run("list")[1].startswith("no API key in")
    code, secret, note = run("new", "app")
    assert code == 0
    assert secret.startswith("bm-")
    assert "kept nowhere" in note
    assert secret.strip() not in (tmp_path / "keys").read_text()
    assert "app" in run("list")[1]
    for words, said in (
        (("new", "app"), "there already"),
        (("revoke", "other"), "there are: app"),
        (("new",), "expected one NAME"),
        (("list", "x"), "expected nothing more"),
        (("new", "a b"), "expected 1 to 64"),
    ):
        code, _, told = run(*words)
        assert (code, said in told) == (2, True), (words, told)
    (tmp_path / "keys").chmod(0o644)
    assert "chmod 600" in run("list")[2]
