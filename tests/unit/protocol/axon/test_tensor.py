"""Tensors: byte-equal to the real SDK's both ways, and what nobody should open."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgpack
import numpy
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from pydantic import ValidationError

from bakemesh.protocol.axon import DeserializationFailed, InvalidTensor, Synapse, Tensor
from bakemesh.protocol.axon.tensor import DTYPES, MOST_DIMENSIONS
from support.recorded import recorded

GOLDEN = recorded("golden_tensor")
CASES = {row["name"]: row for row in GOLDEN["cases"]}
REFUSED = {row["name"]: row for row in GOLDEN["refuse"]}

# How each array was laid out when it was recorded; the others are plain.
LAID_OUT: dict[str, NDArray[Any]] = {
    "fortran_float32_2x3": numpy.asfortranarray(numpy.arange(6, dtype="<f4").reshape(2, 3)),
    "strided_float32": numpy.arange(12, dtype="<f4")[::3],
    "big_endian_int32": numpy.array([1, 2], dtype=">i4"),
}


class Carries(Synapse):
    embeddings: Tensor | None = None
    rows: list[Tensor] = []  # noqa: RUF012


def array_of(row: dict[str, Any]) -> NDArray[Any]:
    values = row["values"]
    if row["name"] == "nan_inf_float32":
        values = [float(each) for each in values]
    return LAID_OUT.get(row["name"], numpy.array(values, dtype=row["tensor"]["dtype"]))


def packed(shape: Any, data: bytes = b"", code: bytes = b"<f4", **more: Any) -> str:
    held = {b"nd": True, b"type": code, b"kind": b"", b"shape": shape, b"data": data}
    held |= {key.encode(): value for key, value in more.items()}
    return base64.b64encode(msgpack.packb(held, use_bin_type=True)).decode()


@pytest.mark.parametrize("name", sorted(CASES))
def test_ours_is_byte_equal_to_the_real_one(name: str) -> None:
    """Also in the wire type of the code, `str` in msgpack, that the keys beside it do not have."""
    row = CASES[name]
    ours = Tensor.from_numpy(array_of(row))
    assert ours.model_dump() == row["tensor"]
    assert base64.b64decode(ours.buffer or "").hex() == row["msgpack_hex"]


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_real_one_is_read(name: str) -> None:
    row = CASES[name]
    found = Tensor(**row["tensor"]).numpy()
    numpy.testing.assert_array_equal(found, array_of(row))
    assert found.dtype == array_of(row).dtype
    assert not found.flags.writeable


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_refused(name: str) -> None:
    row = REFUSED[name]
    with pytest.raises(InvalidTensor, match="deserialization failed"):
        Tensor(**row["tensor"])
    with pytest.raises(InvalidTensor):
        Tensor.model_construct(**row["tensor"]).numpy()


def test_every_dtype_has_a_golden_case() -> None:
    assert {row["tensor"]["dtype"] for row in CASES.values()} == set(DTYPES)


def test_a_pickle_is_never_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    import pickle

    def opened(*_: Any, **__: Any) -> None:
        raise AssertionError("a pickle was opened")

    monkeypatch.setattr(pickle, "loads", opened)
    monkeypatch.setattr(pickle, "load", opened)
    with pytest.raises(InvalidTensor, match="arrays of kind b'O' are never opened"):
        Tensor(**REFUSED["object_array"]["tensor"])


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_prefix_of_torch_is_taken(name: str) -> None:
    row = CASES[name]["tensor"]
    found = Tensor(**row | {"dtype": "torch." + row["dtype"]}).numpy()
    numpy.testing.assert_array_equal(found, Tensor(**row).numpy())


@given(
    st.sampled_from(sorted(DTYPES)).flatmap(
        lambda name: arrays.arrays(
            st.sampled_from([numpy.dtype(name), numpy.dtype(name).newbyteorder(">")]),
            arrays.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4),
        )
    )
)
def test_an_array_comes_back(array: NDArray[Any]) -> None:
    tensor = Tensor.from_numpy(array)
    synapse = Carries.from_body(Carries(embeddings=tensor).body())
    assert synapse.embeddings == tensor
    found = tensor.numpy()
    assert found.shape == array.shape
    assert found.dtype == array.dtype
    assert found.tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", ["complex64", "uint16", "U1", "S1", "O", "datetime64[s]", "i4,f4"])
def test_other_dtypes_are_refused_before_they_are_sent(dtype: str) -> None:
    with pytest.raises(InvalidTensor, match="is none of float16"):
        Tensor.from_numpy(numpy.zeros(1, dtype=dtype))


@pytest.mark.parametrize(
    ("tensor", "why"),
    [
        ({"buffer": None, "shape": [1]}, "it has no buffer"),
        ({"buffer": "a", "shape": [1]}, "its buffer is not base64"),
        ({"buffer": "é", "shape": [1]}, "its buffer is not base64"),
        ({"buffer": "", "shape": [1]}, "its buffer is not msgpack"),
        ({"buffer": base64.b64encode(b"\x91" * 5000 + b"\x90").decode(), "shape": [1]}, "not msgpack"),
        ({"buffer": base64.b64encode(b"\xdd\xff\xff\xff\xff").decode(), "shape": [1]}, "not msgpack"),
        ({"buffer": base64.b64encode(b"\xdf\xff\xff\xff\xff").decode(), "shape": [1]}, "not msgpack"),
        ({"buffer": base64.b64encode(b"\xc6\xff\xff\xff\xff").decode(), "shape": [1]}, "not msgpack"),
        ({"buffer": base64.b64encode(b"\x05").decode(), "shape": [1]}, "its buffer holds no array"),
        ({"buffer": packed([1], b"aaaa", nd=1), "shape": [1]}, "its buffer holds no array"),
        ({"buffer": packed([1], b"aaaa", more=1), "shape": [1]}, "its buffer holds no array"),
        ({"buffer": packed([1], b"aaaa", kind=b"V"), "shape": [1]}, "are never opened"),
        ({"buffer": packed([1], b"aaaa", kind=None), "shape": [1]}, "are never opened"),
        ({"buffer": packed([1], b"aaaa", b"|O8"), "shape": [1]}, "the buffer holds '|O8', the tensor says"),
        ({"buffer": packed([1], b"aaaa", b"<i4"), "shape": [1]}, "the buffer holds '<i4', the tensor says"),
        ({"buffer": packed([1], b"aaaa", b"xf4"), "shape": [1]}, "the buffer holds 'xf4', the tensor says"),
        ({"buffer": packed([1], b"aaaa", b"f4"), "shape": [1]}, "no plain array"),
        ({"buffer": packed([1], 5), "shape": [1]}, "no plain array"),  # type: ignore[arg-type]
        ({"buffer": packed([True], b"aaaa"), "shape": [1]}, "its shape is no list of whole numbers"),
        ({"buffer": packed([1.0], b"aaaa"), "shape": [1]}, "its shape is no list of whole numbers"),
        ({"buffer": packed(b"\x01", b"aaaa"), "shape": [1]}, "its shape is no list of whole numbers"),
        ({"buffer": packed([-1, -1], b"aaaa"), "shape": [1]}, "its shape is no list of whole numbers"),
        (
            {"buffer": packed([2], b"aaaa"), "shape": [2]},
            r"shape \[2\] of float32 takes 8 bytes, there are 4",
        ),
        ({"buffer": packed([2**63, 2], b""), "shape": [0]}, "no array has the shape"),
        ({"buffer": packed([0, 2**63]), "shape": [0, 2**63]}, "no array has the shape"),
        ({"buffer": packed([0, 2**40, 2**40]), "shape": [0, 2**40, 2**40]}, "no array has the shape"),
        ({"buffer": packed([1] * 33, b"aaaa"), "shape": [1] * 33}, "its buffer is not msgpack"),
        (
            {"buffer": packed([1], b"aaaa"), "shape": [1, 1]},
            r"the tensor says shape \[1, 1\], its buffer \[1\]",
        ),
        ({"buffer": packed([], b"aaaa"), "shape": [1]}, r"the tensor says shape \[1\], its buffer \[\]"),
        (
            {"buffer": packed([1], b"\x02", b"|b1"), "shape": [1], "dtype": "bool"},
            "a bool is the byte 0 or 1",
        ),
        ({"buffer": packed([1], b"aaaa"), "shape": [1], "dtype": "torch.torch.float32"}, "is none of"),
    ],
)
def test_hostile_tensors(tensor: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidTensor, match=why) as found:
        Tensor(**{"dtype": "float32"} | tensor)
    assert len(str(found.value)) < 400


def test_in_a_body_it_is_the_bodys_error() -> None:
    """A 400: InvalidTensor, which is a DeserializationFailed; in a list or an Optional too."""
    bad = REFUSED["short_data"]["tensor"]
    for body in ({"embeddings": bad}, {"rows": [bad]}):
        with pytest.raises(InvalidTensor) as found:
            Carries.from_body(json.dumps(body).encode())
        assert isinstance(found.value, DeserializationFailed)


def test_more_dimensions_than_may_be_read_are_not_sent() -> None:
    assert Tensor.from_numpy(numpy.zeros([1] * MOST_DIMENSIONS)).numpy().ndim == MOST_DIMENSIONS
    with pytest.raises(InvalidTensor, match="it has 33 dimensions, 32 are allowed"):
        Tensor.from_numpy(numpy.zeros([1] * (MOST_DIMENSIONS + 1)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=9,
)
DIMENSIONS = st.one_of(
    st.integers(0, 3), st.integers(-(2**63), 2**64 - 1), st.sampled_from([2**31, 2**62, 2**63])
)
HELD = st.fixed_dictionaries(
    {
        b"nd": st.just(True) | JSON,
        b"type": st.sampled_from([b"<f4", b">i8", b"|b1", b"|u1", b"=f2", b"|O8", b"<f9"])
        | st.binary(max_size=4),
        b"kind": st.just(b"") | st.sampled_from([b"O", b"V"]) | JSON,
        b"shape": st.lists(DIMENSIONS, max_size=5) | JSON,
        b"data": st.binary(max_size=24) | JSON,
    }
)


def buffer_of(held: Any) -> str:
    try:
        return base64.b64encode(msgpack.packb(held, use_bin_type=True)).decode()
    except (OverflowError, ValueError):
        return ""


@given(
    st.one_of(
        HELD.map(buffer_of), st.binary(max_size=60).map(lambda raw: base64.b64encode(raw).decode()), JSON
    ),
    st.sampled_from(sorted(DTYPES)) | st.text(max_size=12) | JSON,
    st.lists(DIMENSIONS, max_size=5) | JSON,
)
@example(buffer_of({b"nd": True, b"type": b"<f4", b"kind": b"", b"shape": [0], b"data": b""}), "float32", [0])
def test_arbitrary_input_is_a_tensor_or_refused_and_nothing_else(buffer: Any, dtype: Any, shape: Any) -> None:
    try:
        tensor = Tensor(buffer=buffer, dtype=dtype, shape=shape)
    except (InvalidTensor, ValidationError):
        return
    array = tensor.numpy()
    assert array.shape == tuple(tensor.shape) or (array.shape == () and tensor.shape in ([], [0]))


@given(HELD)
def test_a_tensor_that_fits_its_buffer_is_read(held: dict[bytes, Any]) -> None:
    """As above with a declared shape and type that agree, so that more of them get through."""
    codes = {code: name for name, (code, _) in DTYPES.items()}
    dtype = codes.get(held[b"type"][1:].decode("latin-1"), "float32")
    shape = held[b"shape"] if isinstance(held[b"shape"], list) else [1]
    try:
        tensor = Tensor(buffer=buffer_of(held), dtype=dtype, shape=shape)
    except (InvalidTensor, ValidationError):
        return
    assert tensor.numpy().nbytes == len(held[b"data"])
