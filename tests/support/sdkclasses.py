"""Synapse classes whose text is the same for the real SDK and for ours: only the bases differ.

Loaded by both sides: here with `bakemesh.protocol.axon`, in a child of the real SDK's interpreter with its
own. So it imports nothing of either, and its annotations are not texts.
"""

from enum import Enum
from typing import Any, ClassVar

from pydantic import BaseModel, Field


class Role(str, Enum):  # noqa: UP042 - as subnets write it
    """Who speaks."""

    USER = "user"
    ASSISTANT = "assistant"


class Source(BaseModel):
    """A model in a model."""

    url: str
    rank: int = 0


class Turn(BaseModel):
    """A model in a list of a synapse."""

    role: Role
    content: str
    weight: float = 1.0
    source: Source | None = None


def classes(synapse: Any, streaming: Any, tensor: Any, chunks: Any = None) -> dict[str, Any]:
    """By name. `chunks`: what the real SDK's streaming class needs to read its answer."""

    class Echo(synapse):
        """Inputs with defaults, two of them signed."""

        required_hash_fields: ClassVar[tuple[str, ...]] = ("text", "n")
        text: str = ""
        n: int = 0
        reply: str | None = None

    class Unhashed(synapse):
        """Nothing is signed: the most common form in subnets."""

        text: str = ""
        reply: str | None = None

    class Allowed(synapse):
        """As Unhashed, at a route that lets it in."""

        text: str = ""
        reply: str | None = None

    class Required(synapse):
        """Inputs without defaults, which need dummies in headers."""

        required_hash_fields: ClassVar[tuple[str, ...]] = ("prompt", "roles", "n", "temperature", "flags")
        prompt: str
        roles: list[str]
        n: int
        temperature: float
        flags: dict[str, bool]
        reply: str | None = None

    class Chat(synapse):
        """All that subnets' classes hold."""

        required_hash_fields: ClassVar[tuple[str, ...]] = (
            "turns",
            "mode",
            "extra",
            "options",
            "role",
            "limit",
            "seed",
            "tags",
        )
        turns: list[Turn] = Field(default_factory=list)
        mode: int | float | str = 0
        extra: list[dict] = Field(default_factory=list)
        options: dict[str, Any] | None = None
        role: Role = Role.USER
        limit: float | None = None
        seed: int = Field(default=7, frozen=True)
        tags: tuple[str, ...] = ()
        best: Turn | None = None
        all_of_them: list[Turn] = Field(default_factory=list)

    class Array(synapse):
        """A tensor in, a tensor out."""

        required_hash_fields: ClassVar[tuple[str, ...]] = ("given",)
        given: tensor | None = None
        doubled: tensor | None = None

    class Private(synapse):
        """Served to nobody."""

        required_hash_fields: ClassVar[tuple[str, ...]] = ("text",)
        text: str = ""

    class Boom(synapse):
        """Its handler raises."""

        required_hash_fields: ClassVar[tuple[str, ...]] = ("text",)
        text: str = ""

    class Slow(synapse):
        """Its handler waits."""

        required_hash_fields: ClassVar[tuple[str, ...]] = ("seconds",)
        seconds: float = 0.0

    class Nowhere(synapse):
        """No axon serves it."""

        text: str = ""

    class Tok(streaming):
        """Text in parts."""

        required_hash_fields: ClassVar[tuple[str, ...]] = ("prompt",)
        prompt: str = ""
        completion: str = ""

        if chunks is not None:
            process_streaming_response = chunks.process_streaming_response
            extract_response_json = chunks.extract_response_json

    kinds = (Echo, Unhashed, Allowed, Required, Chat, Array, Private, Boom, Slow, Nowhere, Tok)
    prompts = {"TextPrompt": text_prompt(streaming, chunks), "WholeTextPrompt": text_prompt(synapse)}
    return {kind.__name__: kind for kind in kinds} | prompts


def text_prompt(base: Any, chunks: Any = None) -> Any:
    """The mesh's own, as a subnet would write it; what answers whole is a plain synapse there."""

    class TextPrompt(base):
        """A text that goes on."""

        required_hash_fields: ClassVar[tuple[str, ...]] = ("prompt", "max_tokens", "temperature", "stream")
        prompt: str = ""
        max_tokens: int = 128
        temperature: float = 0.7
        stream: bool = False
        completion: str | None = None

        if chunks is not None:
            process_streaming_response = chunks.process_streaming_response
            extract_response_json = chunks.extract_response_json

    return TextPrompt
