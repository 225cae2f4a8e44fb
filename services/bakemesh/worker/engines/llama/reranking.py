"""Query and candidates to pairs in the model's own form, pairs to scores.

| tokenizer | pair |
|---|---|
| WordPiece (BERT) | CLS query SEP document SEP |
| others (RoBERTa and its kin) | BOS query EOS SEP document EOS, SEP and BOS as the file's flags say |

WordPiece does not go by the flags: files without them would get SEP twice. Scores are raw logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bakemesh.worker.engines.base import EngineError
from bakemesh.worker.engines.llama.contexts import Ids
from bakemesh.worker.engines.llama.embedding import run
from bakemesh.worker.engines.llama.model import LlamaModel


@dataclass(frozen=True, slots=True)
class Frame:
    """The special tokens before the query, between the two, and behind the document."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    behind: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.before) + len(self.between) + len(self.behind)


def pairs(frame: Frame, query: Ids, counts: Sequence[int], documents: Ids) -> tuple[list[int], Ids]:
    """The lengths of the pairs, and their ids one pair after the other."""
    head = np.concatenate((np.asarray(frame.before, np.int32), query, np.asarray(frame.between, np.int32)))
    tail = np.asarray(frame.behind, np.int32)
    parts, at = [], 0
    for count in counts:
        parts += [head, documents[at : at + count], tail]
        at += count
    return [head.size + count + tail.size for count in counts], np.concatenate(parts)


def rerank(model: LlamaModel, query_n: int, counts: Sequence[int], ids: Ids) -> NDArray[np.float32]:
    """One score a candidate. Raises EngineError: bad_request, oom, inference_failed."""
    if not model.ranks:
        raise EngineError(
            "bad_request",
            f"this {model.header.architecture} model was not loaded to rerank; "
            "LOAD it with runtime_config.pooling=rank",
        )
    around = frame_of(model)
    model.check(
        {
            f"candidate {index} ({query_n} of the query, {count} of its own, {around.size} special)": total
            for index, count in enumerate(counts)
            if (total := query_n + count + around.size) > model.limit
        }
    )
    lengths, flat = pairs(around, ids[:query_n], counts, ids[query_n:])
    return run(model, "rank", lengths, flat, 1)[:, 0]


def frame_of(model: LlamaModel) -> Frame:
    """The special tokens of this model's pairs. Raises EngineError where it lacks one."""
    api, vocab = model.library.api, model.vocab
    bos, eos, sep = (
        int(each(vocab)) for each in (api.llama_vocab_bos, api.llama_vocab_eos, api.llama_vocab_sep)
    )
    if model.header.tokenizer == "bert":
        sep = sep if sep >= 0 else eos
        found = Frame((bos,), (sep,), (sep,))
    else:
        eos = eos if eos >= 0 else sep
        found = Frame(
            (bos,) if api.llama_vocab_get_add_bos(vocab) else (),
            (eos, sep) if api.llama_vocab_get_add_sep(vocab) else (eos,),
            (eos,),
        )
    if min(found.before + found.between + found.behind) < 0:
        raise EngineError(
            "config_invalid",
            f"the vocabulary lacks special tokens for pairs (BOS {bos}, SEP {sep}, EOS {eos})",
        )
    return found
