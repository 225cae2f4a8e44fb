"""What is known of a model in the library: a value, kept as JSON beside its alias."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Kind = Literal["embed", "rerank", "generate"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFacts:
    """How texts become ids. (`model`, `pre`) is its kind; `bytes` is the fake format's.

    `digest`: of its tokenizer.json in the cache. `source`: gguf (rebuilt from the model's own vocabulary),
    tokenizer.json (that lay beside the model). `before`, `behind`: special ids around a single text;
    `pair`: how many special ids stand around a query and a document. `control`: tokens that are parsed
    in a rendered chat, by their text.
    """

    model: str
    pre: str
    source: str
    digest: str | None = None
    before: tuple[int, ...] = ()
    behind: tuple[int, ...] = ()
    pair: int = 0
    control: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A model. `digest`: of what is loaded; `source`: of the file as it came (another one where weights were
    converted). `context`: tokens it was trained for; `limit`: most tokens of an item, or of prompt and
    generation together, with this config. `dims`: of its vectors. `faithful`: its answers are those it was
    trained to give; `unfaithful` says why they are not. `min_placement_share`: a lane that says that less of
    its work runs on its accelerator is not used for it.
    """

    digest: str
    source: str
    bytes: int
    format: str
    architecture: str
    name: str
    kind: Kind
    dims: int
    vocabulary: int
    context: int
    limit: int
    pooling: str
    weights: str
    tokenizer: TokenizerFacts
    template: str | None = None
    template_problem: str | None = None  # why no chat can be rendered with it
    texts: Mapping[str, str] = field(default_factory=dict)  # a template's bos_token and eos_token
    config: Mapping[str, str] = field(default_factory=dict)  # the runtime keys that LOAD gets
    unfaithful: str | None = None
    min_placement_share: float | None = None

    @property
    def faithful(self) -> bool:
        """Whether nothing is known that makes it answer otherwise than it was trained to."""
        return self.unfaithful is None

    def as_it_came(self, size: int) -> Manifest:
        """The same model with the weights of its file, of `size` bytes."""
        came = self.weights.partition(" of ")[2] or self.weights
        return dataclasses.replace(self, digest=self.source, bytes=size, weights=came)

    def to_json(self) -> dict[str, Any]:
        """All of it, as JSON and MessagePack have it."""
        return dataclasses.asdict(self)

    def told(self) -> dict[str, Any]:
        """For people and callers: without the long texts."""
        found = self.to_json()
        found["template"] = self.template is not None
        found["faithful"] = self.faithful
        found["tokenizer"] = {
            key: value for key, value in found["tokenizer"].items() if key not in ("control", "pair")
        }
        del found["texts"]
        return found

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Manifest:
        """Raises ValueError for what is no manifest of this version."""
        try:
            # What has a default may be absent: it came with a later version.
            known = {each.name: found[each.name] for each in dataclasses.fields(cls) if each.name in found}
            tokenizer = dict(known["tokenizer"])
            for name in ("before", "behind"):
                tokenizer[name] = tuple(tokenizer[name])
            return cls(**{**known, "tokenizer": TokenizerFacts(**tokenizer)})
        except (KeyError, TypeError) as error:
            raise ValueError(f"no manifest: {error!r}") from error
