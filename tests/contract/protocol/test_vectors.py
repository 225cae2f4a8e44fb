"""The code against the golden vectors, which any other implementation can run too."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from bakemesh.protocol import identity, message, subjects
from bakemesh.protocol.admit import Delivery, Refusal, admit
from bakemesh.protocol.builder.lifecycle import TERMINAL, Event, LifecycleError, Phase, step
from bakemesh.protocol.builder.streams import DataGuard, StatusGuard
from bakemesh.protocol.errors import IntegrityError, MessageError, NameRefused, SubjectError, VersionRefused
from support.vectors import named, unshown, vectors

MESSAGES = [*vectors("messages"), *vectors("inference-messages")]
BY_NAME = {row["name"]: row for row in MESSAGES}
SUBJECTS = vectors("subjects")
RECIPE_IDS = vectors("recipe-ids")
LIFECYCLE = vectors("lifecycle")


@pytest.mark.parametrize("row", **named(MESSAGES))
def test_a_message_reads_as_shown_and_is_written_in_the_same_bytes(row: dict[str, Any]) -> None:
    raw, decoded = bytes.fromhex(row["hex"]), unshown(row["decoded"])
    assert msgpack.unpackb(raw) == decoded
    received = message.decode(raw)
    assert received[:4] == (decoded["type"], decoded["id"], decoded["created"], decoded["from"])
    assert received.message.entries() == decoded["entries"]
    again = message.encode(
        received.message, id=received.id, created=received.created, sender=received.sender, type=received.type
    )
    assert again == raw


@pytest.mark.parametrize("row", **named(MESSAGES))
def test_a_message_can_be_made_from_its_entries_alone(row: dict[str, Any]) -> None:
    decoded = unshown(row["decoded"])
    made = message.class_of(decoded["type"])(**decoded["entries"])
    fields = {"id": decoded["id"], "created": decoded["created"], "sender": decoded["from"]}
    assert message.encode(made, **fields, type=decoded["type"]) == bytes.fromhex(row["hex"])


def test_every_registered_type_has_a_vector() -> None:
    shown = {row["decoded"]["type"] for row in MESSAGES}
    assert set(message.types()) <= shown


@pytest.mark.parametrize("row", **named(vectors("messages-tolerated")))
def test_what_is_read_tolerantly(row: dict[str, Any]) -> None:
    received = message.decode(bytes.fromhex(row["hex"]))
    assert received.type == row["type"]
    entries = received.message.entries()
    assert entries == unshown(row["entries"])
    assert not any(type(value) is bool for value in entries.values())


@pytest.mark.parametrize("row", **named([*vectors("messages-refused"), *vectors("inference-refused")]))
def test_what_is_refused(row: dict[str, Any]) -> None:
    with pytest.raises(MessageError) as caught:
        message.decode(bytes.fromhex(row["hex"]))
    assert caught.value.reason
    if "type" in row:
        assert caught.value.type == row["type"]
        assert caught.value.entry == row["entry"]
    assert (type(caught.value) is VersionRefused) == ("version" in row["name"])


@pytest.mark.parametrize("row", **named(SUBJECTS["good"], "subject"))
def test_a_subject_is_built_and_parsed(row: dict[str, Any]) -> None:
    parts = (row["mesh"], row["node_id"], row["party"], row["key"], row["type"])
    assert subjects.build(*parts) == row["subject"]
    assert subjects.parse(row["subject"]) == subjects.Subject(*parts)
    assert str(subjects.Subject(*parts)) == row["subject"]


@pytest.mark.parametrize("row", **named(SUBJECTS["bad"], "subject"))
def test_a_bad_subject_is_refused_with_the_reason(row: dict[str, Any]) -> None:
    with pytest.raises(SubjectError) as caught:
        subjects.parse(row["subject"])
    assert row["why"] in str(caught.value)


@pytest.mark.parametrize("row", **named(RECIPE_IDS["good"], "recipe_id"))
def test_a_recipe_id_is_made_and_taken(row: dict[str, Any]) -> None:
    assert identity.recipe_id(row["supervisor"], row["recipe"], row["n"]) == row["recipe_id"]
    identity.check(identity.Identity(row["supervisor"], row["recipe"], row["recipe_id"], "n", "n"))


@pytest.mark.parametrize("row", **named(RECIPE_IDS["bad"], "why"))
def test_a_bad_recipe_id_is_refused(row: dict[str, Any]) -> None:
    with pytest.raises(NameRefused):
        identity.check(identity.Identity(row["supervisor"], row["recipe"], row["recipe_id"], "n", "n"))


@pytest.mark.parametrize("row", **named(vectors("data-guard")))
def test_the_data_guard(row: dict[str, Any]) -> None:
    guard = DataGuard(row.get("last", 0))
    seen = []
    for seq in row["seqs"]:
        try:
            seen.append(str(guard.accept(seq).value))
        except IntegrityError:
            seen.append("integrity")
    assert seen == row["verdicts"]


@pytest.mark.parametrize("row", **named(vectors("status-guard")))
def test_the_status_guard(row: dict[str, Any]) -> None:
    guard = StatusGuard()
    assert [guard.accept(serial).value for serial in row["serials"]] == row["verdicts"]
    assert (guard.highest, guard.complete) == (row["highest"], row["complete"])
    assert guard.missing == (row["complete"] < row["highest"])


@pytest.mark.parametrize("row", **named(LIFECYCLE["traces"]))
def test_a_lifecycle_trace(row: dict[str, Any]) -> None:
    phase, seen = Phase.QUEUED, []
    for event in row["events"]:
        phase = step(phase, Event(event))
        seen.append(str(phase))
    assert seen == row["phases"]


@pytest.mark.parametrize("row", **named(LIFECYCLE["refused"]))
def test_a_refused_event(row: dict[str, Any]) -> None:
    phase = Phase.QUEUED
    for event in row["events"]:
        phase = step(phase, Event(event))
    with pytest.raises(LifecycleError):
        step(phase, Event(row["event"]))


def test_the_traces_end_in_every_terminal() -> None:
    ends = {Phase(row["phases"][-1]) for row in LIFECYCLE["traces"]}
    assert ends >= TERMINAL


@pytest.mark.parametrize("row", **named(vectors("admit")))
def test_admission(row: dict[str, Any]) -> None:
    raw = bytes.fromhex(row["hex"] if "hex" in row else BY_NAME[row["message"]]["hex"])
    outcome = admit(row["subject"], row.get("reply"), row.get("headers"), raw)
    if row["taken"]:
        assert isinstance(outcome, Delivery)
        assert outcome.reply == row["answer_to"]
        assert outcome.payload == raw
        assert str(outcome.subject) == row["subject"]
        assert outcome.received.type == outcome.subject.type
    else:
        assert isinstance(outcome, Refusal)
        assert (outcome.reason, outcome.answer) == (row["reason"], row["answered"])
        assert outcome.detail
        assert outcome.reply == (row.get("reply") if row["answered"] else None)


def test_names_of_the_vectors_are_unique() -> None:
    for file in ("messages", "messages-tolerated", "messages-refused", "admit"):
        rows = [row["name"] for row in vectors(file)]
        assert len(rows) == len(set(rows)), file
    assert len(BY_NAME) == len(MESSAGES)
