"""`bakemesh ingest, models, embed, rerank, generate, chat`: as processes, against a stranger's module."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.commandline import PROGRAM, bakemesh, environment
from support.inference import vectors_of
from support.nats import server
from support.stranger_module import Stranger, stranger
from support.waiting import eventually


@dataclass
class Ended:
    code: int | None
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


class Here:
    """A module and the command line."""

    def __init__(self, url: str, home: Path, modules: list[Stranger]) -> None:
        self.url, self.home, self.modules = url, home, modules
        self.module = modules[0]

    async def start(self, *args: str, **streams: Any) -> asyncio.subprocess.Process:
        pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
        return await asyncio.create_subprocess_exec(
            *(*PROGRAM, *args),
            **{**pipes, "stderr": asyncio.subprocess.PIPE, **streams},
            env=environment(self.home, BAKEMESH_NATS=self.url),
            cwd=self.home,
        )

    async def __call__(self, *args: str, stdin: bytes = b"") -> Ended:
        process = await self.start(*args)
        async with asyncio.timeout(60):
            out, err = await process.communicate(stdin)
        return Ended(process.returncode, out.decode(), err.decode())


@asynccontextmanager
async def here(tmp_path: Path, *more: str) -> AsyncIterator[Here]:
    async with server(tmp_path) as nats, stranger(nats.url, "alpha") as module:
        modules = [module]
        if more:
            async with stranger(nats.url, more[0]) as second:
                yield Here(nats.url, tmp_path, [module, second])
            return
        yield Here(nats.url, tmp_path, modules)


async def test_embed_takes_arguments_files_and_stdin_and_gives_lines_json_and_npy(tmp_path: Path) -> None:
    async with here(tmp_path) as run:
        done = await run("embed", "--model", "mini", "one two", "three")
        assert (done.code, done.err) == (0, "")
        rows = np.loadtxt(io.StringIO(done.out), dtype=np.float32)
        assert (rows == vectors_of(["one two", "three"])).all(), "every digit that a float32 has"
        (tmp_path / "a.txt").write_text("é 東京\r\n\nlast", encoding="utf-8-sig")
        done = await run(
            "embed", "--model", "mini", "--file", "a.txt", "--file", "-", "--json", stdin=b"x\ny\n"
        )
        texts = ["é 東京", "", "last", "x", "y"]
        assert (np.array(done.document.pop("vectors"), np.float32) == vectors_of(texts)).all()
        assert done.document | {"vectors": 0} == {
            "model": "mini",
            "count": 5,
            "dims": 8,
            "tokens": 15,
            "vectors": 0,
        }
        flags = ("--class", "bulk", "--priority", "3", "--deadline", "9", "--raw", "--truncate")
        done = await run("embed", "--model", "mini", "--out", "v.npy", *flags, stdin=b"x\ny\n")
        assert (done.code, done.out) == (0, "")
        assert "2 rows of 8 numbers in v.npy" in done.err
        found = np.load(tmp_path / "v.npy")
        assert found.dtype == np.float32
        assert (found == vectors_of(["x", "y"])).all()
        said = run.module.asked[-1].entries
        assert (said["class"], said["priority"], said["normalize"], said["truncate"]) == ("bulk", 3, 0, 1)
        assert 0 < said["deadlinems"] <= 9000


async def test_rerank_shows_the_best_first(tmp_path: Path) -> None:
    async with here(tmp_path) as run:
        done = await run("rerank", "--model", "ranker", "a b", "c", "b a", "a")
        lines = [line.split(maxsplit=2) for line in done.out.splitlines()]
        assert lines == [
            ["SCORE", "LINE", "DOCUMENT"],
            ["2.0", "2", "b a"],
            ["1.0", "3", "a"],
            ["0.0", "1", "c"],
        ]
        done = await run("rerank", "--model", "ranker", "--top", "1", "--json", "a b", stdin=b"c\na\n")
        assert done.document["results"] == [{"index": 1, "score": 1.0, "document": "a"}]


async def test_generate_shows_the_text_as_it_is_made(tmp_path: Path) -> None:
    async with here(tmp_path) as run:
        done = await run("generate", "--model", "echo", "one", "two")
        assert (done.code, done.out, done.err) == (0, "one two\n", "")
        done = await run("generate", "--model", "echo", "--max-tokens", "1", stdin=b"one two")
        assert (done.out, done.err) == ("one\n", "ended after 1 tokens; --max-tokens allows more\n")
        (tmp_path / "s.json").write_text('{"type": "object"}')
        flags = (
            "--temperature",
            "0.5",
            "--seed",
            "7",
            "--stop",
            "x",
            "--stop",
            "y",
            "--json-schema",
            "s.json",
        )
        done = await run("generate", "--model", "echo", "--json", *flags, "a b")
        assert done.events == [
            {"event": "token", "index": 0, "text": "a"},
            {"event": "token", "index": 1, "text": " b"},
            {
                "event": "text",
                "text": "a b",
                "finishreason": "stop",
                "nprompt": 2,
                "ngen": 2,
                "node": "alpha",
            },
        ]
        said = run.module.asked[-1].entries
        assert (said["temperature"], said["seed"], said["stop"]) == (0.5, 7, ["x", "y"])
        assert said["jsonschema"] == '{"type": "object"}'


async def test_ctrl_c_cancels_the_request_and_is_exit_code_3(tmp_path: Path) -> None:
    async with here(tmp_path) as run:
        run.module.faults.hold_after = 1
        process = await run.start("generate", "--model", "echo", "one two three")
        assert process.stdout is not None
        assert await process.stdout.readexactly(3) == b"one"
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(30):
            _, err = await process.communicate()
        assert (process.returncode, err) == (3, b"bakemesh: cancelled\n")
        await eventually(lambda: run.module.cancelled == [run.module.asked[0].id])


async def test_chat_keeps_the_turns(tmp_path: Path) -> None:
    async with here(tmp_path) as run:
        done = await run("chat", "--model", "echo", "--system", "be", stdin=b"hi\n\nyou\n")
        assert (done.code, done.out) == (0, "be hi\nbe hi be hi you\n")
        roles = [turn["role"] for turn in run.module.asked[-1].entries["messages"]]
        assert roles == ["system", "user", "assistant", "user"]
        done = await run("chat", "--model", "echo", "--json", "just", "this")
        assert [each["text"] for each in done.events] == ["just", " this", "just this"]
        assert done.events[-1]["event"] == "turn"


async def test_a_person_may_stop_an_answer_and_go_on(tmp_path: Path) -> None:
    async with here(tmp_path) as run:
        run.module.faults.hold_after = 1
        ours, theirs = pty.openpty()
        process = await run.start(
            "chat", "--model", "echo", stdin=theirs, stdout=theirs, start_new_session=True
        )
        os.close(theirs)
        os.set_blocking(ours, False)
        seen = b""

        def shows(text: bytes) -> bool:
            nonlocal seen
            with suppress(BlockingIOError):
                seen += os.read(ours, 4096)
            return text in seen

        try:
            await eventually(lambda: shows(b"> "), what="a prompt")
            os.write(ours, b"one two\n")
            await eventually(lambda: shows(b"one two\r\none"), what="the first token")
            run.module.faults.hold_after = None
            process.send_signal(signal.SIGINT)
            await eventually(lambda: run.module.cancelled, what="a Cancel")
            run.module.gate.set()
            seen = b""
            os.write(ours, b"go\n")
            await eventually(lambda: shows(b"one two one go"), what="the second answer")
            os.write(ours, b"\x04")
            async with asyncio.timeout(30):
                assert await process.wait() == 0
        finally:
            os.close(ours)
            if process.returncode is None:
                process.kill()
                await process.wait()


async def test_models_and_ingest(tmp_path: Path) -> None:
    async with here(tmp_path, "beta") as run:
        done = await run("models")
        rows = [line.split() for line in done.out.splitlines()]
        assert rows[0][:4] == ["MODEL", "NODE", "KIND", "STATE"]
        assert rows[1] == ["echo", "alpha", "generate", "loaded", "8", "512", "f16", "1000", "B", "0" * 12]
        assert len(rows) == 7
        assert {each["node"] for each in (await run("models", "beta", "--json")).document} == {"beta"}
        assert (await run("models", "probe", "mini", "--node", "beta")).out == "mini: ok\n"
        assert (await run("models", "probe", "nope", "--node", "beta")).code == 1
        done = await run("ingest", "m.gguf", "--alias", "new")
        assert (done.code, done.out) == (2, "")
        assert "name one of them: alpha, beta" in done.err
        done = await run("ingest", "m.gguf", "--alias", "new", "--node", "beta", "--set", "ctx_size=64")
        assert done.out == f"new on beta: sha256:{'1' * 64}\n"
        assert done.err == "hash …\n"
        said = run.modules[1].asked[-1].entries
        assert said["path"] == str(tmp_path / "m.gguf")
        assert (said["weights"], said["config"]) == ("asis", {"ctx_size": "64"})
        done = await run("ingest", "m.gguf", "--alias", "new", "--node", "beta", "--json")
        assert [each["event"] for each in done.events] == ["progress"] * 3 + ["ingested"]
        assert done.events[1] == {"event": "progress", "stage": "hash", "done": 50, "total": 100}
        assert (await run("ingest", "m.bad", "--alias", "new", "--node", "beta")).code == 2


async def test_errors_are_one_line_and_an_exit_code(tmp_path: Path) -> None:
    async with here(tmp_path) as run:

        async def says(code: int, text: str, *args: str, stdin: bytes = b"") -> None:
            done = await run(*args, stdin=stdin)
            assert (done.code, done.err.count("\n")) == (code, 1), done
            assert done.err.startswith("bakemesh: ")
            assert text in done.err
            assert "defect" not in done.err

        await says(2, "no node has a model 'nope'", "embed", "--model", "nope", "x")
        await says(2, "--model", "embed", "x")
        await says(2, "ends in .npy", "embed", "--model", "mini", "--out", "x.txt", "x")
        await says(2, "stdin:2: not UTF-8", "embed", "--model", "mini", stdin=b"a\n\xff\n")
        await says(2, "/nowhere", "embed", "--model", "mini", "--file", "/nowhere")
        await says(2, "above 0", "embed", "--model", "mini", "--deadline", "0", "x")
        await says(2, "maxtokens", "generate", "--model", "echo", "--max-tokens", "0", "x")
        await says(2, "expected KEY=VALUE", "ingest", "x", "--alias", "a", "--set", "x")
        await says(2, "expected one ALIAS", "models", "probe")
        await says(5, "nobody answers there", "embed", "--model", "mini", "--node", "gone", "x")
        run.module.faults.always = {
            "code": "queue_full",
            "class": "transient",
            "safe_to_retry_same_request": 1,
            "message": "12 requests wait",
            "retry_after_ms": 99_000,
        }
        await says(1, "12 requests wait", "embed", "--model", "mini", "x")
        run.module.faults.always = None
        run.module.faults.skip = 0
        await says(4, "rows did not come", "embed", "--model", "mini", "x", "y", *["z"] * 100)
        run.module.faults.deaf = True
        await says(1, "--deadline", "embed", "--model", "mini", "--deadline", "0.3", "x")
        await run.module.stop()
        await says(5, "no synapse module is heard of", "embed", "--model", "mini", "x")


@pytest.mark.parametrize("verb", [["models"], ["embed", "--model", "m", "x"], ["chat", "--model", "m", "x"]])
def test_no_server_is_exit_code_5(tmp_path: Path, verb: list[str]) -> None:
    done = bakemesh(*verb, home=tmp_path, BAKEMESH_NATS="nats://127.0.0.1:1")
    assert done.returncode == 5
    assert b"nats://127.0.0.1:1" in done.stderr
    assert done.stderr.count(b"\n") == 1
