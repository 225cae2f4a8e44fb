"""What a GGUF file says of itself, read by ggml's own reader before a model is made of it.

The same bytes are read again by llama.cpp; reading them first lets a worker refuse by name what would load
and then compute something else. Left out: weights.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bakemesh.worker.engines.llama.library import Library

_POOLINGS = {0: "none", 1: "mean", 2: "cls", 3: "last", 4: "rank"}
_U32, _I32, _BOOL, _STRING, _ARRAY = 4, 5, 7, 8, 9
_WHOLE = {0: "u8", 1: "i8", 2: "u16", 3: "i16", _U32: "u32", _I32: "i32", 10: "u64", 11: "i64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """`pooling`: none, mean, cls, last or rank; None: not said. `segments`: rows of token types (0: none)."""

    architecture: str
    pooling: str | None
    causal: bool
    tokenizer: str
    segments: int
    head: bool
    labels: int
    rerank_template: bool
    chat_template: str | None
    parts: int


class _InitParams(ctypes.Structure):
    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


def read(library: Library, path: str) -> Header:
    """Raises EngineError artifact_invalid where it is no sound GGUF, oom where memory ran out."""
    library.log.clear()
    with _opened(library.raw, path) as file:
        if file is None:
            raise library.log.error("artifact_invalid", "not a sound GGUF file")
        architecture = file.text("general.architecture") or ""
        head = file.tensor("cls.output.weight") is not None
        lone = file.tensor("cls.weight")  # a head of one layer, where it has one output
        types = file.tensor("token_types.weight")
        return Header(
            architecture=architecture,
            pooling=_POOLINGS.get(file.whole(f"{architecture}.pooling_type", -1)),
            causal=file.flag(f"{architecture}.attention.causal", True),
            tokenizer=file.text("tokenizer.ggml.model") or "",
            segments=types[1] if types is not None else 0,
            head=head or (lone is not None and lone[1] == 1),
            labels=file.length(f"{architecture}.classifier.output_labels"),
            rerank_template=file.text("tokenizer.chat_template.rerank") is not None,
            chat_template=file.text("tokenizer.chat_template"),
            parts=file.whole("split.count", 1),
        )


class _File:
    """An opened header. A value of another type than asked for counts as not there (ggml would abort)."""

    def __init__(self, raw: Any, handle: int) -> None:
        self._raw, self._handle = raw, handle

    def _key(self, name: str) -> tuple[int, int]:
        key = self._raw.gguf_find_key(self._handle, name.encode())
        return key, self._raw.gguf_get_kv_type(self._handle, key) if key >= 0 else -1

    def text(self, name: str) -> str | None:
        key, kind = self._key(name)
        if kind != _STRING:
            return None
        return bytes(self._raw.gguf_get_val_str(self._handle, key)).decode("utf-8", "replace")

    def whole(self, name: str, default: int) -> int:
        key, kind = self._key(name)
        if kind not in _WHOLE:
            return default
        return int(getattr(self._raw, f"gguf_get_val_{_WHOLE[kind]}")(self._handle, key))

    def flag(self, name: str, default: bool) -> bool:
        key, kind = self._key(name)
        return bool(self._raw.gguf_get_val_bool(self._handle, key)) if kind == _BOOL else default

    def length(self, name: str) -> int:
        key, kind = self._key(name)
        return int(self._raw.gguf_get_arr_n(self._handle, key)) if kind == _ARRAY else 0

    def tensor(self, name: str) -> tuple[int, int] | None:
        """Its width and number of rows."""
        index = self._raw.gguf_find_tensor(self._handle, name.encode())
        if index < 0:
            return None
        shape = self._raw.gguf_get_tensor_ne(self._handle, index)
        return int(shape[0]), int(shape[1])


@contextmanager
def _opened(raw: Any, path: str) -> Iterator[_File | None]:
    _declare(raw)
    handle = raw.gguf_init_from_file(path.encode(), _InitParams(True, None))
    if not handle:
        yield None
        return
    try:
        yield _File(raw, handle)
    finally:
        raw.gguf_free(handle)


def _declare(raw: Any) -> None:
    key = [ctypes.c_void_p, ctypes.c_int64]
    named = [ctypes.c_void_p, ctypes.c_char_p]
    answers: dict[str, tuple[list[Any], Any]] = {
        "gguf_init_from_file": ([ctypes.c_char_p, _InitParams], ctypes.c_void_p),
        "gguf_free": ([ctypes.c_void_p], None),
        "gguf_find_key": (named, ctypes.c_int64),
        "gguf_get_kv_type": (key, ctypes.c_int),
        "gguf_get_val_str": (key, ctypes.c_char_p),
        "gguf_get_val_bool": (key, ctypes.c_bool),
        "gguf_get_arr_n": (key, ctypes.c_size_t),
        "gguf_find_tensor": (named, ctypes.c_int64),
        "gguf_get_tensor_ne": (key, ctypes.POINTER(ctypes.c_int64)),
    }
    wholes = {"u": "c_uint", "i": "c_int"}
    for name in _WHOLE.values():
        answers[f"gguf_get_val_{name}"] = (key, getattr(ctypes, wholes[name[0]] + name[1:]))
    for name, (takes, gives) in answers.items():
        function = getattr(raw, name)
        function.argtypes, function.restype = takes, gives
