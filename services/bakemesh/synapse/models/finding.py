"""What an ingest was pointed at: a model's file, and what lies beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bakemesh.protocol.inference.errors import Code
from bakemesh.synapse.models import fake
from bakemesh.synapse.models.errors import ModelRefused

_TOKENIZER, _TEMPLATE = "tokenizer.json", "chat_template.jinja"
_SUFFIXES = (".gguf", fake.SUFFIX)


@dataclass(frozen=True, slots=True)
class Found:
    """`tokenizer`, `template`: a tokenizer.json and a chat_template.jinja in the model's folder."""

    model: Path
    tokenizer: Path | None
    template: Path | None

    @property
    def fake(self) -> bool:
        """Whether it is of the fake format."""
        return self.model.name.endswith(fake.SUFFIX)


def find(path: Path) -> Found:
    """The model at `path`: a file, or a folder with exactly one. Raises ModelRefused."""
    try:
        model = _in_folder(path) if path.is_dir() else path
        if not model.is_file():
            raise ModelRefused(Code.ARTIFACT_INVALID, f"{path}: there is no such file")
        tokenizer, template = (
            each if (each := model.parent / name).is_file() else None for name in (_TOKENIZER, _TEMPLATE)
        )
        return Found(model, tokenizer, template)
    except (OSError, ValueError) as error:
        raise ModelRefused(Code.ARTIFACT_INVALID, f"{path} cannot be read: {error}") from error


def _in_folder(folder: Path) -> Path:
    found = sorted(each for each in folder.iterdir() if each.name.endswith(_SUFFIXES) and each.is_file())
    if len(found) == 1:
        return found[0]
    if not found:
        raise ModelRefused(Code.ARTIFACT_INVALID, f"{folder} has no file whose name ends in .gguf")
    names = ", ".join(each.name for each in found[:5])
    raise ModelRefused(
        Code.ARTIFACT_INVALID, f"{folder} has {len(found)} models ({names}); name the one that is meant"
    )
