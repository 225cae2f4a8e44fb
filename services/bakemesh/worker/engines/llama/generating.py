"""Prompt in, text out: prefill, one token after the other, and why it ended.

The prompt's state is kept when a generation ends. The next prompt that begins the same starts behind what
both have in common, so a conversation's next turn does not read the conversation again.

Guarantees: the same text as from cold. A sum's last bits depend on how many tokens are computed together, so
steps of prefill begin at multiples of one fixed number of tokens, always, and a kept prefix is cut to such a
multiple: what is computed after it is the very computation that a cold start would do. Generated tokens,
which are computed one by one, are not kept. CANCEL ends a prefill in the middle of a step, a generation after
a token.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bakemesh.worker.engines.base import Cancelled, Emit, EngineError, Generated, Options
from bakemesh.worker.engines.llama.contexts import Context, Ids, Shape
from bakemesh.worker.engines.llama.model import LlamaModel
from bakemesh.worker.engines.llama.pieces import Pieces
from bakemesh.worker.engines.llama.sampling import Sampler

_ABORTED = 2
_LOOK_S = 0.001  # llama.cpp asks thousands of times a second whether to go on; the caller is asked less often


def kept(held: Ids, prompt: Ids, step: int) -> int:
    """How much of what is held a prompt can start from: a multiple of `step`, at least one token left."""
    common = min(held.size, prompt.size - 1)
    differs = np.flatnonzero(held[:common] != prompt[:common])
    common = int(differs[0]) if differs.size else common
    return common - common % step


class Generation:
    """The context of one model that generates, one request at a time."""

    def __init__(self, model: LlamaModel) -> None:
        if not model.header.causal:
            raise EngineError("bad_request", f"a {model.header.architecture} model makes vectors, not text")
        api = model.library.api
        self._model, self._api = model, api
        self._step = model.prefill
        self._context = Context(
            model.library,
            model.handle,
            Shape(
                n_ctx=model.n_ctx,
                capacity=self._step,
                sequences=1,
                threads=model.threads,
                flash=model.config.flash_attention,
            ),
        )
        self._held: Ids = np.empty(0, np.int32)
        self._watch = _Watch(api, self._context)

    def run(self, ids: Ids, options: Options, emit: Emit | None, cancelled: Cancelled) -> Generated:
        """One request. Raises EngineError: bad_request, inference_failed."""
        model = self._model
        if ids.size > model.n_ctx:
            raise EngineError(
                "bad_request",
                f"the prompt has {ids.size} tokens; this model was loaded for {model.n_ctx} "
                f"(runtime_config.ctx_size; it was trained for {model.facts.n_ctx_train})",
            )
        sampler = Sampler(model.library, model.vocab, model.n_vocab, options)
        try:
            pieces = Pieces(options.stop)
            count, finish = 0, "length"
            if options.max_tokens > 0:
                if self._prefill(ids, cancelled):
                    count, finish = self._tokens(
                        ids.size, options.max_tokens, sampler, pieces, emit, cancelled
                    )
                else:
                    finish = "cancelled"
            _tell(emit, pieces.end())
            return Generated(text=pieces.text, n_prompt=int(ids.size), n_gen=count, finish_reason=finish)
        finally:
            sampler.close()

    def close(self) -> None:
        """Gives its memory back."""
        self._context.close()

    def _prefill(self, ids: Ids, cancelled: Cancelled) -> bool:
        """Reads the prompt. False: cancelled."""
        begin = kept(self._held, ids, self._step)
        if not self._context.forget(begin):
            begin = 0
        self._held = ids[:begin].copy()
        with self._watch.asking(cancelled):
            for at in range(begin, ids.size, self._step):
                part = ids[at : at + self._step]
                self._context.batch.continue_one(part, at, output_last=at + part.size == ids.size)
                if not self._decode(at):
                    return False
                self._held = ids[: at + part.size].copy()
        return True

    def _tokens(
        self,
        position: int,
        most: int,
        sampler: Sampler,
        pieces: Pieces,
        emit: Emit | None,
        cancelled: Cancelled,
    ) -> tuple[int, str]:
        """Generates until something ends it: how many tokens, and what ended it."""
        model = self._model
        most = min(most, model.n_ctx - position + 1)
        token = np.empty(1, np.int32)
        for count in range(most):
            if cancelled():
                return count, "cancelled"
            chosen = sampler.next(self._logits())
            if self._api.llama_vocab_is_eog(model.vocab, chosen):
                # A grammar lets the end token through only where it is satisfied.
                return count, "grammar_complete" if sampler.constrained else "stop"
            sampler.accept(chosen)
            _tell(emit, pieces.push(model.piece(chosen)))
            if pieces.stopped:
                return count + 1, "stop"
            if count + 1 < most:
                token[0] = chosen
                self._context.batch.continue_one(token, position + count, output_last=True)
                self._decode(position)
        return most, "length"

    def _decode(self, begin: int) -> bool:
        """Runs the batch. False: cancelled, and everything from `begin` on is forgotten."""
        log = self._model.library.log
        log.clear()
        answer = self._context.decode()
        if answer == 0:
            return True
        if not self._context.forget(begin):
            self._held = self._held[:0]
        self._held = self._held[:begin]
        self._watch.raise_failure()
        if answer == _ABORTED:
            return False
        raise log.error("inference_failed", f"llama.cpp cannot go on at token {begin} ({answer})")

    def _logits(self) -> NDArray[np.float32]:
        found = self._api.llama_get_logits_ith(self._context.handle, -1)
        if not found:
            raise EngineError("inference_failed", "llama.cpp has no logits of the last token")
        return np.ctypeslib.as_array(found, (self._model.n_vocab,))


class _Watch:
    """llama.cpp's abort callback: asks whoever wants to know whether the work is still wanted."""

    def __init__(self, api: Any, context: Context) -> None:
        self._api, self._context = api, context
        self._cancelled: Cancelled | None = None
        self._failure: BaseException | None = None
        self._looked = 0.0
        self._callback = api.ggml_abort_callback(self._ask)
        self._none = api.ggml_abort_callback()

    def asking(self, cancelled: Cancelled) -> _Watch:
        """While it is entered, `cancelled` is asked."""
        self._cancelled, self._failure, self._looked = cancelled, None, 0.0
        return self

    def __enter__(self) -> None:
        self._api.llama_set_abort_callback(self._context.handle, self._callback, None)

    def __exit__(self, *raised: object) -> None:
        self._api.llama_set_abort_callback(self._context.handle, self._none, None)
        self._cancelled = None

    def raise_failure(self) -> None:
        """Raises what `cancelled` raised: an exception cannot pass through llama.cpp."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _ask(self, data: object) -> bool:
        del data
        now = time.monotonic()
        if self._cancelled is None or now - self._looked < _LOOK_S:
            return False
        self._looked = now
        try:
            return self._cancelled()
        except BaseException as error:  # noqa: BLE001  # told by raise_failure
            self._failure = error
            return True


def _tell(emit: Emit | None, text: str) -> None:
    if emit is not None and text:
        emit(text)
