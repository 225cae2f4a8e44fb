"""Bodies of strangers: what is wrong with them is told, and costs no more than what is right."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import pytest
from pydantic import BaseModel, Field

from bakemesh.protocol.axon import DeserializationFailed, Synapse
from bakemesh.protocol.axon.reading import read

MANY = 20_000


class Inner(BaseModel):
    numbers: list[int] = Field(default_factory=list)


class Many(Synapse):
    required_hash_fields: ClassVar = ("numbers",)
    numbers: list[int] = Field(default_factory=list)
    either: list[str] | list[int] | None = None
    names: dict[str, list[int]] = Field(default_factory=dict)
    pairs: tuple[int, ...] = ()
    some: set[int] = Field(default_factory=set)
    inner: Inner | None = None
    inners: list[Inner] = Field(default_factory=list)
    default: dict[str, str] = Field({"type": "list"})  # a value that looks like a part of a schema


WRONG = b"[" + b"null," * MANY + b"1]"


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b'{"numbers":%b}' % WRONG, "numbers.0"),
        (b'{"either":%b}' % WRONG, r"either\.list"),
        (b'{"names":{"a":%b}}' % WRONG, "names.a.0"),
        (b'{"names":{%b}}' % b",".join(b'"%d":1' % number for number in range(MANY)), "names.0"),
        (b'{"pairs":%b}' % WRONG, "pairs.0"),
        (b'{"some":%b}' % WRONG, "some.0"),
        (b'{"inner":{"numbers":%b}}' % WRONG, "inner.numbers.0"),
        (b'{"inners":[%b{"numbers":%b}]}' % (b"{}," * MANY, WRONG), f"inners.{MANY}.numbers.0"),
    ],
)
def test_of_many_wrong_values_the_first_ends_it(body: bytes, where: str) -> None:
    with pytest.raises(DeserializationFailed, match=where) as failed:
        Many.from_body(body)
    assert str(MANY) not in failed.value.reason.replace(f"inners.{MANY}", "")


def test_what_is_right_is_read_as_the_class_does() -> None:
    body = Many(numbers=[1], either=[2], names={"a": [3]}, pairs=(4,), some={5}, inner=Inner()).body()
    assert Many.from_body(body) == Many.model_validate_json(body)
    assert Many.from_body(b"{}").default == {"type": "list"}
    assert read(list[int], b"[1,2]") == [1, 2]
    with pytest.raises(DeserializationFailed, match="0: "):
        read(list[int], WRONG)


class Words(Synapse):
    """Fields that are called as the parts of a schema are."""

    type: list[int] = Field(default_factory=list)
    metadata: list[int] = Field(default_factory=list)
    config: list[int] = Field(default_factory=list)
    fields: list[int] = Field(default_factory=list)


@pytest.mark.parametrize("name", ["type", "metadata", "config", "fields"])
def test_a_field_may_be_called_as_a_part_of_a_schema(name: str) -> None:
    assert getattr(Words.from_body(b'{"%b":[1]}' % name.encode()), name) == [1]
    with pytest.raises(DeserializationFailed, match=rf"{name}\.0: [^(]+$"):
        Words.from_body(b'{"%b":%b}' % (name.encode(), WRONG))


class Cat(BaseModel):
    kind: Literal["function"]
    lives: list[int]


class Dog(BaseModel):
    kind: Literal["default"]


class Pets(Synapse):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")] | None = None


def test_a_tag_may_be_called_as_a_part_of_a_schema() -> None:
    found = Pets.from_body(b'{"pet":{"kind":"function","lives":[9]}}')
    assert found.pet == Cat(kind="function", lives=[9])
    with pytest.raises(DeserializationFailed, match=r"pet\.function\.lives\.0: [^(]+$"):
        Pets.from_body(b'{"pet":{"kind":"function","lives":%b}}' % WRONG)


class Tree(Synapse):
    children: list[Tree] = Field(default_factory=list)
    later: Later | None = None


class Later(BaseModel):
    number: int


def test_a_class_that_names_itself_and_one_that_came_later() -> None:
    found = Tree.from_body(b'{"children":[{"children":[{}]}],"later":{"number":1}}')
    assert len(found.children[0].children) == 1
    assert found.later == Later(number=1)
    with pytest.raises(DeserializationFailed, match=r"children\.0\.children"):
        Tree.from_body(b'{"children":[{"children":%b}]}' % WRONG)
