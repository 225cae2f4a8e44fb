"""The fake engine: arithmetic in place of a model, and failures on demand (see `fake_switches`).

It takes `format: "fake"` and any file. Everything it says follows from the ids alone, so that a test can tell
whose answer it holds: a vector and a score from the sum, the ends and the number of an item's ids, the text
from the prompt's ids in turn ("7 8 9 " for 7, 8, 9, then it stops). It is run as a real worker process, so
that every path of a host's supervision is driven through real code.
"""

from __future__ import annotations

import os
import sys
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from bakemesh.protocol.worker import headers as h
from bakemesh.protocol.worker.packets import pieces
from bakemesh.worker.config import RuntimeConfig
from bakemesh.worker.engines.base import (
    Cancelled,
    Emit,
    Engine,
    EngineError,
    Generated,
    ModelFacts,
    Options,
)
from bakemesh.worker.engines.fake_switches import KEYS, STAGES, Switches
from bakemesh.worker.serving import Send

N_VOCAB = 32_000
N_CTX = 1 << 20
_BASE = 8  # numbers in a vector before it repeats
_POOLINGS = {"mean": 0, "cls": 101, "last": 202}


@dataclass
class FakeModel:
    """A loaded file. `requests`: with ids, so far."""

    facts: ModelFacts
    switches: Switches
    pooling: str | None
    ctx_size: int
    requests: int = 0

    @property
    def dims(self) -> int:
        """Width of its vectors."""
        return self.facts.dims


@dataclass
class FakeEngine:
    """See the module."""

    name: str = "fake"
    version: str = "1"
    build_flags: dict[str, Any] = field(default_factory=lambda: {"arithmetic": True})
    types: tuple[str, ...] = h.ADDED_TYPES
    formats: tuple[str, ...] = ("fake",)
    switches: tuple[str, ...] = KEYS
    _last: Switches = field(default_factory=Switches)  # of the model that was loaded or asked last
    _ids: memoryview | None = None

    def load(self, path_fd: int, path: str, format: str, config: Mapping[str, str]) -> FakeModel:  # noqa: A002
        """See Engine. `architecture` is `fake-` and the CRC of the file, as it is when it is read."""
        del path, format
        self._last = switches = Switches.of(config)
        time.sleep(switches.slow_load_ms / 1000)
        self._strike("load", None)
        if switches.start_error is not None:
            raise EngineError(switches.start_error, "start_error was asked for")
        known = RuntimeConfig.of(config)
        facts = ModelFacts(
            architecture=f"fake-{_crc(path_fd):08x}",
            dims=switches.dims,
            n_vocab=N_VOCAB,
            n_ctx_train=N_CTX,
            pooling=known.pooling or "mean",
            rank_head=True,
            chat_template="{% for m in messages %}{{ m.content }}{% endfor %}",
        )
        return FakeModel(facts, switches, known.pooling, known.ctx_size or N_CTX)

    def embed(
        self, model: FakeModel, pooling: str, normalize: bool, counts: Sequence[int], ids: memoryview
    ) -> memoryview:
        """See Engine."""
        if pooling not in _POOLINGS:
            raise EngineError("bad_request", f"pooling {pooling!r} gives no vectors")
        _within(model, counts)
        self._begin(model, "embed", ids)
        out, begin = array("f"), 0
        for count in counts:
            row = vector(ids[begin : begin + count], pooling, normalize, model.dims)
            out.extend(row)
            begin += count
        return memoryview(out)

    def rerank(self, model: FakeModel, query_n: int, counts: Sequence[int], ids: memoryview) -> memoryview:
        """See Engine."""
        _within(model, [query_n + count for count in counts])
        self._begin(model, "rerank", ids)
        query, begin, out = ids[:query_n], query_n, array("f")
        for count in counts:
            out.append(score(query, ids[begin : begin + count]))
            begin += count
        return memoryview(out)

    def generate(
        self, model: FakeModel, ids: memoryview, options: Options, emit: Emit | None, cancelled: Cancelled
    ) -> Generated:
        """See Engine. `seed` shifts the ids; a `stop` is a whole number of the text."""
        for name in ("grammar", "json_schema"):
            if getattr(options, name) is not None:
                raise EngineError("bad_request", f"the fake engine has no {name}")
        _within(model, [len(ids)])
        self._begin(model, "generate", ids, wait=False)
        most = options.max_tokens if model.switches.endless else min(options.max_tokens, len(ids))
        said: list[str] = []
        reason = "length" if most == options.max_tokens and most != len(ids) else "stop"
        for at in range(most):
            if _waited(model.switches.slow_ms, cancelled):
                reason = "cancelled"
                break
            word = str((ids[at % len(ids)] + (options.seed or 0)) % N_VOCAB)
            if word in options.stop:
                reason = "stop"
                break
            said.append(f"{word} ")
            if emit is not None:
                emit(said[-1])
        return Generated(text="".join(said), n_prompt=len(ids), n_gen=len(said), finish_reason=reason)

    def info(self, model: FakeModel) -> ModelFacts:
        """See Engine."""
        self._last, self._ids = model.switches, None
        return model.facts

    def unload(self, model: FakeModel) -> None:
        """See Engine: there is nothing to give back."""
        self._last, self._ids = model.switches, None

    # -- failing

    def spoil(self, asked: Any, answer: Any, data: memoryview | None, send: Send) -> bool:
        """Sends the answer as the switches say; False: it is to be sent as it is. See serving.Spoil."""
        stage = STAGES[asked.TYPE]
        switches, ids = self._last, self._ids
        self._ids = None
        if switches.stdout_flood:
            _flood(switches.stdout_flood)
        if stage in ("info", "unload", "ping"):
            self._strike(stage, None)
        if isinstance(answer, h.Err):
            return False
        found = next((name for name, when in switches.faults.items() if when.strikes(stage, ids)), None)
        if found == "garbage_frame":
            send([b"\x09\x00\x00\x00{garbage\xff"])
        elif found == "oversized_frame":
            send([b"\xff\xff\xff\xff", b"too much"])
        elif found == "wrong_req_id":
            send(pieces(replace(answer, req_id=f"{answer.req_id}-other"), data))
        elif found == "half_frame":
            whole = b"".join(bytes(each) for each in pieces(answer, data))
            send([whole[: len(whole) // 2]])
            os._exit(1)
        else:
            return False
        return True

    def _begin(self, model: FakeModel, stage: str, ids: memoryview, *, wait: bool = True) -> None:
        self._last, self._ids = model.switches, ids
        model.requests += 1
        if model.requests == model.switches.exit_after:
            _exit(model.switches.exit_code)
        self._strike(stage, ids)
        if wait:
            time.sleep(model.switches.slow_ms / 1000)

    def _strike(self, stage: str, ids: memoryview | None) -> None:
        for name, when in self._last.faults.items():
            if name == "abort_on_item" and when.strikes(stage, ids):
                _abort()
            if name == "hang_on_item" and when.strikes(stage, ids):
                sys.stderr.write("fake: hangs, as it was told\n")
                while True:
                    time.sleep(3600)


def make() -> Engine:
    """For engines.make."""
    return FakeEngine()


def vector(ids: memoryview | Sequence[int], pooling: str, normalize: bool, dims: int = _BASE) -> array[float]:
    """The vector of an item: eight numbers between -1 and 1, repeated up to `dims`."""
    whole = sum(ids) + 7 * ids[0] + 13 * ids[-1] + _POOLINGS[pooling]
    base = [((whole * (k + 1) + len(ids) * (k + 3)) % 1009) / 1009 - 0.5 for k in range(_BASE)]
    if normalize:
        length = (sum(each * each for each in base) * (dims // _BASE)) ** 0.5 or 1.0
        base = [each / length for each in base]
    return array("f", base) * (dims // _BASE)


def score(query: memoryview | Sequence[int], candidate: memoryview | Sequence[int]) -> float:
    """The score of a candidate: between -5 and 5."""
    return ((31 * sum(query) + 17 * sum(candidate) + len(candidate)) % 1000) / 100 - 5


def _within(model: FakeModel, counts: Sequence[int]) -> None:
    if (longest := max(counts)) > model.ctx_size:
        raise EngineError("bad_request", f"an item of {longest} ids; this model takes {model.ctx_size}")


def _waited(ms: int, cancelled: Cancelled) -> bool:
    """Waits, looking; True: cancelled."""
    until = time.monotonic() + ms / 1000
    while not cancelled():
        left = until - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(left, 0.01))
    return True


def _crc(fd: int) -> int:
    import zlib

    found = 0
    while chunk := os.read(fd, 1 << 20):
        found = zlib.crc32(chunk, found)
    return found


def _flood(size: int) -> None:
    line = b"flood " * 170 + b"end\n"
    while size > 0:
        size -= os.write(1, line[:size])


def _abort() -> NoReturn:
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stderr.write("fake: aborts, as it was told\n")
    sys.stderr.flush()
    os.abort()


def _exit(code: int) -> NoReturn:
    sys.stderr.write(f"fake: exits with {code}, as it was told\n")
    sys.stderr.flush()
    if code < 0:
        os.kill(os.getpid(), -code)
        time.sleep(60)
    os._exit(code)
