"""The llama.cpp engine, on the low-level interface of llama-cpp-python.

| module | is |
|---|---|
| `engine` | the Engine: one method a request |
| `library` | loads the shared library, its CPU variant, its log |
| `header` | what a GGUF file says of itself |
| `faith` | which models cannot rerank faithfully |
| `model` | a loaded model and the contexts that it has |
| `contexts` | a context for a pooling, the context that generates; the batch they read |
| `embedding` | items to encodes of at most 256 tokens, vectors back |
| `reranking` | query and candidates to pairs, scores back |
| `generating` | prompt, tokens, end |
| `sampling` | the next token: greedy or sampled, under a grammar or free |
| `schema` | a JSON Schema to a grammar |
| `pieces` | bytes of tokens to text that may be told |

Importing it needs numpy and the standard library; `make` loads llama.cpp and raises ImportError without it.
"""

from __future__ import annotations

from bakemesh.worker.engines.base import Engine


def make() -> Engine:
    """The engine. Raises EngineMissing (an ImportError) where llama-cpp-python is not there or not sound."""
    from bakemesh.worker.engines.llama.engine import LlamaEngine

    return LlamaEngine()
