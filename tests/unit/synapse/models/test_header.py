"""Headers of GGUF files, sound and hostile: read, or refused with the place; no huge count is believed."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakemesh.synapse.models.header import HeaderBroken, read
from support import models

STRING, ARRAY = 8, 9


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def file(keys: bytes = b"", count: int = 0, tensors: bytes = b"", tensor_count: int = 0) -> bytes:
    whole = b"GGUF" + struct.pack("<IQQ", 3, tensor_count, count) + keys + tensors
    return whole + b"\0" * (-len(whole) % 32)


def key(name: bytes, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return models.bert(tmp_path_factory.mktemp("sound") / "bert.gguf").read_bytes()


def test_it_says_what_the_gguf_package_says(tmp_path: Path) -> None:
    for make in (models.bert, models.alphabet, models.qwen3):
        path = make(tmp_path / f"{make.__name__}.gguf")
        ours, theirs = read(path), gguf.GGUFReader(path)
        told = {
            name: field.contents() for name, field in theirs.fields.items() if not name.startswith("GGUF.")
        }
        mine = {
            name: each.tolist() if isinstance(each, np.ndarray) else each
            for name, each in ours.values.items()
        }
        assert mine == told
        assert [(each.name, each.offset, each.size) for each in ours.tensors.values()] == [
            (each.name, each.data_offset, each.n_bytes) for each in theirs.tensors
        ]
        assert ours.data == theirs.data_offset


def test_what_is_asked_for_as_another_kind_is_not_there(tmp_path: Path) -> None:
    found = read(models.bert(tmp_path / "bert.gguf"))
    assert found.text("general.architecture") == "bert"
    assert found.whole("general.architecture") is None
    assert found.whole("bert.attention.causal") is None
    assert found.flag("bert.attention.causal", True) is False
    assert found.flag("bert.context_length", True) is True
    assert found.texts("tokenizer.ggml.token_type") is None
    assert found.numbers("tokenizer.ggml.tokens") is None


HUGE = 1 << 62


def tensor(*shape: int, kind: int = 0, place: int = 0) -> bytes:
    return text(b"x") + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, place)


HOSTILE = {
    "empty": (b"", "no GGUF"),
    "short": (b"GGUF" + b"\0" * 19, "no GGUF"),
    "magic": (b"GGML" + b"\0" * 40, "begins with"),
    "version 1": (b"GGUF" + struct.pack("<IQQ", 1, 0, 0) + b"\0" * 8, "version is 1"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "keys": (file(count=HUGE), "keys; 65536"),
    "tensors": (file(tensor_count=HUGE), "tensors; 65536"),
    "more keys than there are": (file(count=5), "cut off|twice"),
    "a long key": (file(struct.pack("<Q", HUGE), 1), "a text of"),
    "a long text": (file(key(b"a", STRING, struct.pack("<Q", 1 << 25)), 1), "a text of"),
    "a text beyond the end": (file(key(b"a", STRING, struct.pack("<Q", 1 << 20)), 1), "cut off"),
    "no UTF-8": (file(key(b"a", STRING, text(b"\xff\xfe")), 1), "no UTF-8"),
    "a kind": (file(key(b"a", 77, b""), 1), "type 77"),
    "many items": (file(key(b"a", ARRAY, struct.pack("<IQ", 4, HUGE)), 1), "items of"),
    "items beyond the end": (file(key(b"a", ARRAY, struct.pack("<IQ", 4, 1 << 20)), 1), "cut off"),
    "texts beyond the end": (file(key(b"a", ARRAY, struct.pack("<IQ", 8, 1 << 20)), 1), "cut off"),
    "lists of lists": (file(key(b"a", ARRAY, struct.pack("<IQ", 9, 1)), 1), "list of the type 9"),
    "twice": (file(key(b"a", 0, b"\1") * 2, 2), "twice"),
    "alignment": (file(key(b"general.alignment", 4, struct.pack("<I", 24)), 1), "power of two"),
    "no alignment": (file(key(b"general.alignment", STRING, text(b"x")), 1), "power of two"),
    "a tensor's name": (file(tensors=text(b"x" * 300), tensor_count=1), "a text of 300"),
    "dimensions": (file(tensors=text(b"x") + struct.pack("<I", 9), tensor_count=1), "9 dimensions"),
    "a shape": (file(tensors=tensor(HUGE, HUGE), tensor_count=1), "shape"),
    "nothing in a shape": (file(tensors=tensor(0), tensor_count=1), "shape"),
    "a type": (file(tensors=tensor(4, kind=999), tensor_count=1), "type 999"),
    "a place": (file(tensors=tensor(4, place=HUGE), tensor_count=1), "cut off"),
    "an odd place": (file(tensors=tensor(1, place=1), tensor_count=1), "cut off"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    content, reason = HOSTILE[name]
    path = tmp_path / "hostile.gguf"
    path.write_bytes(content)
    with pytest.raises(HeaderBroken, match=reason):
        read(path)


@given(st.data())
def test_wherever_it_is_cut_off_it_is_refused(
    tmp_path_factory: pytest.TempPathFactory, sound: bytes, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.gguf"
    path.write_bytes(sound[: data.draw(st.integers(0, len(sound) - 1))])
    with pytest.raises(HeaderBroken):
        read(path)


@settings(max_examples=300)
@given(st.data())
def test_whatever_is_changed_it_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, sound: bytes, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "changed.gguf"
    changed = bytearray(sound)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, 4000))
        changed[at] = data.draw(st.sampled_from([0, 1, 4, 8, 9, 0x7F, 0x80, 0xFF]))
    path.write_bytes(changed)
    try:
        found = read(path)
    except HeaderBroken:
        return
    assert all(each.offset + each.size <= len(changed) for each in found.tensors.values())
