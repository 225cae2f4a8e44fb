"""protocol/axon-v1.md against the code: every header, field, verdict, type, vector and limit in it."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

from bakemesh.axon.settings import Limits
from bakemesh.protocol.axon import (
    builtin,
    claims,
    freshness,
    hashing,
    header_keys,
    keys,
    reading,
    schemas,
    signing,
    ss58,
    sse,
    synapse,
    tensor,
    terminal,
    verdicts,
)
from bakemesh.protocol.axon.profiles import Profile
from support.recorded import exchanges, recorded

ROOT = Path(__file__).parents[3]
PROTOCOL = ROOT / "protocol"
TEXT = (PROTOCOL / "axon-v1.md").read_text(encoding="utf-8")
RECORDED = (ROOT / "tests" / "contract" / "test_axon_recorded.py").read_text(encoding="utf-8")


def section(number: int) -> str:
    """The text of a numbered section."""
    found = re.search(rf"^## {number} .*?(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found.group()


def tables(number: int) -> list[list[list[str]]]:
    """The tables of a section: their rows' cells, without the heads."""
    found = re.findall(r"(?:^\|.*\n)+", section(number), re.MULTILINE)
    return [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in each.splitlines()[2:]]
        for each in found
    ]


def word(cell: str) -> str:
    """What stands between a cell's backquotes, or the cell."""
    found = re.search(r"`([^`]+)`", cell)
    return found.group(1) if found else cell


def test_headers() -> None:
    named = [word(row[0]) for row in tables(3)[0]]
    prefixes = (keys.AXON_PREFIX, keys.DENDRITE_PREFIX, keys.INPUT_OBJ_PREFIX)
    assert named == [*keys.TOP_LEVEL, *(f"{prefix}<field>" for prefix in prefixes)]


def test_the_envelope() -> None:
    said = re.search(r"\*\*envelope\*\* \(`([^`]+)`\)", section(1))
    assert said is not None
    assert set(re.split(r",\s+", said.group(1))) == synapse.ENVELOPE - {"required_hash_fields"}


KINDS = {"u16": terminal.U16, "u32": terminal.U32, "u64": terminal.U64}


def test_terminal_info() -> None:
    said = {word(row[0]): row[1] for row in tables(3)[1]}
    assert list(said) == list(terminal.TerminalInfo.model_fields)
    assert set(said) == {value for name, value in vars(header_keys).items() if name.isupper()}
    for name, field in terminal.TerminalInfo.model_fields.items():
        kind = said[name].split(",")[0]
        if kind in KINDS:
            with pytest.raises(ValueError, match="less than or equal"):
                terminal.TerminalInfo(**{name: KINDS[kind] + 1})
        else:
            assert {"text": str, "f64": float}[kind] in get_args(field.annotation)


def test_numbers_of_headers() -> None:
    assert "at most 20°" in section(3)
    assert terminal.unsigned("0" * 19 + "1", 1) == 1
    with pytest.raises(ValueError, match="no whole number"):
        terminal.unsigned("0" * 20 + "1", 1)
    assert "at most 64 characters" in section(3)
    assert terminal.number("1" * 64)
    with pytest.raises(ValueError, match="no number"):
        terminal.number("1" * 65)
    assert f"at most {verdicts.LONGEST_REASON}\ncharacters" in section(3)


def test_profiles() -> None:
    head = next(line for line in section(4).splitlines() if line.startswith("|"))
    assert [word(cell) for cell in head.strip("|").split("|")[1:]] == list(Profile)
    assert all(len(row) == 4 for row in tables(4)[0])


def test_verification_and_freshness() -> None:
    text = section(5)
    fields_ = "{nonce}.{dendrite_hotkey}.{axon_hotkey}.{uuid}.{body_hash}"
    assert f"    {fields_}\n" in text
    values: dict[str, Any] = {
        "nonce": 1,
        "dendrite_hotkey": "d",
        "axon_hotkey": "a",
        "uuid": "u",
        "body_hash": "h",
    }
    assert signing.signing_message(**values) == fields_.format(**values)
    answer = "{nonce}.{dendrite_hotkey}.{axon_hotkey}.{uuid}"
    assert f"`{answer}`" in text
    values.pop("body_hash")
    assert signing.response_message(**values) == answer.format(**values)
    assert f"from {freshness.BACK_MS} ms back to {freshness.AHEAD_MS} ms ahead" in text
    assert freshness.in_ns(10**15) == 10**15
    assert freshness.in_ns(10**15 - 1) > 10**15
    assert "Below 10^15 it is\nmilliseconds" in text
    assert f"A uuid has 1 to {claims.LONGEST_UUID}" in text
    assert f"prefix {ss58.PREFIX}" in text


def test_hashes_and_bodies() -> None:
    text = section(6)
    assert f"`{hashing.EMPTY}`" in text
    assert f"of more than {reading.MOST_TOLD} wrong fields" in text


def test_btauth() -> None:
    said = [word(row[0]) for row in tables(7)[0]]
    assert said == [
        value for name, value in vars(keys).items() if name.startswith("BTAUTH_") and name[7:] != "PREFIX"
    ]
    payload = re.search(r"((?:^    .+\n)+)", section(7), re.MULTILINE)
    assert payload is not None
    lines = payload.group(1).split("\n    ")
    made = signing.btauth_payload("post", "/x", b"", 1, "s", None).split("\n")
    assert len(lines) == len(made)
    assert [line.strip() for line in lines[:2]] == made[:2]
    assert made[-1] == signing.NOBODY == "-"


def test_tensors() -> None:
    said = {word(row[0]): (word(row[1]), int(row[2])) for row in tables(8)[0]}
    assert said == tensor.DTYPES
    assert f"more than {tensor.MOST_DIMENSIONS} dimensions" in section(8)


def test_verdicts() -> None:
    said = {word(row[0]): int(row[1]) for row in tables(9)[0]}
    assert said == {str(verdict): status for verdict, status in verdicts.HTTP_STATUS.items()}


def test_the_verdicts_of_the_chart_are_verdicts() -> None:
    chart = section(2).split("Every request ends")[0]
    named = set(re.findall(r"[a-z]+_[a-z]+|malformed|unsigned|stale|replayed|failed", chart)) | {"ok"}
    assert named <= set(verdicts.Verdict)


def test_recorded_requests_end_as_the_table_says() -> None:
    said = {word(row[0]): (int(row[1]), int(row[2]), row[3]) for row in tables(9)[1]}
    assert sorted(said) == exchanges()
    for name, (real, ours, why) in said.items():
        assert real == recorded(name)["response"]["status"]
        assert why or real == ours
    tested = {name: int(status) for name, status in re.findall(r'"(\w+)": Ours\((\d+)', RECORDED)}
    assert tested == {name: ours for name, (_, ours, _) in said.items()}


def test_every_other_difference_says_who_does_what() -> None:
    for row in tables(9)[2]:
        assert len(row) == 5
        assert all(row[place] for place in (0, 3))
        assert row[1] or row[2]


def test_built_in_synapses() -> None:
    said = {word(row[0]): row for row in tables(10)[0]}
    assert list(said) == [cls.route() for cls in builtin.BUILTIN]
    for cls in builtin.BUILTIN:
        _, inputs, output = said[cls.route()]
        names = re.findall(r"`([a-z_]+)` = (\S+?)(?:,|$| )", inputs)
        assert [name for name, _ in names] == list(cls.required_hash_fields)
        for name, default in names:
            value = cls.model_fields[name].get_default(call_default_factory=True)
            assert default == json.dumps(value)
        assert cls.Output is not None
        assert [word(output)] == list(cls.Output.model_fields)
    assert (
        f"A text has at most {builtin.LONGEST_TEXT} characters, a list {builtin.MOST_TEXTS} of them"
        in section(10)
    )
    assert "`max_tokens` is 1 to 1048576, `temperature` 0 to 2" in section(10)
    with pytest.raises(ValueError, match="less than or equal to 1048576"):
        builtin.TextPrompt(max_tokens=1048577)


def test_streams() -> None:
    text = section(11)
    assert f"a line of {sse.LARGEST}\nbytes" in text
    assert f"`data: {sse.DONE}` ends it" in text
    assert f"`event: {sse.ERROR}`" in text


def test_limits() -> None:
    said = {word(row[0]): float(row[1]) for row in tables(12)[0]}
    assert said == {each.name: float(getattr(Limits(), each.name)) for each in fields(Limits)}
    named = {word(row[2]) for row in tables(12)[0] if row[2].startswith("`")}
    assert named <= set(verdicts.Verdict)


def test_every_vector_file_that_the_text_names_exists_and_the_other_way() -> None:
    named = set(re.findall(r"`(axon-[a-z]+\.json)`", TEXT))
    assert named == {each.name for each in (PROTOCOL / "vectors").glob("axon-*.json")}
    assert set(schemas.files()) == {each.name for each in (PROTOCOL / "schemas").glob("axon.*.json")}


def test_the_contents_name_every_section_and_the_code_names_no_other() -> None:
    titles = re.findall(r"^## (\d+ .+)$", TEXT, re.MULTILINE)
    assert [re.sub(r"\s+", " ", each) for each in re.findall(r"\[(\d+ [^\]]+)\]", TEXT)] == titles
    for place in ("protocol", "libs", "services"):
        for path in (ROOT / place).rglob("*.py"):
            for number in re.findall(r"axon-v1\.md, sections? (\d+)", path.read_text(encoding="utf-8")):
                assert 1 <= int(number) <= len(titles), path
