"""Messages: any bytes, any entries; what is read is what was written."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from bakemesh.protocol import envelope, message
from bakemesh.protocol.builder.messages import (
    SUMMARY_BYTES,
    BakeControl,
    BakeData,
    BakeStatus,
    Pause,
    RecipeMessage,
    Result,
    clip,
)
from bakemesh.protocol.errors import MessageError, VersionRefused
from bakemesh.protocol.message import GenericMessage

IDENTITY: dict[str, Any] = {
    "supervisor": "s",
    "recipe": "r",
    "recipe_id": "s-r-1",
    "node": "n",
    "node_id": "n",
}
WIRE = {"Supervisor": "s", "Recipe": "r", "RecipeID": "s-r-1", "Node": "n", "NodeID": "n"}
ID = bytes(range(16))

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20)
)
keys = (
    st.text(max_size=8)
    | st.integers(-5, 5)
    | st.sampled_from(["Supervisor", "serial", "pct", "data", "final"])
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


def packed(type_: object, entries: object, /, **other: object) -> bytes:
    fields = {"v": 1, "type": type_, "id": ID, "created": 1, "from": "x@n", "entries": entries}
    return bytes(msgpack.packb(fields | other))


def reason(raw: bytes) -> str | None:
    """Why it is refused, None where it is taken. Whatever else is raised fails the test."""
    try:
        message.decode(raw)
    except MessageError as error:
        return str(error)
    return None


def encode(made: message.Message, type_: str | None = None) -> bytes:
    return message.encode(made, id=ID, created=1, sender="x@n", type=type_)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(raw: bytes) -> None:
    assert reason(raw) != ""


@given(values)
def test_no_msgpack_raises_anything_else(value: Any) -> None:
    assert reason(msgpack.packb(value)) != ""


@given(
    st.sampled_from(sorted(message.types())) | st.text(max_size=10), st.dictionaries(keys, values, max_size=8)
)
def test_no_entries_raise_anything_else(type_: str, entries: dict[Any, Any]) -> None:
    for whole in (entries, {**WIRE, **entries}):
        raw = packed(type_, whole)
        if reason(raw) is None:
            received = message.decode(raw)
            assert received.type == type_
            assert set(map(str.lower, received.message.entries())) <= set(map(str.lower, whole)) | {
                key.lower() for key in type(received.message)._canonical
            }


@given(st.dictionaries(st.sampled_from(["v", "type", "id", "created", "from", "entries", "x"]), values))
def test_no_envelope_raises_anything_else(fields: dict[str, Any]) -> None:
    with pytest.raises(MessageError):
        message.decode(msgpack.packb({**fields, "id": "no bytes"}))


@pytest.mark.parametrize("deep", [b"\x91" * 100_000 + b"\xc0", b"\x81\xa1v" * 1000 + b"\x01"])
def test_deep_nesting_is_refused(deep: bytes) -> None:
    with pytest.raises(MessageError):
        message.decode(deep)


@pytest.mark.parametrize("field", ["v", "type", "id", "created", "from", "entries"])
def test_nesting_in_the_envelope_is_refused_shortly(field: str) -> None:
    nested: Any = "x"
    for _ in range(400):
        nested = [nested]
    with pytest.raises(MessageError) as caught:
        message.decode(packed("t", {}, **{field: nested}))
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(("key", "type_"), [("n", Pause.TYPE), ("params", RecipeMessage.TYPE)])
def test_a_map_of_many_bad_keys_gives_one_error(key: str, type_: str) -> None:
    many: dict[Any, int] = dict.fromkeys(range(50_000), 0)
    entries: dict[Any, Any] = {**WIRE, **many} if key == "n" else {**WIRE, "RecipeSpec": "<x/>", key: many}
    with pytest.raises(MessageError) as caught:
        message.decode(packed(type_, entries))
    assert "text" in str(caught.value)
    assert len(str(caught.value)) < 200


@given(
    st.integers(1, 2**63 - 1),
    st.integers(-1, 100),
    st.text(max_size=SUMMARY_BYTES // 4),
    st.booleans(),
    st.none() | st.text(max_size=10),
    st.none() | st.integers(-255, 255),
)
def test_a_status_comes_back_as_it_was(
    serial: int, pct: int, summary: str, final: bool, outcome: str | None, exitcode: int | None
) -> None:
    made = BakeStatus(
        **IDENTITY,
        kind="step",
        serial=serial,
        pct=pct,
        summary=summary,
        final=final,
        outcome=outcome,
        exitcode=exitcode,
    )
    received = message.decode(encode(made))
    assert received.message == made
    assert received[:4] == (BakeStatus.TYPE, ID, 1, "x@n")
    entries = msgpack.unpackb(encode(made))["entries"]
    assert entries["final"] in (0, 1)
    assert type(entries["final"]) is int
    assert ("outcome" in entries, "exitcode" in entries) == (outcome is not None, exitcode is not None)


def test_with_other_values_it_is_the_same_message_but_for_these() -> None:
    made = BakeStatus(**IDENTITY, kind="step", serial=1, pct=2, summary="on")
    unknown = message.decode(
        envelope.pack(BakeStatus.TYPE, ID, 1, "x@n", {**made.entries(), "New": 7})
    ).message
    for one in (made, unknown):
        again = one.with_values(serial=2, exitcode=3)
        assert again == one.model_copy(update={"serial": 2, "exitcode": 3})
        assert again.entries() == {**one.entries(), "serial": 2, "exitcode": 3}
        assert one.serial == 1


@given(st.binary(max_size=2000))
def test_data_is_byte_exact(data: bytes) -> None:
    made = BakeData(**IDENTITY, seq=1, stepindex=0, attempt=1, stream="stdout", data=data)
    got = message.decode(encode(made)).message
    assert isinstance(got, BakeData)
    assert got.data == data


@given(st.data())
def test_keys_match_in_any_case(data: st.DataObject) -> None:
    made = Pause(**IDENTITY, ctrlseq=3, issuedby="s")
    swapped = {}
    for key, value in made.entries().items():
        letters = [data.draw(st.sampled_from((c.lower(), c.upper()))) for c in key]
        swapped["".join(letters)] = value
    assert message.decode(packed(Pause.TYPE, swapped)).message == made


@given(st.dictionaries(st.text(min_size=1, max_size=6), st.integers(0, 9), max_size=5))
def test_unknown_entries_are_kept(unknown: dict[str, int]) -> None:
    folded = {key.lower() for key in unknown}
    clash = folded & {key.lower() for key in (*WIRE, "ctrlseq", "issuedby")}
    entries = {**WIRE, "ctrlseq": 1, "issuedby": "s", **unknown}
    if clash or len(folded) < len(unknown):
        return
    received = message.decode(packed(Pause.TYPE, entries))
    assert received.message.entries() == entries
    assert message.decode(encode(received.message)).message == received.message


def test_many_unknown_entries_do_not_hide_a_known_one() -> None:
    many = {f"x{n}": n for n in range(1000)}
    received = message.decode(packed(Pause.TYPE, {**many, **WIRE, "CTRLSEQ": 1, "issuedby": "s"}))
    assert isinstance(received.message, Pause)
    assert received.message.ctrlseq == 1
    assert received.message.entries()["x999"] == 999


def test_a_fields_python_name_is_no_entry_key() -> None:
    entries = {key: value for key, value in WIRE.items() if key != "RecipeID"}
    with pytest.raises(MessageError) as caught:
        message.decode(packed(Pause.TYPE, {**entries, "recipe_id": "s-r-1", "ctrlseq": 1, "issuedby": "s"}))
    assert caught.value.entry == "RecipeID"


def test_a_recipe_without_an_identity_entry_reads_as_empty() -> None:
    entries = {"RecipeSpec": "<recipe/>", "supervisor": "s"}
    got = message.decode(packed(RecipeMessage.TYPE, entries)).message
    assert isinstance(got, RecipeMessage)
    assert got.identity.key == ("s", "")
    assert (got.recipe, got.node, got.node_id) == ("", "", "")


def test_an_unknown_type_is_generic_and_goes_on_as_it_came() -> None:
    raw = packed("Robot.Count", {"Count": 3, "model_config": 1})
    received = message.decode(raw)
    assert type(received.message) is GenericMessage
    assert received.message.entries() == {"Count": 3, "model_config": 1}
    assert encode(received.message, "Robot.Count") == raw


def test_an_unknown_verb_is_a_control() -> None:
    received = message.decode(
        packed("Psyclone.Builder.BakeControl.Explode", {**WIRE, "ctrlseq": 1, "issuedby": "s"})
    )
    assert type(received.message) is BakeControl


def test_another_version_is_refused_with_both_named() -> None:
    with pytest.raises(VersionRefused) as caught:
        message.decode(packed("t", {}, v=7))
    assert "7" in str(caught.value)
    assert "1" in str(caught.value)


@pytest.mark.parametrize("value", [object(), 2**64, "\ud800"])
def test_what_msgpack_cannot_carry_is_refused_and_the_next_message_is_whole(value: object) -> None:
    with pytest.raises(MessageError):
        envelope.pack("t", ID, 1, "x@n", {"a": "b" * 100, "bad": value})
    assert envelope.unpack(envelope.pack("t", ID, 1, "x@n", {"a": 1})).entries == {"a": 1}


@pytest.mark.parametrize("final", [2, -1, 1.0, "1", "yes", None])
def test_a_flag_is_zero_or_one(final: Any) -> None:
    with pytest.raises(ValidationError):
        BakeStatus(**IDENTITY, kind="step", serial=1, pct=0, summary="", final=final)


@pytest.mark.parametrize("final", [0, 1, False, True])
def test_a_flag_reads_as_bool(final: Any) -> None:
    made = BakeStatus(**IDENTITY, kind="step", serial=1, pct=0, summary="", final=final)
    assert made.final is bool(final)


def test_problems_are_bounded() -> None:
    with pytest.raises(ValidationError):
        Result(verb="Recipe", accepted=False, code="invalid_recipe", summary="", problems=[{}] * 101)


@given(st.text(max_size=700), st.integers(10, 600))
def test_clip_keeps_within_bytes_and_cuts_between_characters(text: str, limit: int) -> None:
    cut = clip(text, limit)
    assert len(cut.encode()) <= limit
    whole = text.encode("utf-8", "replace").decode()
    assert cut == whole or (cut.endswith("…") and whole.startswith(cut[:-1]))


def test_a_clipped_summary_is_taken() -> None:
    made = BakeStatus(**IDENTITY, kind="step", serial=1, pct=0, summary=clip("ä" * 1000))
    assert len(made.summary.encode()) <= SUMMARY_BYTES
    with pytest.raises(ValidationError):
        BakeStatus(**IDENTITY, kind="step", serial=1, pct=0, summary="ä" * 257)


def test_messages_are_frozen() -> None:
    made = Pause(**IDENTITY, ctrlseq=1, issuedby="s")
    with pytest.raises(ValidationError):
        made.ctrlseq = 2  # type: ignore[misc]


def test_a_type_is_registered_once() -> None:
    with pytest.raises(ValueError, match="taken"):
        message.registered(Pause)
