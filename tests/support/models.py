"""Tiny GGUF models, written with the `gguf` package: the same bytes each time, a third of a megabyte at most.

| model | is |
|---|---|
| `bert` | two layers with random weights: an embedder (mean, cls) or a reranker (rank, with a head) |
| `alphabet` | a chain by hand: after a comes b … z, then the end; after 9 comes 0, for ever; `#` begins é! |
| `babble` | two layers with random weights, causal: text that depends on every token before |
| `qwen3` | a reranker that is asked by a template, with or without its head |

Text of the chain is exact on every CPU: attention and feed-forward write zero. Faulty files are made of
these.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

Weights = dict[str, NDArray[np.float32]]
Make = Callable[[tuple[int, ...]], NDArray[np.float32]]

# -- BERT: a word a token

BERT_SIZES = {"dims": 64, "heads": 4, "feed": 128, "layers": 2, "context": 128}
_MARKS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_TEXT = """
the a of and to in is it cat dog fish bird runs eats sleeps red blue green query document worker engine crash
restart memory model token vector score paris france capital
"""
WORDS = (*_MARKS, *_TEXT.split())
CLS, SEP = WORDS.index("[CLS]"), WORDS.index("[SEP]")


def words(text: str, *, special: bool = True) -> list[int]:
    """Ids of a text of WORDS, between CLS and SEP where `special`."""
    ids = [WORDS.index(word) for word in text.split()]
    return [CLS, *ids, SEP] if special else ids


def bert_weights(segments: int = 2, seed: int = 7) -> Weights:
    """What `bert` writes, for a reference to compute with."""
    rng = np.random.default_rng(seed)
    dims, feed = BERT_SIZES["dims"], BERT_SIZES["feed"]

    def random(*shape: int, scale: float = 0.25) -> NDArray[np.float32]:
        return (rng.standard_normal(shape) * scale).astype(np.float32)

    made: Weights = {
        "token_embd.weight": random(len(WORDS), dims, scale=1.0),
        "position_embd.weight": random(BERT_SIZES["context"], dims, scale=0.3),
        "token_types.weight": random(segments, dims, scale=0.5),
        "token_embd_norm.weight": 1 + random(dims, scale=0.05),
        "token_embd_norm.bias": random(dims, scale=0.05),
    }
    shapes = {
        "attn_q": (dims, dims),
        "attn_k": (dims, dims),
        "attn_v": (dims, dims),
        "attn_output": (dims, dims),
        "ffn_up": (feed, dims),
        "ffn_down": (dims, feed),
    }
    for layer in range(BERT_SIZES["layers"]):
        for name, shape in shapes.items():
            made[f"blk.{layer}.{name}.weight"] = random(*shape)
            made[f"blk.{layer}.{name}.bias"] = random(shape[0], scale=0.1)
        for name in ("attn_output_norm", "layer_output_norm"):
            made[f"blk.{layer}.{name}.weight"] = 1 + random(dims, scale=0.05)
            made[f"blk.{layer}.{name}.bias"] = random(dims, scale=0.05)
    made |= {
        "cls.weight": random(dims, dims),
        "cls.bias": random(dims, scale=0.1),
        "cls.output.weight": random(1, dims, scale=0.5),
        "cls.output.bias": random(1, scale=0.1),
    }
    return made


def bert(
    path: Path,
    pooling: str = "mean",
    *,
    segments: int = 2,
    head: bool | None = None,
    frame: tuple[bool, bool] | None = None,
) -> Path:
    """A BERT. `head`: with the classification head; as a reranker has one unless told otherwise.

    `frame`: its tokenizer is not WordPiece but one that goes by flags, as RoBERTa's: (add BOS, add SEP).
    """
    weights = bert_weights(segments)
    if not (pooling == "rank" if head is None else head):
        weights = {name: value for name, value in weights.items() if not name.startswith("cls.")}
    writer = _writer(path, "bert", len(WORDS), BERT_SIZES)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType[pooling.upper()])
    writer.add_token_type_count(segments)
    if frame is None:
        writer.add_tokenizer_model("bert")
    else:
        writer.add_tokenizer_model("llama")
        writer.add_token_scores([-float(index) for index in range(len(WORDS))])
        writer.add_add_bos_token(frame[0])
        writer.add_add_eos_token(True)
        writer.add_add_sep_token(frame[1])
    writer.add_tokenizer_pre("default")
    writer.add_token_list([word if word in _MARKS else f"\u2581{word}" for word in WORDS])
    writer.add_token_types([gguf.TokenType.CONTROL if w in _MARKS else gguf.TokenType.NORMAL for w in WORDS])
    writer.add_bos_token_id(CLS)
    writer.add_eos_token_id(SEP)
    writer.add_sep_token_id(SEP)
    writer.add_unk_token_id(1)
    writer.add_pad_token_id(0)
    writer.add_mask_token_id(4)
    return _written(writer, path, weights)


# -- causal models: a character a token

_CONTROL = ("<unk>", "<s>", "</s>")
CHARACTERS = (
    *_CONTROL,
    *(f"<0x{byte:02X}>" for byte in range(256)),
    "\u2581",
    *map(chr, range(33, 127)),
)
BOS, EOS = 1, 2
_ID = {token: index for index, token in enumerate(CHARACTERS)}


def characters(text: str) -> list[int]:
    """Ids of a text of printable ASCII, after the begin token."""
    return [BOS, *(_ID["\u2581" if each == " " else each] for each in text)]


def alphabet(path: Path, *, context: int = 2048, feed: int = 16) -> Path:
    """The chain: "xyz ab" goes on "cdefghijklmnopqrstuvwxyz" and ends; "0" goes on "123456789012…".

    Every 256 of `feed` make the file a mebibyte larger.
    """
    count = len(CHARACTERS)
    following = dict.fromkeys(range(count), _ID["a"])
    following |= {_ID[chr(c)]: _ID[chr(c + 1)] for c in range(ord("a"), ord("z"))}
    following |= {_ID[str(d)]: _ID[str((d + 1) % 10)] for d in range(10)}
    following |= {_ID["z"]: EOS, _ID["#"]: _ID["<0xC3>"], _ID["<0xC3>"]: _ID["<0xA9>"]}
    following |= {_ID["<0xA9>"]: _ID["!"], _ID["!"]: EOS}
    dims = (count + 15) // 16 * 16
    sizes = {"dims": dims, "heads": 1, "feed": feed, "layers": 1, "context": context, "head": 16}
    one_each = np.eye(count, sizes["dims"], dtype=np.float32)
    output = np.zeros((count, sizes["dims"]), np.float32)
    for token, after in following.items():
        output[after, token] = 1.0
    weights: Weights = {"token_embd.weight": one_each, "output.weight": output}
    weights |= _layers(sizes, lambda shape: np.zeros(shape, np.float32))
    return _causal(path, "llama", sizes, weights)


def babble(path: Path, *, context: int = 2048, seed: int = 11) -> Path:
    """Random weights: what comes next depends on all that was before."""
    rng = np.random.default_rng(seed)
    sizes = {"dims": 64, "heads": 4, "feed": 128, "layers": 2, "context": context, "head": 16}

    def random(shape: tuple[int, ...]) -> NDArray[np.float32]:
        return (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)

    count = len(CHARACTERS)
    weights = {"token_embd.weight": random((count, 64)) * 8, "output.weight": random((count, 64)) * 4}
    weights |= _layers(sizes, random)
    return _causal(path, "llama", sizes, weights)


def qwen3(path: Path, *, head: bool = True) -> Path:
    """A reranker of the Qwen3 kind; without `head` it is what old conversions look like."""
    rng = np.random.default_rng(3)
    sizes = {"dims": 64, "heads": 4, "feed": 128, "layers": 1, "context": 512, "head": 16}

    def random(shape: tuple[int, ...]) -> NDArray[np.float32]:
        return (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)

    count = len(CHARACTERS)
    weights = {"token_embd.weight": random((count, 64)), "output.weight": random((count, 64))}
    weights |= _layers(sizes, random)
    weights |= {f"blk.0.{name}.weight": np.ones(16, np.float32) for name in ("attn_q_norm", "attn_k_norm")}
    if head:
        weights["cls.output.weight"] = random((2, 64))
    return _causal(path, "qwen3", sizes, weights, rank=head)


def _layers(sizes: dict[str, int], make: Make) -> Weights:
    dims, feed, inner = sizes["dims"], sizes["feed"], sizes["heads"] * sizes["head"]
    shapes = {
        "attn_q": (inner, dims),
        "attn_k": (inner, dims),
        "attn_v": (inner, dims),
        "attn_output": (dims, inner),
        "ffn_gate": (feed, dims),
        "ffn_up": (feed, dims),
        "ffn_down": (dims, feed),
    }
    made: Weights = {"output_norm.weight": np.ones(dims, np.float32)}
    for layer in range(sizes["layers"]):
        for name, shape in shapes.items():
            made[f"blk.{layer}.{name}.weight"] = make(shape)
        for name in ("attn_norm", "ffn_norm"):
            made[f"blk.{layer}.{name}.weight"] = np.ones(dims, np.float32)
    return made


def _causal(path: Path, kind: str, sizes: dict[str, int], weights: Weights, *, rank: bool = False) -> Path:
    writer = _writer(path, kind, len(CHARACTERS), sizes)
    writer.add_head_count_kv(sizes["heads"])
    writer.add_rope_dimension_count(sizes["head"])
    writer.add_key_length(sizes["head"])
    writer.add_value_length(sizes["head"])
    writer.add_layer_norm_rms_eps(1e-6)
    if rank:
        writer.add_pooling_type(gguf.PoolingType.RANK)
        writer.add_classifier_output_labels(["yes", "no"])
        writer.add_string("tokenizer.chat_template.rerank", "Query: {query}\nDocument: {document}\nAnswer:")
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(list(CHARACTERS))
    writer.add_token_scores([-float(index) for index in range(len(CHARACTERS))])
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    kinds += [gguf.TokenType.BYTE] * 256
    kinds += [gguf.TokenType.NORMAL] * (len(CHARACTERS) - len(kinds))
    writer.add_token_types(kinds)
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(False)
    return _written(writer, path, weights)


def _writer(path: Path, kind: str, vocabulary: int, sizes: dict[str, int]) -> Any:
    writer = gguf.GGUFWriter(str(path), kind)
    writer.add_name(f"tiny {kind}")
    writer.add_vocab_size(vocabulary)
    writer.add_context_length(sizes["context"])
    writer.add_embedding_length(sizes["dims"])
    writer.add_block_count(sizes["layers"])
    writer.add_feed_forward_length(sizes["feed"])
    writer.add_head_count(sizes["heads"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    return writer


def _written(writer: Any, path: Path, weights: Weights) -> Path:
    for name, value in weights.items():
        writer.add_tensor(name, np.ascontiguousarray(value, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


# -- faulty files


def twice_the_same_word(path: Path) -> Path:
    """A sound file, but for a word that is in its vocabulary twice: llama.cpp aborts when it loads it."""
    whole = bert(path).read_bytes()
    wrong, right = "\u2581cat".encode(), "\u2581dog".encode()
    at = whole.index(struct.pack("<Q", len(right)) + right) + 8
    path.write_bytes(whole[:at] + wrong + whole[at + len(wrong) :])
    return path


def cut_short(path: Path, size: int) -> Path:
    """The first `size` bytes of a sound file (negative: all but the last)."""
    path.write_bytes(bert(path).read_bytes()[:size])
    return path


def not_numbers(path: Path) -> Path:
    """A sound file whose last weights are NaN."""
    whole = bert(path).read_bytes()
    path.write_bytes(whole[:-64] + struct.pack("<f", float("nan")) * 16)
    return path


def one_of_two_parts(path: Path) -> Path:
    """The first part of a model in two files."""
    bert(path)
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(str(path) + ".part", "bert")
    writer.add_uint16("split.count", 2)
    writer.add_uint16("split.no", 0)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, np.array(tensor.data))
    _written(writer, path, {})
    Path(str(path) + ".part").replace(path)
    return path


def garbage(path: Path) -> Path:
    """A magic, and noise behind it."""
    path.write_bytes(b"GGUF" + np.random.default_rng(4).bytes(4096))
    return path


FAULTY: dict[str, Callable[[Path], Path]] = {
    "empty": lambda path: cut_short(path, 0),
    "its magic alone": lambda path: cut_short(path, 4),
    "cut in its header": lambda path: cut_short(path, 2000),
    "cut in its weights": lambda path: cut_short(path, 200_000),
    "without its last byte": lambda path: cut_short(path, -1),
    "with weights that are no numbers": not_numbers,
    "one of two parts": one_of_two_parts,
    "garbage": garbage,
}
