"""The real SDK's body hashes: each golden vector as a class of ours, sent and received."""

from __future__ import annotations

import datetime
import warnings
from enum import Enum
from typing import Any, ClassVar, Optional, Union

import pytest
from pydantic import BaseModel, Field, create_model

from bakemesh.protocol.axon import Profile, Synapse, sha3_256_hex
from bakemesh.protocol.axon.hashing import EMPTY, fields_hash
from bakemesh.protocol.axon.synapse import shape
from support.recorded import recorded

SINGLE = recorded("golden_body_hash_single_field")["vectors"]
MULTI = {row["case"]: row for row in recorded("golden_body_hash_multi")}


class Nested(BaseModel):
    role: str
    content: str


class Color(Enum):
    RED = "red"


# What a class declares and a caller gives, by the case's name.
VALUES: dict[str, tuple[Any, Any]] = {
    "str_plain": (str, "hello"),
    "str_empty": (str, ""),
    "str_unicode": (str, 'héllo 🌍 \n"q"'),
    "int": (int, 42),
    "int_neg_big": (int, -(2**70)),
    "bool_true": (bool, True),
    "bool_false": (bool, False),
    "none": (Optional[str], None),  # noqa: UP045 - as real classes are written
    "float_half": (float, 0.5),
    "float_one": (float, 1.0),
    "float_1e16": (float, 1e16),
    "float_1e15": (float, 1e15),
    "float_0.1+0.2": (float, 0.1 + 0.2),
    "float_1e-5": (float, 1e-5),
    "float_nan": (float, float("nan")),
    "float_inf": (float, float("inf")),
    "float_field_given_int": (float, 3),
    "list_str": (list[str], ["a", "b'c", 'd"e']),
    "list_mixed": (list, [1, 2.0, None, True, "x", [], {}]),
    "tuple_int": (tuple[int, int], (1, 2)),
    "dict": (dict, {"b": 1, "a": {"z": None, "y": [1.5]}}),
    "dict_unicode": (dict, {"k": "é🌍\n"}),
    "dict_int_keys": (dict[int, str], {1: "a"}),
    "nested_model": (Nested, Nested(role="user", content="hi")),
    "list_nested": (
        list[Nested],
        [Nested(role="user", content="hi"), Nested(role="assistant", content="it's")],
    ),
    "bytes": (bytes, b"ab\x00"),
    "enum": (Color, Color.RED),
    "datetime": (datetime.datetime, datetime.datetime(2024, 1, 2, 3, 4, 5)),
}
MISMATCH = (
    "float_field_given_int"  # an int in a float's place: Python writes 3, whoever read it from JSON 3.0
)


class OneField(Synapse):
    required_hash_fields: ClassVar[tuple[str, ...]] = ("value",)


def of_case(name: str) -> type[Synapse]:
    annotation, value = VALUES[name]
    return create_model("Case", __base__=OneField, value=(annotation, value))


def test_the_table_has_every_vector() -> None:
    assert sorted(VALUES) == sorted(row["case"] for row in SINGLE)
    assert len(SINGLE) + len(MULTI) >= 32


@pytest.mark.parametrize("row", SINGLE, ids=[row["case"] for row in SINGLE])
def test_a_sender_hashes_as_the_real_one(row: dict[str, Any]) -> None:
    synapse = of_case(row["case"])()
    assert str(synapse.model_dump()["value"]) == row["python_str_hashed"]
    assert sha3_256_hex(row["python_str_hashed"].encode()) == row["field_hash"]
    assert synapse.body_hash(Profile.SDK) == synapse.declared_hash() == row["body_hash"]


@pytest.mark.parametrize("row", [row for row in SINGLE if not row["json_body_value"].startswith("<")])
def test_a_receiver_of_the_real_ones_body_hashes_the_same(row: dict[str, Any]) -> None:
    body = f'{{"name":"Case","value":{row["json_body_value"]}}}'.encode()
    received = of_case(row["case"]).from_body(body)
    assert (received.declared_hash() == row["body_hash"]) is (row["case"] != MISMATCH)


@pytest.mark.parametrize("row", [row for row in SINGLE if row["case"] != MISMATCH])
def test_our_own_body_carries_every_value_so_that_its_hash_survives(row: dict[str, Any]) -> None:
    """Enums, bytes, times and NaN too, which the real SDK cannot send, or sends and cannot read."""
    cls = of_case(row["case"])
    assert cls.from_body(cls().body()).declared_hash() == row["body_hash"]


class Two(Synapse):
    text: str = "a"
    n: int = 1
    x: str = "not hashed"


class TextThenN(Two):
    required_hash_fields: ClassVar[tuple[str, ...]] = ("text", "n")


class NThenText(Two):
    required_hash_fields: ClassVar[tuple[str, ...]] = ("n", "text")


def test_the_declared_order_counts() -> None:
    assert TextThenN().declared_hash() == MULTI["order_text_n"]["body_hash"]
    assert NThenText().declared_hash() == MULTI["order_n_text"]["body_hash"]


def test_the_older_way_of_declaring_as_a_field_takes_the_order_of_the_fields() -> None:
    row = MULTI["deprecated_instance_field_order_ignored"]

    with pytest.warns(UserWarning, match="shadows an attribute"):  # as with the real SDK

        class Old(Synapse):
            required_hash_fields: list[str] = Field(default=row["declared"])  # type: ignore[misc]
            text: str = "a"
            n: int = 1
            x: str = ""

    assert shape(Old).hashed == tuple(row["effective"])
    assert Old().declared_hash() == row["body_hash"]
    assert list(Old().model_dump()) == row["model_dump_keys"]
    assert list(Old.from_body(Old().body()).model_dump()) == row["model_dump_keys"]


def test_the_older_way_by_a_factory() -> None:
    with pytest.warns(UserWarning, match="shadows an attribute"):

        class Old(Synapse):
            required_hash_fields: list[str] = Field(default_factory=lambda: ["text"])  # type: ignore[misc]
            text: str = "a"
            n: int = 1

    assert shape(Old).hashed == ("text",)


def test_no_fields_is_the_constant() -> None:
    assert Synapse().declared_hash() == EMPTY == MULTI["no_fields"]["body_hash"] == fields_hash(())


def test_what_json_cannot_carry_changes_the_hash() -> None:
    """A key that is a number and a tuple, in an untyped dict: the real axon answers 500, ours 400."""
    row = MULTI["json_roundtrip_breaks_hash"]

    class Untyped(OneField):
        value: dict = {1: "a", "t": (1, 2)}  # type: ignore[type-arg]  # noqa: RUF012

    assert Untyped().declared_hash() == row["sender_hash"]
    assert Untyped.from_body(Untyped().body()).declared_hash() == row["receiver_hash"]


class Kind(str, Enum):  # noqa: UP042 - as real classes are written
    A = "a"
    B = "b"


class Rich(Synapse):
    """What the classes of real subnets use."""

    required_hash_fields: ClassVar[tuple[str, ...]] = ("model", "kind", "rows", "union", "fixed", "maybe")

    model: Nested = Nested(role="user", content="hi")
    kind: Kind = Kind.A
    rows: list[dict[str, Any]] = [{"a": 1}]  # noqa: RUF012
    union: Union[int, str, list[str]] = "u"  # noqa: UP007
    fixed: str = Field(default="f", frozen=True)
    maybe: Optional[Nested] = None  # noqa: UP045


@pytest.mark.parametrize("union", [1, "u", ["a"]])
def test_rich_fields_survive_the_round_trip(union: int | str | list[str]) -> None:
    synapse = Rich(union=union, maybe=Nested(role="r", content="c"), fixed="other")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = Rich.from_body(synapse.body())
        assert again == synapse
        assert again.declared_hash() == synapse.declared_hash()
    assert again.fixed == "other"
    again.set_total_size(5)  # a frozen field does not make the envelope so
    assert again.total_size == 5


@pytest.mark.parametrize("name", Rich.required_hash_fields)
def test_every_declared_field_changes_the_hash(name: str) -> None:
    other = Rich(
        model=Nested(role="x", content="hi"),
        kind=Kind.B,
        rows=[],
        union=2,
        fixed="g",
        maybe=Nested(role="", content=""),
    )
    plain = {each: getattr(Rich(), each) for each in Rich.required_hash_fields}
    assert Rich(**plain | {name: getattr(other, name)}).declared_hash() != Rich().declared_hash()


def test_a_declared_field_must_be_one_and_must_travel() -> None:
    class Absent(Synapse):
        required_hash_fields: ClassVar[tuple[str, ...]] = ("nothing",)

    class Kept(Synapse):
        required_hash_fields: ClassVar[tuple[str, ...]] = ("secret",)
        secret: str = Field(default="", exclude=True)

    with pytest.raises(TypeError, match=r"Absent\.required_hash_fields names 'nothing', which is no field"):
        Absent().declared_hash()
    with pytest.raises(TypeError, match=r"names 'secret', which is excluded from the body"):
        Kept().declared_hash()
