"""The short way reads and writes what the long way does, or nothing at all."""

from __future__ import annotations

from typing import Annotated, Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ConfigDict, Field, field_validator

from bakemesh.protocol import envelope, message
from bakemesh.protocol.builder.messages import (
    BakeControl,
    BakeData,
    BakeStatus,
    BakeSuccess,
    RecipeMessage,
    Result,
)
from bakemesh.protocol.errors import MessageError
from bakemesh.protocol.message import GenericMessage, Received
from bakemesh.protocol.scalars import describe

pytest.importorskip("msgspec")

ID = bytes(range(16))
WHO = {"Supervisor": "s", "Recipe": "r", "RecipeID": "s-r-1", "Node": "n", "NodeID": "n1"}
STATUS = WHO | {"kind": "step", "serial": 3, "pct": -1, "summary": "ä", "final": 0, "stepindex": 0}
DATA = WHO | {
    "seq": 1,
    "stepindex": 0,
    "attempt": 1,
    "stream": "stdout",
    "data": b"\x00\xff",
    "finalchunk": 1,
    "partial": 0,
    "aborted": 0,
}
SUCCESS = STATUS | {"final": 1, "outcome": "success", "failedsteps": [1, 2], "lastseq": 9}
SAMPLES = {BakeStatus.TYPE: STATUS, BakeData.TYPE: DATA, BakeSuccess.TYPE: SUCCESS}

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.text(max_size=4),
    st.binary(max_size=4),
    st.datetimes().map(lambda when: msgpack.Timestamp.from_unix(when.second)),
    st.just(msgpack.ExtType(5, b"x")),
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(scalars, inner, max_size=3)
)


def sealed(kind: Any, entries: Any, **other: Any) -> bytes:
    fields = {"v": 1, "type": kind, "id": ID, "created": 7, "from": "b@n", "entries": entries} | other
    return bytes(msgpack.packb({key: value for key, value in fields.items() if value is not ...}))


def long_way(payload: bytes) -> Received | None:
    try:
        return message.opened(envelope.fields_of(payload))
    except MessageError:
        return None


def short_way(payload: bytes) -> Received | None:
    """What it reads when it is told the right type; told another one, it must read nothing."""
    found = [read for kind in (*message.types(), "") if (read := message.quickly(payload, kind)) is not None]
    assert len(found) <= 1
    return found[0] if found else None


def same(payload: bytes) -> bool:
    """Whether the short way read it; it must then be what the long way reads."""
    quickly = short_way(payload)
    if quickly is None:
        return False
    slowly = long_way(payload)
    assert slowly == quickly
    assert slowly is not None
    assert type(slowly.message) is type(quickly.message)
    assert slowly.message.model_fields_set == quickly.message.model_fields_set
    kinds = [{name: type(value) for name, value in each.message} for each in (slowly, quickly)]
    assert kinds[0] == kinds[1]
    return True


@pytest.mark.parametrize("kind", SAMPLES)
def test_plain_messages_are_read_quickly(kind: str) -> None:
    assert same(sealed(kind, SAMPLES[kind]))


@pytest.mark.parametrize(
    "payload",
    [
        sealed(BakeStatus.TYPE, STATUS | {"more": 1}),
        sealed(BakeStatus.TYPE, {key.upper(): value for key, value in STATUS.items()}),
        sealed(BakeStatus.TYPE, STATUS | {"pct": 101}),
        sealed(BakeStatus.TYPE, STATUS, v=2),
        sealed(BakeStatus.TYPE, STATUS, v=True),
        sealed(BakeStatus.TYPE, STATUS, id=b"short"),
        sealed(BakeStatus.TYPE, STATUS, created=-1),
        sealed(BakeStatus.TYPE, STATUS, created=2**63),
        sealed(BakeStatus.TYPE, [STATUS]),
        sealed(BakeStatus.TYPE, STATUS) + b"\x00",
        sealed(BakeStatus.TYPE, STATUS)[:-1],
        sealed("", STATUS),
        sealed("Nobody.Knows", STATUS),
        sealed(RecipeMessage.TYPE, WHO | {"RecipeSpec": "<recipe/>"}),
        sealed(Result.TYPE, {"verb": "Recipe", "accepted": 1, "code": "ok", "summary": ""}),
        b"\x91" * 5000,
        b"",
    ],
)
def test_whatever_is_not_plainly_right_goes_the_long_way(payload: bytes) -> None:
    assert short_way(payload) is None


@given(
    st.sampled_from(sorted(SAMPLES)),
    st.dictionaries(st.sampled_from([*SUCCESS, *DATA, "x"]), values, max_size=3),
)
def test_odd_values_are_read_alike(kind: str, odd: dict[str, Any]) -> None:
    same(sealed(kind, SAMPLES[kind] | odd))


@given(
    st.sampled_from(sorted(SAMPLES)),
    st.dictionaries(
        st.sampled_from(["v", "type", "id", "created", "from", "entries", "more"]), values, max_size=2
    ),
)
def test_odd_envelopes_are_read_alike(kind: str, odd: dict[str, Any]) -> None:
    same(sealed(kind, **{"entries": SAMPLES[kind], **odd}))


@given(
    st.sampled_from(sorted(SAMPLES)),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3),
)
@settings(max_examples=500)
def test_flipped_bytes_are_read_alike(kind: str, flips: list[tuple[int, int]]) -> None:
    payload = bytearray(sealed(kind, SAMPLES[kind]))
    for at, byte in flips:
        payload[at % len(payload)] = byte
    same(bytes(payload))


def test_the_same_key_twice_is_read_alike() -> None:
    twice = b"\x87" + sealed(BakeStatus.TYPE, STATUS)[1:] + msgpack.packb("from") + msgpack.packb("c@n")
    assert same(twice)


def quickly_written(made: message.Message) -> bytes:
    return message.encode(made, id=ID, created=2**62, sender="b@n")


def slowly_written(made: message.Message) -> bytes:
    return envelope.pack(made.TYPE, ID, 2**62, "b@n", made.entries())


@given(
    summary=st.text(max_size=120),
    serial=st.integers(1, 2**63 - 1),
    pct=st.integers(-1, 100),
    exitcode=st.none() | st.integers(-(2**31), 2**31),
    failed=st.none() | st.lists(st.integers(0, 2**40), max_size=20),
)
def test_the_same_bytes_are_written(
    summary: str, serial: int, pct: int, exitcode: int | None, failed: list[int] | None
) -> None:
    who = {"supervisor": "s", "recipe": "r", "recipe_id": "s-r-1", "node": "n", "node_id": "n1"}
    made = BakeSuccess(
        **who, kind="outcome", serial=serial, pct=pct, summary=summary, exitcode=exitcode, failedsteps=failed
    )
    assert quickly_written(made) == slowly_written(made)


@pytest.mark.parametrize("more", range(10))
def test_the_same_bytes_are_written_of_few_entries_and_of_many(more: int) -> None:
    ints = ("stepindex", "attempt", "exitcode", "lastseq", "ctrlseq")
    optional = dict.fromkeys(ints, 1) | dict.fromkeys(("outcome", "step", "verb", "issuedby", "request"), "x")
    made = BakeStatus.from_entries(STATUS | dict(list(optional.items())[:more]))
    assert quickly_written(made) == slowly_written(made)


@given(st.binary(max_size=300))
def test_the_same_output_is_written(data: bytes) -> None:
    made = BakeData.from_entries(DATA | {"data": data})
    assert quickly_written(made) == slowly_written(made)


def test_what_cannot_be_written_is_told_by_the_long_way() -> None:
    made = BakeStatus.from_entries(STATUS | {"exitcode": 2**70})
    with pytest.raises(MessageError, match="msgpack"):
        quickly_written(made)


@pytest.mark.parametrize("without", ["final", "summary"])
def test_what_is_absent_is_read_alike(without: str) -> None:
    same(sealed(BakeStatus.TYPE, {key: value for key, value in STATUS.items() if key != without}))


def test_what_was_given_is_known_when_it_is_asked_for() -> None:
    read = message.quickly(sealed(BakeStatus.TYPE, STATUS), BakeStatus.TYPE)
    assert read is not None
    copied = read.message.model_copy(update={"pct": 5})
    assert copied.model_fields_set == read.message.model_fields_set
    assert set(read.message.model_dump(exclude_unset=True)) == read.message.model_fields_set
    with pytest.raises(AttributeError):
        read.message.nothing  # type: ignore[attr-defined] # noqa: B018


def plain(cls: type[message.Message]) -> bool:
    return describe(cls, message.Message) is not None


def test_which_types_are_plain() -> None:
    assert plain(BakeStatus)
    assert plain(BakeSuccess)
    assert plain(BakeData)
    assert plain(BakeControl)
    assert not plain(RecipeMessage)  # params
    assert not plain(Result)
    assert not GenericMessage.TYPE  # never registered, so never read this way


class Checked(message.Message):
    size: int

    @field_validator("size")
    @classmethod
    def even(cls, size: int) -> int:
        if size % 2:
            raise ValueError("must be even")
        return size


class Configured(message.Message):
    model_config = ConfigDict(str_max_length=3)
    text: str


class Bounded(message.Message):
    size: Annotated[int, Field(multiple_of=3)]


class Worded(message.Message):
    word: Annotated[str, Field(pattern="a+")]


class Made(message.Message):
    names: list[str] = Field(default_factory=list)


class Nullable(message.Message):
    size: int | None


class Aware(message.Message):
    size: int

    def model_post_init(self, _context: Any) -> None:
        assert self.size


class Nested(message.Message):
    rows: list[list[int]]


@pytest.mark.parametrize("cls", [Checked, Configured, Bounded, Worded, Made, Nullable, Aware, Nested])
def test_what_only_pydantic_does_is_left_to_it(cls: type[message.Message]) -> None:
    assert not plain(cls)
