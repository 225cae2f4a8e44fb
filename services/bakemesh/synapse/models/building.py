"""Vocabularies as Hugging Face tokenizers: of a GGUF's own tokens, or of a tokenizer.json beside it.

What is built adds no special token and parses none but those that the file calls user-defined: those stand
for themselves in any text. Source: llama.cpp's src/llama-vocab.cpp, which the tests run beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from bakemesh.protocol.inference.errors import Code
from bakemesh.synapse.models.errors import ModelRefused
from bakemesh.synapse.models.kinds import BYTE_LEVEL, CONTROL, Vocabulary
from bakemesh.synapse.models.vocabulary import load

_SPACE = "\u2581"  # how vocabularies write a space, and WordPiece in GGUF the beginning of a word
_LONGEST_WORD = 100  # characters, as BERT has it; llama.cpp goes on, and its ids are others then
LONGEST_TOKEN = 512  # characters of a token that merges are looked for


def build(vocabulary: Vocabulary) -> Tokenizer:
    """Raises ModelRefused where the vocabulary cannot be what it says."""
    kinds: dict[str, Callable[[Vocabulary], Tokenizer]] = {
        "bert": _word_pieces,
        "llama": _sentence_pieces,
        "gpt2": _byte_level,
    }
    try:
        found = kinds[vocabulary.model](vocabulary)
    except Exception as error:
        raise ModelRefused(Code.ARTIFACT_INVALID, f"its vocabulary cannot be used: {error}"[:500]) from error
    found.add_tokens([AddedToken(token, normalized=False, special=False) for token in vocabulary.user])
    return found


def beside(path: Path, vocabulary: Vocabulary) -> Tokenizer:
    """The tokenizer.json at `path`, if it has the same words under the same ids. Raises ModelRefused."""
    try:
        found = load(path)
    except ValueError as error:
        raise ModelRefused(Code.ARTIFACT_INVALID, str(error)) from error
    wanted = {"bert": "WordPiece", "llama": "BPE", "gpt2": "BPE"}[vocabulary.model]
    if (kind := type(found.model).__name__) != wanted:
        raise _differs(path, f"it is {kind}, and the model's vocabulary {wanted}")
    words = found.get_vocab(with_added_tokens=True)
    ours = {_plain(vocabulary, number): number for number in range(len(vocabulary.tokens))}
    for word, number in words.items():
        if ours.get(word) != number:
            raise _differs(path, f"its word {word!r:.60} has the id {number}, in the model {ours.get(word)}")
    if len(words) < len(ours) // 2:
        raise _differs(path, f"it has {len(words)} words, and the model {len(ours)}")
    return found


def _differs(path: Path, how: str) -> ModelRefused:
    return ModelRefused(
        Code.ARTIFACT_INVALID, f"{path.name} is not this model's: {how}; without it the model's own is used"
    )


def _plain(vocabulary: Vocabulary, number: int) -> str:
    """A token as a tokenizer.json writes it."""
    token = vocabulary.tokens[number]
    if vocabulary.model != "bert" or vocabulary.kinds[number] == CONTROL or _bracketed(token):
        return token
    return token[1:] if token.startswith(_SPACE) else f"##{token}"


def _bracketed(token: str) -> bool:
    return token.startswith("[") and token.endswith("]")


def _word_pieces(vocabulary: Vocabulary) -> Tokenizer:
    words = {_plain(vocabulary, number): number for number in range(len(vocabulary.tokens))}
    if len(words) != len(vocabulary.tokens) or vocabulary.unknown is None:
        raise ValueError("words that are the same, or no token for unknown words")
    found = Tokenizer(
        models.WordPiece(
            words,
            unk_token=_plain(vocabulary, vocabulary.unknown),
            max_input_chars_per_word=_LONGEST_WORD,
        )
    )
    found.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=True,
        strip_accents=vocabulary.strip_accents,
        lowercase=vocabulary.lowercase,
    )
    found.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return found


def _byte_level(vocabulary: Vocabulary) -> Tokenizer:
    kind = BYTE_LEVEL[vocabulary.pre]
    words = {token: number for number, token in enumerate(vocabulary.tokens)}
    if not vocabulary.merges:
        raise ValueError("it has no merges (tokenizer.ggml.merges)")
    merges = []
    for line in vocabulary.merges:
        left, _, right = line[1:].partition(" ")
        left = line[:1] + left
        if left in words and right in words and left + right in words:
            merges.append((left, right))
    found = Tokenizer(models.BPE(words, merges, ignore_merges=kind.whole))
    cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in kind.patterns]
    found.pre_tokenizer = pre_tokenizers.Sequence(
        [*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    return found


def _sentence_pieces(vocabulary: Vocabulary) -> Tokenizer:
    words = {token: number for number, token in enumerate(vocabulary.tokens)}
    unknown = None if vocabulary.unknown is None else vocabulary.tokens[vocabulary.unknown]
    found = Tokenizer(
        models.BPE(words, _merges(vocabulary, words), unk_token=unknown, fuse_unk=True, byte_fallback=True)
    )
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", _SPACE)]
    if vocabulary.space_prefix:
        steps.insert(0, normalizers.Prepend(_SPACE))
    found.normalizer = normalizers.Sequence(steps)
    return found


def _merges(vocabulary: Vocabulary, words: dict[str, int]) -> list[tuple[str, str]]:
    """Every pair of words that makes a word, the best score first."""
    found = []
    for number, token in enumerate(vocabulary.tokens):
        if len(token) > LONGEST_TOKEN:
            raise ValueError(f"a word of {len(token)} characters")
        score = vocabulary.scores[number]
        for at in range(1, len(token)):
            left, right = token[:at], token[at:]
            if left in words and right in words:
                found.append((-score, at, left, right))
    found.sort(key=lambda each: each[:2])
    return [(left, right) for _, _, left, right in found]
