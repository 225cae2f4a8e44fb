"""docs/axon.md, on models of the mesh: its program runs as written, its table of errors is the code's."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from bakemesh.axon.failures import TABLE
from bakemesh.axon.mesh import LISTED_S, PATIENCE_S
from bakemesh.axon.openai import requests
from bakemesh.protocol.axon import TextPrompt
from support.openaiedge import edge

GUIDE = (Path(__file__).parents[3] / "docs" / "axon.md").read_text("utf-8")
PART = GUIDE.partition("\n## OpenAI-style routes")[2].partition("\n## ")[0]
MODELS = {"minilm": {"kind": "embed", "dims": 384}, "small": {"kind": "generate"}}


async def test_the_program(tmp_path: Path) -> None:
    found = re.search(r"^```python\n(from openai.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    assert found
    async with edge(tmp_path, served=MODELS) as at:
        program = found[1].replace("http://127.0.0.1:8091", at.gateway.url).replace("bm-…", at.key)
        assert program.count(at.key) == 1
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        said, _ = await process.communicate()
        assert process.returncode == 0, said.decode()
        first, second, third = said.decode().split("\n")
        assert first == "2 384 10"
        assert second.strip() == third.strip() == " ".join(str(each) for each in b"What is baked?")


def test_the_table_of_errors_has_every_code_with_its_status() -> None:
    rows = re.findall(r"^\| (\d{3}) \| ([^|]*) \|", PART, re.MULTILINE)
    told = {code: int(status) for status, codes in rows for code in re.findall(r"`(\w+)`", codes)}
    from bakemesh.protocol.axon.verdicts import HTTP_STATUS

    for code, row in TABLE.items():
        assert told[row.code or code] == (row.status or HTTP_STATUS[row.verdict]), code


def test_the_numbers_are_the_code_s() -> None:
    text = " ".join(GUIDE.split())
    assert f"at most {LISTED_S:g} seconds old" in text
    assert PATIENCE_S == 1
    assert "asked for a second at most" in text
    assert f"up to {requests.MOST_INPUTS}" in text
    assert f"up to {requests.MOST_PROMPTS}" in text
    assert f"`max_tokens` ({requests.COMPLETION_TOKENS})" in text
    assert f"`max_tokens` ({requests.CHAT_TOKENS})" in text
    fields = TextPrompt.model_fields
    assert f"`max_tokens` ({fields['max_tokens'].default})" in text
    assert f"`temperature` ({fields['temperature'].default})" in text


def test_every_field_that_is_not_supported_is_told() -> None:
    kinds = (requests.EmbeddingRequest, requests.CompletionRequest, requests.ChatRequest)
    for kind in kinds:
        for name in kind.FIXED - {
            "tool_choice", "function_call", "top_logprobs", "modalities", "audio", "web_search_options",
            "presence_penalty", "frequency_penalty",
        }:  # fmt: skip
            assert f"`{name}`" in PART, name
