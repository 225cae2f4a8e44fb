"""A model of the library, as the module uses it: its file, its ids, its chats."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from bakemesh.protocol.inference.errors import Code
from bakemesh.synapse.models.errors import TextRefused
from bakemesh.synapse.models.manifest import Manifest
from bakemesh.synapse.models.templates import ChatTemplate
from bakemesh.synapse.models.tokenizing import Encoder, Tokenizer, each_byte
from bakemesh.workerpool.models import Artifact

Open = Callable[[Path], Encoder]


class Model:
    """One alias. What takes time is made at its first use, once, whichever thread comes first."""

    def __init__(self, alias: str, manifest: Manifest, path: Path, tokenizer: Callable[[], Encoder]) -> None:
        self.alias, self.manifest = alias, manifest
        self.artifact = Artifact(path=path, digest=manifest.digest, format=manifest.format)
        self._open = tokenizer
        self._lock = threading.Lock()
        self._made: Tokenizer | None = None

    @property
    def config(self) -> Mapping[str, str]:
        """The runtime_config of its LOAD, complete."""
        return self.manifest.config

    @property
    def tokenizer(self) -> Tokenizer:
        """Texts to ids. Reading a large vocabulary for the first time takes a second: not in an event loop.

        Raises OSError, ModelRefused where its file is damaged.
        """
        if self._made is None:
            with self._lock:
                if self._made is None:
                    facts = self.manifest.tokenizer
                    self._made = Tokenizer(self._open(), facts, self.manifest.limit)
        return self._made

    def render(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The chat as a prompt for `tokenizer.prompt_ids(…, special=True)`, which adds what the model wants
        before it. Raises TextRefused, with capability_absent where the model has no template."""
        text = self._template.render(messages)
        begin = self.manifest.texts.get("bos_token", "")
        # Templates write the begin token too; it stands there once.
        return text[len(begin) :] if begin and self._begins and text.startswith(begin) else text

    @property
    def _begins(self) -> bool:
        facts = self.manifest.tokenizer
        begin = facts.control.get(self.manifest.texts.get("bos_token", ""))
        return begin is not None and facts.before[:1] == (begin,)

    @cached_property
    def _template(self) -> ChatTemplate:
        if self.manifest.template is None:
            raise TextRefused(
                f"the model of {self.alias} has no chat template: give a prompt", Code.CAPABILITY_ABSENT
            )
        return ChatTemplate(self.manifest.template, self.manifest.texts)


def bytes_encoder() -> Encoder:
    """The fake format's."""
    return each_byte
