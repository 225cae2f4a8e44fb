"""The models of a node, without any engine: files, manifests, token ids, chats.

    library = Library(state / "synapse", Cache(state / "synapse" / "cache"))
    manifest = library.ingest(Path("model.gguf"), "mini")
    model = library.get("mini")
    ids, counts = model.tokenizer.embed_ids(["a text", "another"])

| module | is |
|---|---|
| `library`, `aliases`, `model`, `manifest` | what is here, under which name; kept over restarts |
| `finding` `ingesting` `isolating` `inspecting` | a file on its way in: read in a process of its own |
| `header` `judging` `architectures` | what a GGUF says of itself, and what follows: pure |
| `kinds` `building` | vocabularies as Hugging Face tokenizers |
| `vocabulary`, `tokenizing` | texts to ids |
| `templates`, `bounds` | chats to prompts |
| `weights` | bf16 where that is fastest |
| `fake` | models of the fake engine |
"""

from bakemesh.synapse.models.aliases import AliasesDamaged
from bakemesh.synapse.models.errors import ModelError, ModelRefused, TextRefused, TooManyTokens
from bakemesh.synapse.models.library import Library
from bakemesh.synapse.models.manifest import Manifest, TokenizerFacts
from bakemesh.synapse.models.model import Model
from bakemesh.synapse.models.tokenizing import Tokenizer

__all__ = [
    "AliasesDamaged",
    "Library",
    "Manifest",
    "Model",
    "ModelError",
    "ModelRefused",
    "TextRefused",
    "Tokenizer",
    "TokenizerFacts",
    "TooManyTokens",
]
