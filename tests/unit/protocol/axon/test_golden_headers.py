"""The real SDK's headers, both ways; what is left different, and why."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from bakemesh.protocol.axon import InvalidHeaderValue, Profile, Synapse, keys
from bakemesh.protocol.axon.synapse import shape
from support.recorded import recorded
from support.recordedclasses import Echo, Required

GOLDEN = recorded("golden_headers")
VECTORS = GOLDEN["vectors"]
IDS = [row["case"] for row in VECTORS]
PLAIN = {"name": "Echo", "timeout": "12.0"}


CLASSES: dict[str, type[Synapse]] = {"Synapse": Synapse, "Echo": Echo, "Required": Required}


@pytest.mark.parametrize("row", VECTORS, ids=IDS)
def test_headers_of_a_real_body_are_the_real_ones(row: dict[str, Any]) -> None:
    """`header_size` is not: the real one is `sys.getsizeof` of a dict, a size of its memory in one build of
    Python. Ours counts keys and values, as the document says; nobody checks either.
    """
    synapse = CLASSES[row["class"]].from_body(row["json_body_as_aiohttp_sends_it"].encode())
    ours, real = synapse.to_headers(Profile.SDK), row["to_headers"]
    assert list(ours) == list(real)
    assert {**ours, "header_size": ""} == {**real, "header_size": ""}
    assert int(ours["header_size"]) == sum(
        len(key) + len(value) for key, value in ours.items() if key != "header_size"
    )


def test_the_total_size_of_a_new_synapse_is_that_of_its_body() -> None:
    """The real one is `sys.getsizeof` of everything in it."""
    synapse = Echo(text="hello")
    assert synapse.to_headers(Profile.SDK)["total_size"] == str(len(synapse.body()))


@pytest.mark.parametrize("row", VECTORS, ids=IDS)
def test_real_headers_are_read_as_the_real_one_reads_them(row: dict[str, Any]) -> None:
    synapse = CLASSES[row["class"]].from_headers(row["to_headers"])
    assert synapse.model_dump() == row["from_headers_model_dump"]


@pytest.mark.parametrize("row", VECTORS, ids=IDS)
def test_a_real_body_is_read_and_written_without_loss(row: dict[str, Any]) -> None:
    synapse = CLASSES[row["class"]].from_body(row["json_body_as_aiohttp_sends_it"].encode())
    assert synapse.model_dump() == row["model_dump"]
    assert json.loads(synapse.body()) == json.loads(row["json_body_as_aiohttp_sends_it"])
    assert list(json.loads(synapse.body())) == list(row["model_dump"])


# (headers, ours); where the real one does otherwise, a word on it
EDGES: list[tuple[dict[str, str], Any, str]] = [
    ({"timeout": "abc"}, InvalidHeaderValue, ""),
    ({"bt_header_axon_port": "x"}, {"axon": {}}, "refused; the document says None"),
    ({"total_size": "1.5"}, InvalidHeaderValue, ""),
    ({"bt_header_input_obj_text": "!!notb64"}, {"text": ""}, ""),
    ({"bt_header_input_obj_text": "e2JhZA=="}, {"text": ""}, ""),
    ({"bt_header_axon_unknown": "1"}, {"axon": {}}, ""),
    ({"prefix_bt_header_axon_ip": "1.2.3.4"}, {"axon": {}}, "read: it looks for the prefix anywhere"),
    ({"bt_header_input_obj_name": "IkV2aWwi"}, {"name": "Echo"}, ""),
    ({"name": "Other"}, {"name": "Other"}, "the class's name; the document reads the header"),
    ({"bt_header_input_obj_text": "InJlYWwgdmFsdWUi"}, {"text": "real value"}, ""),
]


def test_every_recorded_edge_is_in_the_table() -> None:
    assert [headers for headers, _, _ in EDGES] == [row["headers"] for row in GOLDEN["from_headers_edge"]]


@pytest.mark.parametrize(("number", "edge"), list(enumerate(EDGES)))
def test_edges_of_from_headers(number: int, edge: tuple[dict[str, str], Any, str]) -> None:
    headers, wanted, otherwise = edge
    real = GOLDEN["from_headers_edge"][number]
    if isinstance(wanted, type):
        with pytest.raises(wanted):
            Echo.from_headers(PLAIN | headers)
        assert real["result"] != "ok"
        return
    found = Echo.from_headers(PLAIN | headers)
    shown = {key: found.model_dump(exclude_none=True)[key] for key in wanted}
    assert shown == wanted
    same = real["result"] == "ok" and all(real["model"][key] == value for key, value in wanted.items())
    assert same is not bool(otherwise)


@pytest.mark.parametrize(
    ("kind", "dummy"), [(str, ""), (int, 0), (float, 0.0), (bool, False), (list, []), (dict, {})]
)
def test_the_dummy_of_each_type_is_the_recorded_one(kind: type, dummy: object) -> None:
    class Needs(Synapse):
        __annotations__ = {"field": kind}

    (text,) = shape(Needs).dummies.values()
    assert text == GOLDEN["dummy_by_type"][kind.__name__]
    assert json.loads(base64.b64decode(text)) == dummy
    assert Needs.from_headers({"name": "Needs", "timeout": "1"} | shape(Needs).dummies).field == dummy  # type: ignore[attr-defined]


def test_a_field_with_capitals_is_found_behind_a_server_that_lowers_them() -> None:
    class Needs(Synapse):
        maxTokens: int  # noqa: N815

    headers = {key.lower(): value for key, value in Needs(maxTokens=7).to_headers(Profile.SDK).items()}
    assert Needs.from_headers(headers).maxTokens == 0


def test_an_envelope_field_never_comes_from_an_input_object() -> None:
    value = base64.b64encode(b'"5Evil"').decode()
    headers = PLAIN | {keys.INPUT_OBJ_PREFIX + name: value for name in ("name", "computed_body_hash", "axon")}
    found = Echo.from_headers(headers)
    assert (found.name, found.computed_body_hash, found.axon.hotkey) == ("Echo", "", None)
