"""Weights in bf16: rounded as they should be, and nothing else of the file changed."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.synapse.models.header import read
from bakemesh.synapse.models.judging import weights_of
from bakemesh.synapse.models.weights import bf16, is_matrix, to_bf16
from support import models


@given(st.lists(st.floats(width=32), min_size=1))
def test_rounding_is_to_the_nearest_and_what_is_no_number_stays_none(values: list[float]) -> None:
    exact = np.asarray(values, np.float32)
    found = (bf16(exact).astype(np.uint32) << 16).view(np.float32)
    finite = np.isfinite(exact)
    assert np.array_equal(np.isnan(exact), np.isnan(found))
    assert np.array_equal(exact[np.isinf(exact)], found[np.isinf(exact)])
    inner = finite & (np.abs(exact) < 3e38) & (np.abs(exact) > 1e-37)
    assert np.all(np.abs(found[inner] - exact[inner]) <= np.abs(exact[inner]) * 2.0**-8)
    if not finite.any():
        return
    theirs = gguf.quants.quantize(exact[finite], gguf.GGMLQuantizationType.BF16).view(np.uint16)
    assert np.array_equal(bf16(exact[finite]), theirs.reshape(-1))


def test_only_matrices_and_the_type_of_the_file_change(tmp_path: Path) -> None:
    path, into = models.bert(tmp_path / "f32.gguf"), tmp_path / "bf16.gguf"
    header, told = read(path), []
    assert to_bf16(path, header, into, lambda *each: told.append(each))
    made = read(into)
    assert made.values.keys() == header.values.keys()
    assert {name for name in made.values if not np.array_equal(made.values[name], header.values[name])} == {
        "general.file_type"
    }
    assert made.values["general.file_type"] == gguf.LlamaFileType.MOSTLY_BF16
    assert (weights_of(header), weights_of(made)) == ("f32", "bf16")
    assert into.stat().st_size < path.stat().st_size
    before, after = path.read_bytes(), into.read_bytes()
    for name, tensor in header.tensors.items():
        now = made.tensors[name]
        old, new = (
            whole[each.offset : each.offset + each.size] for whole, each in ((before, tensor), (after, now))
        )
        assert now.shape == tensor.shape
        if is_matrix(tensor):
            assert now.type == gguf.GGMLQuantizationType.BF16
            assert new == bf16(np.frombuffer(old, np.float32)).tobytes()
        else:
            assert (now.type, new) == (tensor.type, old)
    assert is_matrix(header.tensors["blk.0.attn_q.weight"])
    assert not is_matrix(header.tensors["token_embd.weight"])
    assert told[-1][1] == told[-1][2] > 0
    assert gguf.GGUFReader(into).get_tensor(0).name == next(iter(header.tensors))


def test_where_there_is_nothing_to_convert_nothing_is_written(tmp_path: Path) -> None:
    path, into = models.bert(tmp_path / "f32.gguf"), tmp_path / "bf16.gguf"
    header = read(path)
    for name in [name for name, tensor in header.tensors.items() if is_matrix(tensor)]:
        del header.tensors[name]
    assert not to_bf16(path, header, into, lambda *_: None)
    assert not into.exists()
