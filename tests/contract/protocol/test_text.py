"""The texts against the code: tables, bytes, and the requests of the worked example, sent for real."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bakemesh.bus import Bus
from bakemesh.bus.sizes import Sizes
from bakemesh.bus.streams import ensure_hub, ensure_node_streams
from bakemesh.protocol import message
from bakemesh.protocol.builder import codes
from bakemesh.protocol.builder.lifecycle import Phase
from bakemesh.protocol.builder.messages import OUTCOME_TYPES, BakeStatus
from bakemesh.protocol.builder.node import ComponentVerb, NodeVerb
from bakemesh.protocol.builder.spec.grammar import PSYSPEC_MODULE
from bakemesh.protocol.identity import ENTRIES
from bakemesh.protocol.inference import errors
from bakemesh.protocol.inference.errors import PASSING, PERMANENT, TRANSIENT
from bakemesh.protocol.psyspec import load_psyspec
from bakemesh.protocol.psyspec.grammar import CHILDREN
from bakemesh.protocol.subjects import COMPONENT_CONTROL, CONTROL, NODE_CONTROL, SYNAPSE, TABLE, WORKER
from support.nats import guarded
from support.vectors import ROOT, vectors
from support.waiting import eventually

TEXT = (ROOT / "protocol" / "builder-v1.md").read_text(encoding="utf-8")
INFERENCE = (ROOT / "protocol" / "inference-v1.md").read_text(encoding="utf-8")
BYTES = {row["name"]: bytes.fromhex(row["hex"]) for row in vectors("messages")}


def section(title: str, text: str | None = None) -> str:
    """From a heading to the next one of its level or a higher one."""
    if text is None:
        text = INFERENCE if title.startswith(("Psyclone.Synapse.", "Psyclone.Worker.")) else TEXT
    found = re.search(
        rf"^(#+) {re.escape(title)}(?: .*?|,.*?)?$(.*?)(?=^#{{1,3}} |\Z)", text, re.MULTILINE | re.DOTALL
    )
    assert found, title
    return found.group(2)


def entries_of(title: str, text: str | None = None) -> dict[str, bool]:
    """The entries in a section's table, and whether each is required (written in bold)."""
    out: dict[str, bool] = {}
    for line in section(title, text).splitlines():
        cell = re.match(r"\| (.*?) \|", line)
        if cell and "`" in cell.group(1):
            for bold, key in re.findall(r"(\*\*)?`([A-Za-z_]+)`", cell.group(1)):
                out[key] = bool(bold)
    return out


def title_of(type_: str) -> str:
    for family in (CONTROL, COMPONENT_CONTROL, NODE_CONTROL):
        if type_.startswith(f"{family}."):
            return f"{family}.&lt;Verb&gt;"
    return "Psyclone.Builder.Bake.Success" if type_ in OUTCOME_TYPES else type_


@pytest.mark.parametrize("type_", sorted(message.types()))
def test_the_text_lists_exactly_the_entries_of_each_message(type_: str) -> None:
    cls = message.types()[type_]
    wanted = {field.alias or name: field.is_required() for name, field in cls.model_fields.items()}
    shown = entries_of(title_of(type_))
    for family, heading in (("request for work", "5 Requests"), ("request about a model", "7 Lanes")):
        if f"he entries of every {family}" in section(title_of(type_)):
            shown |= entries_of(heading, INFERENCE)
    if "Identity" in section(title_of(type_)):
        shown |= dict.fromkeys(ENTRIES, True)
    if type_ in OUTCOME_TYPES:
        shown |= entries_of(BakeStatus.TYPE) | dict.fromkeys(ENTRIES, True)
    assert shown == wanted


def test_the_text_lists_every_code_in_the_order_of_testing() -> None:
    text = section("8 Typed results")
    for name, wanted in (
        ("Recipe", codes.RECIPE_CODES),
        ("control", codes.CONTROL_CODES),
        ("BakeData", codes.PUSH_CODES),
        ("ComponentControl", codes.COMPONENT_CODES),
        ("NodeControl", codes.NODE_CODES),
        ("Report", codes.REPORT_CODES),
        ("Cohort", codes.COHORT_CODES),
        ("PsySpec", codes.PSYSPEC_CODES),
    ):
        row = re.search(rf"^\| {name} \| (.*) \|$", text, re.MULTILINE)
        assert row, name
        assert re.findall(r"`(\w+)`", row.group(1)) == [str(code) for code in wanted]
        for code in wanted:
            assert re.search(rf"^\| `{code}` \|", text, re.MULTILINE), code


def test_the_text_names_every_verb_outcome_and_phase() -> None:
    for verb in codes.Verb:
        assert f"`{verb}`" in section("10 Controls")
    for ack in codes.AckOutcome:
        assert f"`{ack}`" in section("10 Controls")
    for outcome in codes.StepOutcome:
        assert f"`{outcome}`" in section("11 The Status stream")
    for phase in Phase:
        assert str(phase) in section("9 Lifecycle")


def test_the_text_names_every_verb_of_components_and_nodes() -> None:
    for verb in ComponentVerb:
        assert re.search(rf"^\| `{verb}` \|", section("22 Components"), re.MULTILINE), verb
    for verb in NodeVerb:
        assert re.search(rf"^\| `{verb}` \|", section("19 Nodes"), re.MULTILINE), verb


def test_the_text_lists_the_subjects_of_every_type() -> None:
    rows = [line for line in section("3 Subjects").splitlines() if line.startswith("| `")]
    rows += [line for line in section("1 Subjects", INFERENCE).splitlines() if line.startswith("| `")]
    for row in TABLE:
        name = row.type.replace(".*", ".<Verb>")
        family, _, verb = row.type.rpartition(".")
        shorts = {row.type.removeprefix("Psyclone.Builder.Bake")}
        if family == SYNAPSE:
            shorts.add(f".{verb}")
        elif family == WORKER:
            shorts.add(f"{WORKER}.<Verb>")
        assert any(f"`{each}`" in line for each in {name, *shorts} for line in rows), row.type


def test_the_text_says_every_element_and_attribute_of_a_psyspec() -> None:
    text = section("23 PsySpecs")
    for element in CHILDREN.values():
        assert f"<{element.name}" in text
    for name in PSYSPEC_MODULE.attributes:
        assert re.search(rf"^\|[^|]*`{name}`[^|]*\|", text, re.MULTILINE), name
    for child in PSYSPEC_MODULE.children.values():
        row = next(line for line in text.splitlines() if line.startswith(f"| `<{child.name}"))
        for name in child.attributes:
            assert re.search(rf"\b{name}\b", row), (child.name, name)


def test_the_psyspec_in_the_text_is_one() -> None:
    block = re.search(r"```xml\n(<psySpec.*?)```", section("23 PsySpecs"), re.DOTALL)
    assert block
    source = "def crank(api): ..."
    text = re.sub(r'(<crank script="[^"]*"[^>]*)/>', rf"\1>{source}</crank>", block.group(1))
    found = load_psyspec(text.replace('<include file="site.inc"/>', ""))
    assert [entry.spec.name for entry in found.modules] == ["synapse", "counter", "legacy", "nightly"]
    assert not found.warnings


def test_the_bytes_in_the_text_are_the_golden_ones() -> None:
    block = re.search(r"```\n(86 .*?)```", section("4 Envelope"), re.DOTALL)
    assert block
    raw = ""
    for line in block.group(1).splitlines():
        raw += "".join(re.findall(r"\b[0-9a-f]{2,}\b", re.split(r"\s{2,}(?=map|bin|\"|1750)", line)[0]))
    assert bytes.fromhex(raw) == BYTES["Pause"]


@pytest.mark.parametrize("text", [TEXT, INFERENCE], ids=["builder", "inference"])
def test_every_file_and_section_that_the_text_names_exists(text: str) -> None:
    for name in re.findall(r"`(vectors/[a-z-]+\.json)`", text):
        assert (ROOT / "protocol" / name).is_file(), name
    numbers = {int(number) for number in re.findall(r"^## (\d+) ", text, re.MULTILINE)}
    assert numbers == set(range(1, max(numbers) + 1))
    assert {int(number) for number in re.findall(r"sections? (\d+)", text)} <= numbers


def test_the_text_lists_every_code_of_inference_with_its_class() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", section("4 Errors", INFERENCE), re.MULTILINE)
    assert rows == [(str(code), TRANSIENT if code in PASSING else PERMANENT) for code in errors.Code]


def operations() -> list[tuple[str, dict[str, str], bytes]]:
    """The requests of the worked example: subject, headers, payload."""
    out = []
    for block in re.findall(r"^ *```nats\n(.*?)^ *```", TEXT, re.MULTILINE | re.DOTALL):
        first, *rest = [line.strip() for line in block.strip().splitlines()]
        verb, _, subject = first.partition(" ")
        assert verb == "request"
        headers: dict[str, str] = {}
        while (
            rest
            and (header := re.match(r"([A-Za-z-]+): (.*)$", rest[0]))
            and not rest[0].startswith("vector")
        ):
            headers[header.group(1)] = header.group(2)
            rest.pop(0)
        body = "\n".join(rest).strip()
        name = body.removeprefix("vector: ")
        out.append((subject, headers, BYTES[name] if name != body else body.encode()))
    return out


async def test_the_worked_example_on_a_guarded_server(tmp_path: Path) -> None:
    """Every request is permitted to the Supervisor and understood by JetStream, in the text's order."""
    sizes = Sizes(data_bytes=64 * 2**20, hub_data_bytes=64 * 2**20)
    done = []
    async with (
        guarded(tmp_path, builders=("b1",)) as mesh,
        mesh.connect("builder-b1") as builder,
        mesh.connect("nightly") as supervisor,
    ):
        await ensure_node_streams(builder, "b1", sizes)
        await ensure_hub(builder, sizes, node_id="b1")
        bake = "psyclone.b1.nightly.nightly-index-7."
        for name in ("status: start", "data", "success"):
            type_ = next(row for row in vectors("messages") if row["name"] == name)["decoded"]["type"]
            await store(builder, bake + type_, BYTES[name])
        await store(builder, "$KV.psyclone-nodes.b1", BYTES["system status"])
        for subject, headers, payload in operations():
            answer = await ask(supervisor, subject, headers, payload)
            done.append(subject)
            if ".MSG.NEXT." in subject:
                assert answer.subject == bake + "Psyclone.Builder.Bake.Data"
                assert answer.data == BYTES["data"]
                continue
            said = json.loads(answer.data)
            if subject == "$JS.API.STREAM.MSG.GET.KV_psyclone-ids":
                assert said["error"]["err_code"] == 10037, "no counter yet"
                continue
            assert "error" not in said, (subject, said)
            if b"subjects_filter" in payload:
                found = partial(has_subjects, supervisor, subject, payload)
                await eventually(found, what=f"subjects of {subject}")
    assert len(done) == 10


async def ask(bus: Bus, subject: str, headers: dict[str, str], payload: bytes) -> Any:
    """One raw request, as any NATS client makes it: an inbox of its own, the first that comes to it."""
    inbox = f"_INBOX.{bus.settings.party}.{secrets.token_hex(8)}"
    first: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    subscription = await bus.link.listen(inbox, lambda msg: first.done() or first.set_result(msg))
    await bus.link.send(subject, payload, inbox, headers or None)
    try:
        return await asyncio.wait_for(first, 10)
    finally:
        await bus.link.unlisten(subscription)


async def has_subjects(bus: Bus, subject: str, payload: bytes) -> bool:
    """Whether a subject query finds anything; the hub's stream is a moment behind."""
    said = json.loads((await ask(bus, subject, {}, payload)).data)
    return bool(said["state"].get("subjects"))


async def store(bus: Bus, subject: str, payload: bytes) -> None:
    said = json.loads((await ask(bus, subject, {}, payload)).data)
    assert "error" not in said, (subject, said)
