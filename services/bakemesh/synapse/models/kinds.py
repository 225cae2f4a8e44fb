"""Kinds of vocabularies: the pair of `tokenizer.ggml.model` and `tokenizer.ggml.pre`.

A kind is listed here when a test has shown, on a real vocabulary of it, that our ids are llama.cpp's. One
that is not listed is refused by its name: a tokenizer that is nearly right gives vectors that are nearly
wrong.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bakemesh.protocol.inference.errors import Code
from bakemesh.synapse.models.errors import ModelRefused
from bakemesh.synapse.models.header import Header

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"


@dataclass(frozen=True, slots=True)
class Bytes:
    """Byte-level BPE. `patterns`: a text is cut by each in turn. `whole`: a piece that is a word as it stands
    is not cut again. `begins`: a begin token is added where the file does not say."""

    patterns: tuple[str, ...]
    whole: bool = False
    begins: bool = False


BYTE_LEVEL: dict[str, Bytes] = {
    "gpt-2": Bytes((_GPT2,)),
    "llama-bpe": Bytes((rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1,3}}{_REST}",), whole=True, begins=True),
    "qwen2": Bytes((rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{_REST}",)),
    "starcoder": Bytes((r"\p{N}", _GPT2)),
    "smollm": Bytes((r"\p{N}", _GPT2)),
    "refact": Bytes((r"\p{N}", _GPT2)),
    "command-r": Bytes((r"\p{N}", _GPT2)),
    "mpt": Bytes((_GPT2,)),
    "falcon": Bytes((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")),
    "qwen35": Bytes(
        (
            rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
            r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        )
    ),
}
SINGLE = ("bert", "llama")  # WordPiece and SentencePiece have one way to cut texts: their `pre` says nothing


# Tokens that llama.cpp takes for control tokens by their text, whatever the file says.
_CONTROL_WORDS = """
</s> <EOT> <MID> <PAD> <PRE> <REPO> <SUF> <end_of_turn> <end_of_utterance> <eos> <fim-middle>
<fim-pad> <fim-prefix> <fim-repo> <fim-suffix> <fim_middle> <fim_pad> <fim_prefix> <fim_suffix>
<reponame> <turn|> <|calls|> <|call|> <|code_middle|> <|code_prefix|> <|code_suffix|>
<|end_of_text|> <|endoftext|> <|end|> <|eom_id|> <|eot_id|> <|file_sep|> <|fim_middle|> <|fim_pad|>
<|fim_prefix|> <|fim_repo|> <|fim_suffix|> <|flush|> <|im_end|> <|middle|> <|prefix|> <|repo_name|>
<|return|> <|suffix|> <|tool_response> <｜end▁of▁sentence｜> <｜fim▁begin｜> <｜fim▁end｜> <｜fim▁hole｜>
[EOS] [EOT] [PAD] [e~[ _<EOT> ▁<MID> ▁<PRE> ▁<SUF>
"""
_CONTROL_BY_TEXT = frozenset(_CONTROL_WORDS.split())
_USER_BY_TEXT = frozenset({"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """What a header says of its tokens, checked. `user`: tokens that are found in any text, before all else;
    `control`: those that are parsed in rendered chats alone."""

    model: str
    pre: str
    tokens: list[str]
    kinds: list[int]
    scores: list[float]
    merges: list[str]
    bos: int | None
    eos: int | None
    sep: int | None
    unknown: int | None
    add_bos: bool
    add_eos: bool
    add_sep: bool
    space_prefix: bool
    lowercase: bool
    strip_accents: bool
    user: list[str] = field(default_factory=list)
    control: Mapping[str, int] = field(default_factory=dict)

    @property
    def before(self) -> tuple[int, ...]:
        """Ids before a single text."""
        return self._around(self.bos, self.add_bos or self.model == "bert", "begin")

    @property
    def behind(self) -> tuple[int, ...]:
        """Ids behind a single text."""
        if self.model == "bert":
            return self._around(self.sep, True, "separator")
        return self._around(self.eos, self.add_eos, "end")

    @property
    def pair(self) -> int:
        """How many special ids the engine puts around a query and a document."""
        if self.model == "bert":
            return 3
        return int(self.add_bos) + 2 + int(self.add_sep)

    def _around(self, token: int | None, wanted: bool, what: str) -> tuple[int, ...]:
        if not wanted:
            return ()
        if token is None:
            raise _refused(f"its vocabulary wants a {what} token around texts, and has none")
        return (token,)


def vocabulary(header: Header) -> Vocabulary:
    """Raises ModelRefused: a kind that is not proven, or a vocabulary that contradicts itself."""
    model = header.text("tokenizer.ggml.model") or "none"
    pre = header.text("tokenizer.ggml.pre") or "default"
    known = BYTE_LEVEL.get(pre) if model == "gpt2" else None
    if known is None and model not in SINGLE:
        proven = ", ".join([*SINGLE, *(f"gpt2/{each}" for each in BYTE_LEVEL)])
        raise ModelRefused(
            Code.CAPABILITY_ABSENT,
            f"its tokenizer is of the kind {model[:40]}/{pre[:40]}, which is not proven here; "
            f"those that are: {proven}",
        )
    if re.search(r"phi-?3", (header.text("general.name") or "").lower()):
        raise ModelRefused(
            Code.CAPABILITY_ABSENT,
            "its special tokens swallow the spaces behind them, which is not done here",
        )
    tokens = _tokens(header)
    kinds = _numbers(header, "tokenizer.ggml.token_type", len(tokens), NORMAL)
    kinds = [_kind(token, kind) for token, kind in zip(tokens, kinds, strict=True)]
    word = model == "bert"
    spm = model == "llama"
    lowercase = header.flag("tokenizer.ggml.normalizer.lowercase", True)
    return Vocabulary(
        model=model,
        pre=pre,
        tokens=tokens,
        kinds=kinds,
        scores=_numbers(header, "tokenizer.ggml.scores", len(tokens), 0.0),
        merges=header.texts("tokenizer.ggml.merges") or [],
        bos=_special(header, "bos", tokens, 101 if word else 1 if spm else 11),
        eos=_special(header, "eos", tokens, None if word else 2 if spm else 11),
        sep=_special(header, "seperator", tokens, 102 if word else None),
        unknown=_special(header, "unknown", tokens, 100 if word else 0 if spm else None),
        add_bos=header.flag(
            "tokenizer.ggml.add_bos_token", word or spm or (known is not None and known.begins)
        ),
        add_eos=header.flag("tokenizer.ggml.add_eos_token", False),
        add_sep=header.flag("tokenizer.ggml.add_sep_token", word),
        space_prefix=header.flag("tokenizer.ggml.add_space_prefix", spm),
        lowercase=lowercase,
        strip_accents=header.flag("tokenizer.ggml.normalizer.strip_accents", lowercase),
        user=[token for token, kind in zip(tokens, kinds, strict=True) if kind == USER_DEFINED],
        control={
            token: number
            for number, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
            if kind in (CONTROL, UNKNOWN)
        },
    )


def _tokens(header: Header) -> list[str]:
    tokens = header.texts("tokenizer.ggml.tokens") or []
    named = [token or f"[EMPTY_{number}]" for number, token in enumerate(tokens)]
    if len(set(named)) != len(named):
        ((double, _),) = Counter(named).most_common(1)
        raise _refused(f"the word {double!r:.60} is in its vocabulary twice: an engine dies of it")
    return named


def _kind(token: str, kind: int) -> int:
    if token in _USER_BY_TEXT:
        return USER_DEFINED
    return CONTROL if token in _CONTROL_BY_TEXT else kind


def _numbers(header: Header, key: str, count: int, default: Any) -> list[Any]:
    found = header.numbers(key)
    if found is None:
        return [default] * count
    if len(found) < count:
        raise _refused(f"{key} has {len(found)} items for {count} tokens")
    return found[:count]


def _special(header: Header, name: str, tokens: list[str], default: int | None) -> int | None:
    found = header.whole(f"tokenizer.ggml.{name}_token_id")
    if found is None or found >= len(tokens):
        found = default
    return found if found is not None and 0 <= found < len(tokens) else None


def _refused(what: str) -> ModelRefused:
    return ModelRefused(Code.ARTIFACT_INVALID, what)
