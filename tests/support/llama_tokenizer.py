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


def known(architectures: Sequence[str], folder: Path) -> set[str]:
    """Those that the engine has."""
    import gguf

    paths = []
    for name in architectures:
        paths.append(folder / f"{name}.gguf")
        writer = gguf.GGUFWriter(str(paths[-1]), name)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
    run = subprocess.run(
        [sys.executable, "-m", "support.llama_tokenizer", *map(str, paths)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=Path(__file__).parent.parent,
    )
    # Each of them is refused: a known one for what it lacks.
    parts = run.stderr.split("NEXT\n")[1:]
    assert len(parts) == len(paths), run.stderr[-1000:]
    told = zip(architectures, parts, strict=True)
    return {name for name, said in told if "unknown model architecture" not in said}


def main(path: str, *more: str) -> None:
    """Answers until its input ends; of several files, only tries to load each."""
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
    for each in (path, *more) if more else ():
        sys.stderr.write("NEXT\n")
        api.llama_model_load_from_file(each.encode(), params)
    if more:
        return
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
    main(*sys.argv[1:])
