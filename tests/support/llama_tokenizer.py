"""llama.cpp's own tokenizer, in a process of its own: a vocabulary that it does not like ends it.

python -m support.llama_tokenizer FILE.gguf <requests >answers    a line of JSON each
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def ids(
    path: Path, texts: Sequence[str], *, add_special: bool = False, parse: bool = False
) -> list[list[int]]:
    """The ids of each text. Raises CalledProcessError."""
    asked = "\n".join(json.dumps([text, add_special, parse]) for text in texts)
    run = subprocess.run(
        [sys.executable, "-m", "support.llama_tokenizer", str(path)],
        input=asked,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        cwd=Path(__file__).parent.parent,
    )
    return [json.loads(line) for line in run.stdout.splitlines()]


def knows(architecture: str, folder: Path) -> bool:
    """Whether the engine has that architecture."""
    import gguf

    path = folder / f"{architecture}.gguf"
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    run = subprocess.run(
        [sys.executable, "-m", "support.llama_tokenizer", str(path)],
        input="",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parent.parent,
    )
    return "unknown model architecture" not in run.stderr


def main(path: str) -> None:
    """Answers until its input ends."""
    import llama_cpp.llama_cpp as api

    @api.llama_log_callback  # type: ignore[untyped-decorator]
    def log(level: int, text: bytes, data: object) -> None:
        del data
        if level >= 4:
            sys.stderr.write(text.decode("utf-8", "replace"))

    api.llama_log_set(log, ctypes.c_void_p(0))
    api.llama_backend_init()
    params = api.llama_model_default_params()
    params.vocab_only = True
    model = api.llama_model_load_from_file(path.encode(), params)
    if not model:
        sys.exit("it cannot be loaded")
    vocabulary = api.llama_model_get_vocab(model)
    for line in sys.stdin:
        text, add_special, parse = json.loads(line)
        said = text.encode()
        room = len(said) + 16
        found = (api.llama_token * room)()
        count = api.llama_tokenize(vocabulary, said, len(said), found, room, add_special, parse)
        print(json.dumps(list(found[:count])))


if __name__ == "__main__":
    main(sys.argv[1])
